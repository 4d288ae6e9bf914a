"""The chance that a search gains more, from what its leaders scored.

Learning is assumed to slow down: the gain that is still to come at ``t`` rollouts is the whole gain
times ``(1 + t / 3p) ** -3``. The scores of the leaders decide which gains and which paces ``p`` are
probable, and the chance of more is averaged over them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean

import attrs

_PACES = 24
"""Paces that are tried, equally probable before the run, from the fastest to the whole search."""
_FASTEST = 1 / 64
"""The fastest pace, as a share of the search."""
_TOTAL_GAIN = 0.5
"""Standard deviation of the whole gain before the run, around 0."""
_LEVEL_PRECISION = 0.01
"""Precision of the final score before the run, around 0.5: next to nothing is known of it."""
_PRIOR_SQUARES = 0.5
"""Squared deviations of scores before the run; with two more degrees of freedom, a variance."""
_LEAST_VARIANCE = 0.02
"""Of a score: leaders whose scores are all equal are still not certain."""


@attrs.frozen
class Leader:
    """A candidate that was or is the best one.

    Attributes:
        rollouts: what the run had used when it took the lead.
        scores: its scores on the validation set; None for examples without one.
    """

    rollouts: int
    scores: Sequence[float | None]


def chance_of_first(failed: int, remaining: float) -> float:
    """Return the chance that a prompt which nothing has improved yet will be improved.

    Before the run it is even odds that the prompt can be improved at all, and if so, every share
    of successful proposals is equally probable.

    Args:
        failed: proposals that were not better, at least 1.
        remaining: proposals that are still to come, as a multiple of those.
    """
    can_be_improved = 1 / (failed + 2)
    return can_be_improved * failed * remaining / (failed * (1 + remaining) + 1)


def chance_of_more(leaders: Sequence[Leader], now: int, end: int, gain: float) -> float:
    """Return the chance that the score rises by another ``gain``.

    Args:
        leaders: the candidates that led, in order.
        now: rollouts so far.
        end: rollouts at the end of the search.
        gain: a gain in mean score.
    """
    points = _points(leaders, now)
    weights: list[float] = []
    chances: list[float] = []
    for index in range(_PACES):
        pace = end * math.pow(_FASTEST, 1 - index / (_PACES - 1))
        evidence, total, error = _fit(points, pace)
        share = _to_come(now / pace) - _to_come(end / pace)
        chances.append(1 - NormalDist(share * total, share * error).cdf(gain))
        weights.append(evidence)
    most = max(weights)
    weights = [math.exp(weight - most) for weight in weights]
    pairs = zip(weights, chances, strict=True)
    return sum(weight * chance for weight, chance in pairs) / sum(weights)


def _to_come(time: float) -> float:
    """Return the share of the whole gain that is still to come; ``time`` is in paces."""
    return (1 + time / 3) ** -3


def _points(leaders: Sequence[Leader], now: int) -> list[tuple[float, float, float]]:
    """Return when a leader took the lead, its mean, and the precision of that."""
    scores = [[score for score in leader.scores if score is not None] for leader in leaders]
    rows = zip(leaders, scores, strict=True)
    scored = [(leader.rollouts, fmean(row), row) for leader, row in rows if row]
    squares = sum((score - mean) ** 2 for _, mean, row in scored for score in row)
    degrees_of_freedom = sum(len(row) - 1 for _, _, row in scored)
    # The prior keeps a few equal scores from looking certain.
    variance = max((squares + _PRIOR_SQUARES) / (degrees_of_freedom + 2), _LEAST_VARIANCE)
    points = [(rollouts, mean, len(row) / variance) for rollouts, mean, row in scored]
    # The last leader still leads, so nothing has been gained since.
    return [*points, *((float(now), mean, precision) for _, mean, precision in points[-1:])]


def _fit(points: Sequence[tuple[float, float, float]], pace: float) -> tuple[float, float, float]:
    """Return how well a pace explains the points, and the whole gain with its standard error.

    Weighted least squares of the final score and the whole gain, with weak normal priors.
    """
    finals, mixed, gains = _LEVEL_PRECISION, 0.0, _TOTAL_GAIN**-2
    to_final, to_gain, squares = _LEVEL_PRECISION / 2, 0.0, _LEVEL_PRECISION / 4
    for time, score, precision in points:
        missing = -_to_come(time / pace)
        finals += precision
        mixed += precision * missing
        gains += precision * missing * missing
        to_final += precision * score
        to_gain += precision * missing * score
        squares += precision * score * score
    determinant = finals * gains - mixed * mixed
    final = (gains * to_final - mixed * to_gain) / determinant
    total = (finals * to_gain - mixed * to_final) / determinant
    misfit = squares - final * to_final - total * to_gain
    evidence = -(misfit + math.log(determinant)) / 2
    return evidence, total, math.sqrt(finals / determinant)
