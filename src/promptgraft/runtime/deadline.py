"""A moment after which nothing new is begun, and waiting for work without outstaying it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

import attrs

from promptgraft.clock import Clock, SystemClock
from promptgraft.errors import ConfigError, DeadlineExceededError
from promptgraft.runtime.cancellation import Cancellation


@attrs.frozen(kw_only=True)
class Deadline:
    """A point in time on a monotonic clock, which a cancellation brings forward.

    Attributes:
        clock: the clock that it is read from.
        expires_at: the value of ``clock.monotonic()`` at which time is up, in seconds;
            infinite when there is no such moment.
        cancellation: ends the time early; None if nothing can.
    """

    clock: Clock = attrs.field(factory=SystemClock)
    expires_at: float = math.inf
    cancellation: Cancellation | None = None

    @classmethod
    def after(cls, seconds: float, *, clock: Clock | None = None) -> Deadline:
        """Return the deadline ``seconds`` from now, which must be above 0."""
        if not seconds > 0:
            raise ConfigError(f"deadline: expected seconds > 0, found {seconds!r}")
        chosen = clock or SystemClock()
        return cls(clock=chosen, expires_at=chosen.monotonic() + seconds)

    def __reduce__(self) -> tuple[Callable[[Clock, float], Deadline], tuple[Clock, float]]:
        # Another machine has another clock, and a cancellation stays in its process.
        return _in_seconds, (self.clock, self.remaining)

    @property
    def remaining(self) -> float:
        """Seconds left, never negative; infinite without a moment."""
        if self.cancellation is not None and self.cancellation.is_set:
            return 0.0
        return max(0.0, self.expires_at - self.clock.monotonic())

    @property
    def look_every(self) -> float:
        """Seconds after which a waiting caller checks again, even if ``remaining`` is more."""
        return math.inf if self.cancellation is None else self.cancellation.look_every

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.remaining <= 0

    def check(self) -> None:
        """Raise ``RunCancelledError`` or ``DeadlineExceededError`` when there is no time left."""
        if self.cancellation is not None:
            self.cancellation.check()
        # Not `expired`: a run that is cancelled from here on has not outlived its deadline.
        if self.clock.monotonic() >= self.expires_at:
            raise DeadlineExceededError("the deadline of the run has passed")


def _in_seconds(clock: Clock, seconds: float) -> Deadline:
    return Deadline(clock=clock, expires_at=clock.monotonic() + seconds)


T = TypeVar("T")

GRACE = 1.0
"""Seconds that work in flight is given to end once the time is up."""

LONGEST_WAIT = 3600.0
"""Seconds; without a deadline, a wait is begun again so often."""


def as_ended(futures: Iterable[Future[T]], deadline: Deadline | None) -> Iterator[Future[T]]:
    """Yield futures as they end.

    Once the deadline has passed or its run is cancelled, what has not begun is cancelled, and what
    does not end within ``GRACE`` seconds is left behind.
    """
    waiting = set(futures)
    ended: SimpleQueue[Future[T] | None] = SimpleQueue()
    cancellation = deadline.cancellation if deadline is not None else None
    undo = cancellation.listen(lambda: ended.put(None)) if cancellation is not None else None
    try:
        for future in tuple(waiting):
            future.add_done_callback(ended.put)
        left, is_grace = deadline, False
        while waiting:
            found = _next(ended, left)
            if found is not None:
                waiting.discard(found)
                yield found
            elif left is not None and left.expired:
                if is_grace:
                    break
                for future in tuple(waiting):
                    future.cancel()
                left, is_grace = Deadline.after(GRACE), True
    finally:
        if undo is not None:
            undo()


def _next(ended: SimpleQueue[Future[T] | None], deadline: Deadline | None) -> Future[T] | None:
    seconds = LONGEST_WAIT
    if deadline is not None:
        seconds = min(seconds, deadline.remaining, deadline.look_every)
    try:
        return ended.get(timeout=seconds)
    except Empty:
        return None
