"""Waiting for work that runs side by side, without outstaying a deadline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from promptgraft.runtime.deadline import Deadline

T = TypeVar("T")

GRACE = 1.0
"""Seconds that work in flight is given to end once the time is up."""


LONGEST_WAIT = 3600.0


def as_ended(futures: Iterable[Future[T]], deadline: Deadline | None) -> Iterator[Future[T]]:
    """Yield futures as they end.

    Once the deadline has passed or its run is cancelled, what has not begun is cancelled, and
    what does not end within ``GRACE`` seconds is left behind.
    """
    waiting = set(futures)
    ended: SimpleQueue[Future[T] | None] = SimpleQueue()
    cancellation = deadline.cancellation if deadline is not None else None
    undo = cancellation.listen(lambda: ended.put(None)) if cancellation is not None else None
    try:
        for future in tuple(waiting):
            future.add_done_callback(ended.put)
        while waiting:
            found = _next(ended, deadline)
            if found is not None:
                waiting.discard(found)
                yield found
            elif deadline is not None and deadline.expired:
                break
        yield from _last(waiting, ended)
    finally:
        if undo is not None:
            undo()


def _next(ended: SimpleQueue[Future[T] | None], deadline: Deadline | None) -> Future[T] | None:
    left = LONGEST_WAIT
    if deadline is not None:
        left = min(left, deadline.remaining, deadline.look_every)
    try:
        return ended.get(timeout=left)
    except Empty:
        return None


def _last(waiting: set[Future[T]], ended: SimpleQueue[Future[T] | None]) -> Iterator[Future[T]]:
    for future in tuple(waiting):
        future.cancel()
    grace = Deadline.after(GRACE)
    while waiting and not grace.expired:
        found = _next(ended, grace)
        if found is not None:
            waiting.discard(found)
            yield found
