"""The event loop of a run: the one place where coroutines are run to their end.

What users write may be plain or ``async``. Workers call it in either case and pass the result to
:func:`awaited`, which runs an awaitable in the loop of the run while the worker waits. That is a
loop in a thread of this process, started when it is first needed, or, for a run that was begun with
``await``, the loop of the caller (:func:`beside`).

asyncio is imported with the first coroutine: its import takes longer than that of promptgraft.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs

from promptgraft.errors import CallerError, PromptgraftError
from promptgraft.runtime.deadline import Cancellation, Deadline

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

GRACE = 0.5
"""Seconds that a cancelled coroutine is given to end."""

_LOOK_EVERY = 1.0  # seconds; a loop that its owner closes wakes no waiter


@attrs.frozen(eq=False)
class RunLoop:
    """An event loop that runs in the thread with this identifier."""

    loop: asyncio.AbstractEventLoop
    thread: int

    def check_thread(self) -> None:
        """Raise a ``CallerError`` in the thread of the loop, which would wait for itself."""
        if threading.get_ident() == self.thread:
            raise CallerError(
                "a plain function that waits for the event loop of the run was called by a "
                "coroutine in this loop, and would wait for ever; call it with "
                "`await asyncio.to_thread(...)`"
            )


class _ProcessLoop:
    """The loop of this process, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.started: RunLoop | None = None

    def get(self) -> RunLoop:
        import asyncio

        with self._lock:
            if self.started is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=_run_forever, args=(loop,), name="promptgraft-loop", daemon=True
                )
                thread.start()
                self.started = RunLoop(loop, thread.ident or 0)
            return self.started

    def forget(self) -> None:
        # A forked process has no copy of the thread, and its copy of the lock may be taken.
        self._lock = threading.Lock()
        self.started = None
        _chosen.set(None)


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        # Raised by a coroutine, these leave the loop as well; its task hands them to the waiter.
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            loop.run_forever()


_chosen = contextvars.ContextVar[RunLoop | None]("promptgraft_loop", default=None)
_process = _ProcessLoop()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.forget)


def of_new_run() -> RunLoop | None:
    """Return the loop of a run that begins here; None for the loop of the process.

    Raises ``CallerError`` in the thread of the loop of the process, which the run would need.
    """
    check_may_wait()
    found = _chosen.get()
    return None if found is None or found.thread == threading.get_ident() else found


def check_may_wait() -> None:
    """Raise a ``CallerError`` in the thread of the loop of the process, which workers may need."""
    if _process.started is not None:
        _process.started.check_thread()


_last: set[Future[None]] = set()


def finish(work: Future[None]) -> None:
    """Let the process end only once ``work`` is done in its loop, or ``GRACE`` seconds later."""
    _last.add(work)
    work.add_done_callback(_last.discard)


@atexit.register
def _wait_for_the_last() -> None:
    wait(set(_last), timeout=GRACE)


def call_in(loop: RunLoop | None, call: Callable[[], T]) -> T:
    """Make ``call`` with ``loop`` as the one that :func:`awaited` uses; None for the process's."""
    token = _chosen.set(loop)
    try:
        return call()
    finally:
        _chosen.reset(token)


def awaited(value: T | Awaitable[T], *, deadline: Deadline | None = None) -> T:
    """Return the result of an awaitable, run in the loop of the run; any other value as it is.

    Raises what the awaitable and :func:`run` raise, and ``CallerError`` when the loop was closed.
    """
    if not isinstance(value, Awaitable):
        return value

    async def awaiting() -> T:
        return await value

    coroutine = value if isinstance(value, Coroutine) else awaiting()
    result: T = run(coroutine, deadline=deadline, loop=_chosen.get())
    return result


def run(
    coroutine: Coroutine[object, object, T],
    *,
    deadline: Deadline | None = None,
    loop: RunLoop | None = None,
) -> T:
    """Run ``coroutine`` in ``loop``, by default that of this process, while the caller waits.

    When ``deadline`` passes or is cancelled, the coroutine is cancelled, and the calling thread
    continues with the error of ``deadline`` once it has ended, after ``GRACE`` seconds at the
    latest.

    Raises whatever ``coroutine`` raises, and ``CallerError`` in the thread of the loop.
    """
    found = loop or _process.get()
    call = _Call(coroutine, found.loop)
    try:
        found.check_thread()
        if deadline is not None:
            deadline.check()
        found.loop.call_soon_threadsafe(call.begin)
    except PromptgraftError:
        coroutine.close()
        raise
    except RuntimeError:
        coroutine.close()
        raise CallerError(_CLOSED) from None
    cancellation = None if deadline is None else deadline.cancellation
    undo = None if cancellation is None else cancellation.listen(call.wake)
    try:
        while not call.has_ended():
            seconds = _LOOK_EVERY
            if deadline is not None:
                deadline.check()
                seconds = min(seconds, deadline.remaining, deadline.look_every)
            call.wait(seconds)
        return call.result()
    finally:
        if undo is not None:
            undo()
        call.cancel()


_CLOSED = "the event loop of the run was closed before the run had ended; await the run"


class _Call(Generic[T]):
    """A coroutine in a loop, as seen by the thread that waits for it."""

    def __init__(
        self, coroutine: Coroutine[object, object, T], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._task: asyncio.Task[T] | None = None
        # Unlike an event or a condition, this queue may be put to by a signal handler that
        # interrupts the thread that waits for it.
        self._woken = SimpleQueue[None]()
        self.wake: Callable[[], None] = partial(self._woken.put, None)

    def begin(self) -> None:
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._note)

    def _note(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # asyncio logs exceptions that were never retrieved
        self.wake()

    def has_ended(self) -> bool:
        return self._task is not None and self._task.done()

    def wait(self, seconds: float) -> None:
        """Wait for news, of which there are none once the loop is closed."""
        with contextlib.suppress(Empty):
            self._woken.get(timeout=seconds)
        if self._loop.is_closed() and not self.has_ended():
            raise CallerError(_CLOSED)

    def result(self) -> T:
        assert self._task is not None  # noqa: S101 - it has ended
        if self._task.cancelled():
            raise CallerError("a coroutine of the run was cancelled by something else than the run")
        return self._task.result()

    def cancel(self) -> None:
        """Cancel it unless it has ended, and give it time to end."""
        if self.has_ended() or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._cancel)
        grace = Deadline.after(GRACE)
        while not self.has_ended() and not grace.expired:
            self.wait(min(grace.remaining, _LOOK_EVERY))

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


async def beside(call: Callable[[], T], *, stop: Cancellation) -> T:
    """Make ``call`` in a thread of its own, with the running loop as the loop of its run.

    When the awaiting task is cancelled, ``stop`` is set, and the task ends once the call has.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    context.run(_chosen.set, RunLoop(loop, threading.get_ident()))
    # Not the loop's own executor: coroutines of the run may wait for that one.
    executor = ThreadPoolExecutor(1, thread_name_prefix="promptgraft-run")
    ended = loop.run_in_executor(executor, context.run, call)
    executor.shutdown(wait=False)
    cancelled: asyncio.CancelledError | None = None
    while not ended.done():
        try:
            await asyncio.wait((ended,))
        except asyncio.CancelledError as error:
            cancelled = error
            stop.set("the task that awaits the run was cancelled")
    if cancelled is not None:
        ended.exception()
        raise cancelled
    return ended.result()
