"""When so many rollouts stay unscored that a run must stop."""

from __future__ import annotations

from collections.abc import Sequence

UNSCORED_ALLOWANCE = 4
"""Rollouts that may stay unscored on top of the share, in any stretch of a run."""


class FaultyStretch:
    """The latest rollouts of a run, from where its unscored ones began to exceed their share.

    A run continues while, in every stretch of it, at most ``share`` of the rollouts and
    ``UNSCORED_ALLOWANCE`` more are unscored. So one fault says nothing in a small batch, and a
    provider that dies after a thousand good rollouts is noticed as soon as one that never lived.
    It is enough to watch one stretch: no other one that ends here is worse. A share of 0 has no
    allowance: the first fault is too many.

    Args:
        share: share of the rollouts that may stay unscored, 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._allowance = UNSCORED_ALLOWANCE if share else 0
        self.unscored = 0
        self.rollouts = 0

    def copy(self) -> FaultyStretch:
        """Return an independent copy."""
        stretch = FaultyStretch(self._share)
        stretch.unscored, stretch.rollouts = self.unscored, self.rollouts
        return stretch

    def add(self, faults: Sequence[bool]) -> None:
        """Add rollouts in the order in which the run asked for them; True is unscored."""
        if not self.unscored and True not in faults:
            return
        for fault in faults:
            self.rollouts += 1
            self.unscored += fault
            if self.unscored <= self._share * self.rollouts:
                self.unscored = self.rollouts = 0

    @property
    def is_too_faulty(self) -> bool:
        """Whether more rollouts of the stretch are unscored than share and allowance permit."""
        return self.unscored > self._share * self.rollouts + self._allowance
