"""Clocks: the system's, and a fake one for tests."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """The time functions that promptgraft uses."""

    def now(self) -> datetime:
        """Return the wall-clock time, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards, from an arbitrary origin."""
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
        if seconds > 0:  # `time.sleep` refuses negative values
            time.sleep(seconds)


class FakeClock:
    """A clock that moves only on request; safe to share between threads."""

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
