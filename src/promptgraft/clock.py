"""Time and fresh identifiers, injectable so that tests decide both."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

IdFactory = Callable[[], str]
"""Returns an identifier that it has not returned before."""


class Clock(Protocol):
    """What promptgraft needs to know about time."""

    def now(self) -> datetime:
        """Return the wall-clock time, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never run backwards; the origin is arbitrary."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``; zero or less returns at once."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)


class FakeClock:
    """A clock that moves only when it is told to; safe to share between threads."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self._lock = threading.Lock()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        with self._lock:
            return self._elapsed

    def sleep(self, seconds: float) -> None:
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Move the clock forward; negative values and NaN are refused with ``ValueError``."""
        if not seconds >= 0:
            raise ValueError(f"a clock cannot go back; expected seconds >= 0, found {seconds!r}")
        with self._lock:
            self._elapsed += seconds


def random_id() -> str:
    """Return 32 random hexadecimal digits."""
    return uuid.uuid4().hex


def sequential_ids(prefix: str = "id") -> IdFactory:
    """Return a factory of ``prefix-1``, ``prefix-2``, ...; for tests and replays."""
    lock = threading.Lock()
    count = 0

    def next_id() -> str:
        nonlocal count
        with lock:
            count += 1
            return f"{prefix}-{count}"

    return next_id
