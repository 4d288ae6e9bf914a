"""Votes of several judges, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction


class Voting(StrEnum):
    """How the scores of several judges become one.

    A judge votes for an answer that reaches the threshold, and the answer passes when the one
    score reaches it.

    Attributes:
        ALL: the lowest score, so every judge has to vote for the answer.
        ANY: the highest score, so one judge is enough.
        MAJORITY: the highest score that more than half of the judges reach, so more than half
            have to vote for the answer; a tie fails.
        MEAN: the mean.
        WEIGHTED: the mean by weight.
    """

    ALL = "all"
    ANY = "any"
    MAJORITY = "majority"
    MEAN = "mean"
    WEIGHTED = "weighted"


_MEANS = (Voting.MEAN, Voting.WEIGHTED)


def score_of_votes(
    voting: Voting,
    scores: Sequence[float | None],
    *,
    threshold: float,
    weights: Sequence[float] = (),
) -> float | None:
    """Return the score that judges give together; None when they give none.

    A judge without a judgement (None) casts no vote. Means need every judge. The other schemes
    need at least one, and stand when no vote that is missing could change whether the answer
    passes; then the score is that of the votes that were cast.

    Args:
        voting: the scheme.
        scores: one for each judge, 0 to 1.
        threshold: the least score that passes.
        weights: one for each judge, above 0; for ``WEIGHTED`` only.
    """
    cast = [score for score in scores if score is not None]
    if len(cast) == len(scores):
        return _tally(voting, cast, weights)
    if not cast or voting in _MEANS:
        return None
    missing = len(scores) - len(cast)
    worst, best = (_tally(voting, [*cast, *[vote] * missing]) for vote in (0.0, 1.0))
    return _tally(voting, cast) if (worst >= threshold) == (best >= threshold) else None


def most_agreed(scores: Sequence[float]) -> int:
    """Return the position of the highest score that more than half of ``scores`` reach.

    Of equal scores it is one of the first.
    """
    ranked = sorted(range(len(scores)), key=lambda position: -scores[position])
    return scores.index(scores[ranked[len(scores) // 2]])


def weighted_share(parts: Sequence[float], weights: Sequence[float]) -> float:
    """Return the mean of ``parts`` by weight, without errors of rounding on the way."""
    exact = [Fraction(str(weight)) for weight in weights]
    total = sum(Fraction(str(part)) * weight for part, weight in zip(parts, exact, strict=True))
    return float(total / sum(exact))


def _tally(voting: Voting, scores: Sequence[float], weights: Sequence[float] = ()) -> float:
    match voting:
        case Voting.ALL:
            return min(scores)
        case Voting.ANY:
            return max(scores)
        case Voting.MAJORITY:
            return scores[most_agreed(scores)]
        case Voting.MEAN:
            return weighted_share(scores, [1.0] * len(scores))
        case Voting.WEIGHTED:
            return weighted_share(scores, weights)
