"""Flows that are coroutines: the same run, awaited."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from promptgraft.graphs.run import Run, under_way

if TYPE_CHECKING:
    from promptgraft.runtime.deadline import Deadline
    from promptgraft.runtime.session import SessionProtocol


class AsyncRun:
    """One answer of a graph under way: what an ``async`` flow is called with.

    Steps are taken in threads, so that other coroutines run meanwhile. They follow each other in
    the order of the calls: nodes that are to be asked side by side belong into :meth:`together`,
    not into ``asyncio.gather``.

    Args:
        run: the run that waits.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def session(self) -> SessionProtocol:
        """Where the answer is recorded."""
        return self._run.session

    @property
    def deadline(self) -> Deadline | None:
        """Until when; None for no limit."""
        return self._run.deadline

    async def ask(self, node: str, *params: object) -> Any:
        """Return what is answered to a node's prompt bound to ``params``; see :meth:`Run.ask`."""
        import asyncio

        return await asyncio.to_thread(self._run.ask, node, *params)

    async def do(self, node: str, function: Callable[..., Any], *args: object) -> Any:
        """Call a function as a step without a prompt; see :meth:`Run.do`."""
        import asyncio

        return await asyncio.to_thread(self._run.do, node, function, *args)

    async def together(self, *branches: Callable[[AsyncRun], Awaitable[Any]]) -> tuple[Any, ...]:
        """Await coroutines side by side, each with a run of its own; see :meth:`Run.together`."""
        import asyncio

        runs = self._run.fork(len(branches))

        async def taken(run: Run, branch: Callable[[AsyncRun], Awaitable[Any]]) -> Any:
            under_way.set(run)
            return await branch(AsyncRun(run))

        ended = await asyncio.gather(
            *(taken(run, branch) for run, branch in zip(runs, branches, strict=True)),
            return_exceptions=True,
        )
        return self._run.join(
            runs,
            [(None, one) if isinstance(one, BaseException) else (one, None) for one in ended],
        )

    def text(self, node: str) -> str:
        """Return the text of a node's prompt; see :meth:`Run.text`."""
        return self._run.text(node)


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether calling a function gives a coroutine."""
    method = getattr(type(function), "__call__", None)  # noqa: B004 - of an object
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)
