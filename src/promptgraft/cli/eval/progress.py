"""How far an evaluation is: a bar on terminals, elsewhere what calls wait for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from promptgraft.cli.output import is_plain_terminal
from promptgraft.cli.text import echo
from promptgraft.text import visible_line

P = ParamSpec("P")
T = TypeVar("T")

Tell = Callable[[int, str], None]
"""Told of answers that are done, and of what a call waits for."""


class CountingExecutor(ThreadPoolExecutor):
    """Threads that tell of each piece of work that is done.

    Args:
        workers: how many threads.
        tell: told.
    """

    def __init__(self, workers: int, tell: Tell) -> None:
        super().__init__(max_workers=workers)
        self._tell = tell

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(lambda _: self._tell(1, ""))
        return future


@contextlib.contextmanager
def told_progress(total: int, *, quiet: bool) -> Iterator[Tell]:
    """Give what an evaluation of ``total`` answers is told with."""
    if quiet or sys.stderr is None:
        yield lambda *_: None
    elif not sys.stderr.isatty() or is_plain_terminal():
        yield _say
    else:
        with _bar(total) as tell:
            yield tell


def _say(done: int, what: str) -> None:
    del done
    if what:
        with contextlib.suppress(OSError):
            echo(visible_line(what), error=True)


@contextlib.contextmanager
def _bar(total: int) -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("evaluating"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.description}", markup=False),
    )
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task("", total=total)

    def tell(done: int, what: str) -> None:
        progress.update(task, advance=done, description=visible_line(what))

    with progress:
        yield tell
