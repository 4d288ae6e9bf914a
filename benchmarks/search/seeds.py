"""The mean difference of two methods over seeds, with an interval that follows its spread."""

from __future__ import annotations

import random
from collections.abc import Sequence

import attrs

_SUBSETS = 9_999
_LEVEL = 0.95


@attrs.frozen(kw_only=True)
class Difference:
    """How much more one method reaches than another.

    Attributes:
        mean: over the seeds.
        low: the lower end of its 95 % interval, and ``high`` the upper one.
    """

    mean: float
    low: float
    high: float

    @property
    def word(self) -> str:
        """On which side of 0 the interval lies."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "same"

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def difference(before: Sequence[float], after: Sequence[float]) -> Difference:
    """Return how much more ``after`` is, seed by seed.

    The ends are ranks among the means of random subsets of the differences (Hartigan 1969), so
    that the interval holds what the sign-flip test does not reject. It supposes that differences
    lie symmetrically around their mean, which a gain on unknown cases must not.
    """
    gains = [two - one for one, two in zip(before, after, strict=True)]
    chance = random.Random(0)
    means: list[float] = []
    while len(means) < _SUBSETS:
        if chosen := [gain for gain in gains if chance.random() < 0.5]:
            means.append(sum(chosen) / len(chosen))
    means.sort()
    rank = int((1 - _LEVEL) / 2 * (_SUBSETS + 1))
    return Difference(mean=sum(gains) / len(gains), low=means[rank - 1], high=means[-rank])
