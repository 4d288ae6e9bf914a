"""The clock of this machine, and what a clock is."""

from __future__ import annotations

import time
from datetime import UTC, datetime
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
