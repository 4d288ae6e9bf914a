"""Scores with gaps: a rollout that the provider failed has none."""

from __future__ import annotations

from collections.abc import Sequence

Score = float | None
"""A score on one example; None when the rollout stayed unscored."""


def mean_score(scores: Sequence[Score]) -> Score:
    """Return the mean of the scores that there are; None when there are none."""
    scored = [score for score in scores if score is not None]
    return sum(scored) / len(scored) if scored else None


def is_estimate(mean: Score, scores: Sequence[Score]) -> bool:
    """Tell whether a mean only estimates that over all examples: some have no score."""
    return mean is not None and None in scores


def higher(one: Score, other: Score) -> bool:
    """Tell whether ``one`` is more than ``other``; unscored is the least."""
    return one is not None and (other is None or one > other)


def paired_means(scores: Sequence[Score], others: Sequence[Score]) -> tuple[Score, Score]:
    """Return both means over the places for which both have a score; None when there are none."""
    pairs = [
        (score, other)
        for score, other in zip(scores, others, strict=True)
        if score is not None and other is not None
    ]
    return mean_score([score for score, _ in pairs]), mean_score([other for _, other in pairs])


def paired_gains(before: Sequence[Score], after: Sequence[Score]) -> list[float]:
    """Return how far ``after`` is above ``before`` in the places for which both have a score."""
    pairs = zip(before, after, strict=True)
    return [other - one for one, other in pairs if one is not None and other is not None]


def beats(scores: Sequence[Score], others: Sequence[Score]) -> bool:
    """Tell whether ``scores`` have the higher mean on the examples that both have a score for."""
    return higher(*paired_means(scores, others))
