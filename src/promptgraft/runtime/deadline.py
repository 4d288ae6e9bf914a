"""A moment after which nothing new is begun."""

from __future__ import annotations

import attrs

from promptgraft.clock import Clock, SystemClock
from promptgraft.errors import ConfigError, DeadlineExceededError


@attrs.frozen(kw_only=True)
class Deadline:
    """A moment on a monotonic clock.

    Attributes:
        clock: the clock that it is read from.
        expires_at: the value of ``clock.monotonic()`` at which time is up, in seconds.
    """

    clock: Clock
    expires_at: float

    @classmethod
    def after(cls, seconds: float, *, clock: Clock | None = None) -> Deadline:
        """Return the deadline ``seconds`` from now.

        Raises:
            ConfigError: ``seconds`` is not a positive number.
        """
        if not seconds > 0:
            raise ConfigError(f"deadline: expected seconds > 0, found {seconds!r}")
        chosen = clock or SystemClock()
        return cls(clock=chosen, expires_at=chosen.monotonic() + seconds)

    @property
    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.expires_at - self.clock.monotonic())

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.remaining <= 0

    def check(self) -> None:
        """Do nothing while there is time.

        Raises:
            DeadlineExceededError: there is none left.
        """
        if self.expired:
            raise DeadlineExceededError("the deadline of the run has passed")
