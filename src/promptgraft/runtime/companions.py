"""Calls of users' plain functions, in threads that neither a deadline nor the exit waits for."""

from __future__ import annotations

import contextvars
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar, cast

from promptgraft.ground.under_way import doing
from promptgraft.runtime.deadline import LONGEST_WAIT, Deadline
from promptgraft.runtime.event_loop import awaited

T = TypeVar("T")

_Call: TypeAlias = "tuple[Future[object], Callable[[], object]]"

_logger = logging.getLogger("promptgraft")
_TOLD_AFTER = 30.0  # seconds, then a user is told which call is waited for


class _Companion:
    """A thread that makes the calls of another one; it ends with that."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        threading.Thread(
            target=_make_calls, args=(self._calls,), name="promptgraft-function", daemon=True
        ).start()

    def __del__(self) -> None:
        self._calls.put(None)

    def begin(self, call: Callable[[], object]) -> Future[object]:
        future: Future[object] = Future()
        self._calls.put((future, call))
        return future


def _make_calls(calls: SimpleQueue[_Call | None]) -> None:
    while (waiting := calls.get()) is not None:
        future, call = waiting
        try:
            outcome = call()
        except BaseException as error:  # noqa: BLE001 - raised where the outcome is read
            future.set_exception(error)
        else:
            future.set_result(outcome)
        del waiting, future, call  # or they would stay alive until the next call


class _OfThread(threading.local):
    companion: _Companion | None = None


_of_thread = _OfThread()


def interruptible(call: Callable[[], T], what: str, deadline: Deadline | None) -> T:
    """Return the result of a call, and wait for it until the deadline only.

    It is made in a thread beside the current one, always the same unless it hangs. In the main
    thread, where connections and windows may belong, it is made at once if nothing limits its time.

    The deadline ends the wait, and the function goes on; ``what`` it does is for messages.

    Raises:
        LimitReachedError: the deadline has passed, or the run was cancelled.
    """

    def noted() -> T:
        with doing(what):
            return call()

    ends = deadline or Deadline()
    if threading.current_thread() is threading.main_thread() and math.isinf(ends.expires_at):
        return noted()
    ends.check()
    if _of_thread.companion is None or _of_thread.companion.process != os.getpid():
        _of_thread.companion = _Companion()  # in no variable, which a traceback would keep
    context = contextvars.copy_context()
    future = _of_thread.companion.begin(lambda: context.run(noted))
    try:
        _wait(future, what, ends)
    finally:
        if not future.done():
            _of_thread.companion = None  # it hangs, or Ctrl-C has ended the wait
            future.add_done_callback(_drop)
    if not future.done():
        ends.check()
    return cast("T", future.result())


def _drop(future: Future[object]) -> None:
    if future.exception() is None and isinstance(value := future.result(), Coroutine):
        value.close()  # or Python warns that it was never awaited


def result_of(call: Callable[[], object], what: str, deadline: Deadline | None) -> Any:
    """Return the result of a function of a user, plain or ``async``; see :func:`interruptible`."""
    outcome = interruptible(call, what, deadline)
    with doing(what):
        return awaited(outcome, deadline=deadline)


def _wait(future: Future[object], what: str, ends: Deadline) -> None:
    """Wait until a call or the time has ended, and say which call it is that takes long."""
    woken = threading.Event()
    future.add_done_callback(lambda _: woken.set())
    undo = ends.cancellation.listen(woken.set) if ends.cancellation is not None else None
    began, told_after = time.monotonic(), _TOLD_AFTER
    try:
        while not future.done() and (left := ends.remaining) > 0:
            seconds = time.monotonic() - began
            if seconds >= told_after:
                _logger.warning("still at work on %s for %.0f s", what, seconds)
                told_after *= 4
            woken.wait(min(left, ends.look_every, told_after - seconds, LONGEST_WAIT))
    finally:
        if undo is not None:
            undo()
