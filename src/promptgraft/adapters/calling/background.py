"""One event loop for the calls of a process, in a thread of its own."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from promptgraft.runtime.deadline import Deadline

T = TypeVar("T")
Wake = Callable[[], None]

_LONGEST_WAIT = 3600.0  # below what a lock can wait for, on any platform


class _Background:
    """The loop, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="promptgraft-calls", daemon=True
                ).start()
            return self._loop

    def forget(self) -> None:
        # A forked process has no copy of the thread, and its copy of the lock may be taken.
        self._lock = threading.Lock()
        self._loop = None


_background = _Background()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_background.forget)


def run(coroutine: Coroutine[object, object, T], *, deadline: Deadline | None = None) -> T:
    """Run ``coroutine`` in the loop of this process while the calling thread waits.

    The calling thread does not depend on the coroutine: when ``deadline`` passes or is
    cancelled, it goes on at once, and the coroutine is cancelled behind its back. Not to be
    called in the thread of the loop.

    Raises:
        RunCancelledError: somebody asked to stop.
        DeadlineExceededError: time is up.
        BaseException: whatever ``coroutine`` raised.
    """
    # Unlike an event or a condition, this queue may be put to by a signal handler that
    # interrupts the thread that waits for it.
    woken = SimpleQueue[None]()
    wake = partial(woken.put, None)
    future = asyncio.run_coroutine_threadsafe(coroutine, _background.loop())
    future.add_done_callback(lambda _: wake())
    forget = _listen(deadline, wake)
    try:
        while not future.done():
            _wait(woken, deadline)
        return future.result()
    finally:
        forget()
        future.cancel()


def _listen(deadline: Deadline | None, wake: Wake) -> Wake:
    if deadline is None or deadline.cancellation is None:
        return lambda: None
    return deadline.cancellation.listen(wake)


def _wait(woken: SimpleQueue[None], deadline: Deadline | None) -> None:
    """Wait for news, or until ``deadline``; raise when it has passed."""
    remaining = math.inf
    if deadline is not None:
        deadline.check()
        remaining = min(deadline.remaining, deadline.look_every)
    try:
        woken.get(timeout=min(remaining, _LONGEST_WAIT))
    except Empty:
        return
