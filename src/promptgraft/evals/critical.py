"""Whether a case that must not get worse did, however much its answers vary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

ANSWERS = 3
"""How often a critical case is answered before a lower score counts."""

# Student's quantile at 99 %, by degrees of freedom; with more the last one is on the safe side.
_STUDENT = (31.82, 6.965, 4.541, 3.747, 3.365)
_FUZZ = 1e-9


def is_lost(before: Sequence[float], after: Sequence[float], *, runs: int | None = None) -> bool:
    """Return whether a case scores lower than before by more than its answers vary.

    Answers that are all alike vary by nothing: then any lower score counts. Otherwise the means
    are compared by a t test at 1 % with the larger of both standard deviations.

    Args:
        before: the scores that the case had; at least one.
        after: the scores that it has now; at least one.
        runs: how many answers ``before`` is the mean of; None when they stand there one by one.
    """
    spread = max(stdev(side) if len(side) > 1 else 0.0 for side in (before, after))
    freedom = max(1, min(len(_STUDENT), max(len(before), len(after)) - 1))
    scale = math.sqrt(1 / (runs or len(before)) + 1 / len(after))
    return fmean(before) - fmean(after) > _STUDENT[freedom - 1] * spread * scale + _FUZZ


def is_settled(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether nothing needs to be asked again before a case counts as lost or not."""
    return len(after) >= ANSWERS or max(after) >= fmean(before) - _FUZZ
