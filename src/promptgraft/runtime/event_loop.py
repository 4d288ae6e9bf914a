"""The event loop of a run, in which all coroutines run.

Users' functions may be plain or ``async``. Workers call both alike and pass the result to
:func:`awaited`, which runs an awaitable in the loop of the run while the worker waits. That loop
runs in a thread of this process, started on first use, or is the caller's if the run was started
with ``await`` (:func:`beside`).

asyncio is imported with the first coroutine, because its import takes longer than promptgraft's.
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
"""Seconds that a cancelled coroutine gets to end."""

_LOOK_EVERY = 1.0  # seconds; a loop that is closed by its owner does not wake waiters


@attrs.frozen(eq=False)
class RunLoop:
    """An event loop and the identifier of the thread that runs it."""

    loop: asyncio.AbstractEventLoop
    thread: int

    def check_thread(self) -> None:
        """Raise a ``CallerError`` in the thread of the loop, which would deadlock."""
        if threading.get_ident() == self.thread:
            raise CallerError(
                "a plain function that waits for the event loop of the run was called by a "
                "coroutine in this loop, and would wait forever; call it with "
                "`await asyncio.to_thread(...)`"
            )


class _ProcessLoop:
    """The loop of this process, started on first use."""

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
        # A forked child has no such thread, and its copy of the lock may be held.
        self._lock = threading.Lock()
        self.started = None
        _chosen.set(None)


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        # A coroutine that raises these stops the loop too; the waiter gets them from its task.
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            loop.run_forever()


_chosen = contextvars.ContextVar[RunLoop | None]("promptgraft_loop", default=None)
_process = _ProcessLoop()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.forget)


def of_new_run() -> RunLoop | None:
    """Return the loop of a run that begins here; None stands for the loop of the process.

    Raises ``CallerError`` in the thread of the loop of the process, which the run would block.
    """
    check_may_wait()
    loop = _chosen.get()
    # A run in the thread of its caller's loop blocks that loop, so it needs another one.
    return None if loop is None or loop.thread == threading.get_ident() else loop


def check_may_wait() -> None:
    """Raise a ``CallerError`` in the thread of the process loop: a waiting run would block it."""
    if _process.started is not None:
        _process.started.check_thread()


_last: set[Future[None]] = set()


def finish(work: Future[None]) -> None:
    """Delay the exit of the process until ``work`` is done, by at most ``GRACE`` seconds."""
    _last.add(work)
    work.add_done_callback(_last.discard)


@atexit.register
def _wait_for_the_last() -> None:
    wait(set(_last), timeout=GRACE)


def call_in(loop: RunLoop | None, call: Callable[[], T]) -> T:
    """Make ``call`` with ``loop`` as the loop of :func:`awaited`; None for the process loop."""
    token = _chosen.set(loop)
    try:
        return call()
    finally:
        _chosen.reset(token)


def awaited(value: T | Awaitable[T], *, deadline: Deadline | None = None) -> T:
    """Return the result of an awaitable, run in the loop of the run; any other value unchanged.

    Raises what the awaitable and :func:`run` raise, and ``CallerError`` when the loop is closed.
    """
    if not isinstance(value, Awaitable):
        return value

    async def awaiting() -> T:
        return await value

    # Only a coroutine can become a task.
    coroutine = value if isinstance(value, Coroutine) else awaiting()
    result: T = run(coroutine, deadline=deadline, loop=_chosen.get())
    return result


def run(
    coroutine: Coroutine[object, object, T],
    *,
    deadline: Deadline | None = None,
    loop: RunLoop | None = None,
) -> T:
    """Run ``coroutine`` in ``loop``, by default that of this process, and wait for its result.

    When ``deadline`` expires, the coroutine is cancelled. The error of ``deadline`` is raised when
    the coroutine has ended, or after ``GRACE`` seconds.

    Raises whatever ``coroutine`` raises, and ``CallerError`` in the thread of the loop.
    """
    loop_chosen = loop or _process.get()
    call = _LoopCall(coroutine, loop_chosen.loop)
    try:
        loop_chosen.check_thread()
        if deadline is not None:
            deadline.check()
        loop_chosen.loop.call_soon_threadsafe(call.begin)
    except PromptgraftError:
        coroutine.close()  # or Python warns that it was never awaited
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
        # After an error or Ctrl-C here, the coroutine must not go on without a waiter.
        call.cancel()


_CLOSED = "the event loop of the run was closed before the run had ended; await the run"


class CancelledElsewhereError(CallerError):
    """A coroutine was cancelled by the user's code: by itself, or by another task."""


class _LoopCall(Generic[T]):
    """A coroutine in a loop, seen from the thread that waits for it."""

    def __init__(
        self, coroutine: Coroutine[object, object, T], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._task: asyncio.Task[T] | None = None
        # Unlike an event or a condition, a SimpleQueue is reentrant: a signal handler may put to it
        # while it interrupts the waiting thread.
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
        """Wait for the task to end or something to wake this; fail if the loop was closed."""
        with contextlib.suppress(Empty):
            self._woken.get(timeout=seconds)
        if self._loop.is_closed() and not self.has_ended():
            raise CallerError(_CLOSED)

    def result(self) -> T:
        assert self._task is not None  # noqa: S101 - it has ended
        # Not raised as it is: `CancelledError` is no `Exception`, and handlers would miss it.
        if self._task.cancelled():
            raise CancelledElsewhereError(
                "a coroutine of the run was cancelled by something other than the run"
            )
        return self._task.result()

    def cancel(self) -> None:
        """Cancel the task unless it has ended, and wait up to ``GRACE`` seconds for its end."""
        if self.has_ended() or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._cancel)
        grace = Deadline.after(GRACE)
        while not self.has_ended() and not grace.expired:
            self.wait(min(grace.remaining, _LOOK_EVERY))

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Make ``call`` in a new thread, in the current context, for a coroutine to await."""
    import asyncio

    # Not in the loop's own executor: its few threads may all wait for calls that need another one.
    executor = ThreadPoolExecutor(1, thread_name_prefix="promptgraft-run")
    context = contextvars.copy_context()
    ended = asyncio.get_running_loop().run_in_executor(executor, context.run, call)
    executor.shutdown(wait=False)  # waiting would block the loop; the thread ends with the call
    return ended


async def beside(call: Callable[[], T], *, stop: Cancellation) -> T:
    """Make ``call`` in a new thread, with the running loop as the loop of its run.

    When the awaiting task is cancelled, ``stop`` is set, and the task ends when the call has.
    """
    import asyncio

    token = _chosen.set(RunLoop(asyncio.get_running_loop(), threading.get_ident()))
    try:
        ended = in_thread(call)
    finally:
        _chosen.reset(token)
    cancelled: asyncio.CancelledError | None = None
    while not ended.done():
        try:
            # Jupyter cancels the task of a cell in a signal handler, which wakes no loop.
            await asyncio.wait((ended,), timeout=_LOOK_EVERY)
        except asyncio.CancelledError as error:
            cancelled = error
            stop.set("the task that awaits the run was cancelled")
    if cancelled is not None:
        # Retrieved, or asyncio would log that it never was.
        ended.exception()
        raise cancelled
    return ended.result()
