"""Bounded waiting for work in other threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from promptgraft.runtime.deadline import GRACE, LONGEST_WAIT, Deadline

T = TypeVar("T")


def as_ended(futures: Iterable[Future[T]], deadline: Deadline | None) -> Iterator[Future[T]]:
    """Yield futures as they end.

    After the deadline, or when the run is cancelled, futures that have not begun are cancelled, and
    those that do not end within ``GRACE`` seconds are abandoned.
    """
    waiting = set(futures)
    # Reentrant: a signal handler that sets the cancellation in this thread puts to it.
    ended: SimpleQueue[Future[T] | None] = SimpleQueue()
    cancellation = deadline.cancellation if deadline is not None else None
    # None wakes the waiter, which then looks at the deadline.
    undo = cancellation.listen(lambda: ended.put(None)) if cancellation is not None else None
    try:
        for future in tuple(waiting):
            future.add_done_callback(ended.put)
        limit, is_grace = deadline, False
        while waiting:
            ended_future = _next(ended, limit)
            if ended_future is not None:
                waiting.discard(ended_future)
                yield ended_future
            elif limit is not None and limit.expired:
                if is_grace:
                    break
                for future in tuple(waiting):
                    future.cancel()
                # Without the cancellation, which would end the grace at once.
                limit, is_grace = Deadline.after(GRACE), True
    finally:
        if undo is not None:
            undo()


def _next(ended: SimpleQueue[Future[T] | None], deadline: Deadline | None) -> Future[T] | None:
    # Finite, because a queue refuses an infinite timeout.
    seconds = LONGEST_WAIT
    if deadline is not None:
        seconds = min(seconds, deadline.remaining, deadline.look_every)
    try:
        return ended.get(timeout=seconds)
    except Empty:
        return None
