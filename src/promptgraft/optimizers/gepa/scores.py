"""Scores with gaps: a rollout that the provider failed has none."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import TypeAlias

Score = float | None
"""A score on one example; None when the rollout stayed unscored."""

Row: TypeAlias = "array[float]"
"""Scores as large runs keep them, 8 bytes each; unscored is ``UNSCORED``."""

UNSCORED = -math.inf
"""Less than every score."""


def packed(scores: Sequence[Score]) -> Row:
    """Return scores as a row; a row is returned as it is."""
    if isinstance(scores, array):
        return scores
    return array("d", [UNSCORED if score is None else score for score in scores])


def unpacked(row: Row) -> tuple[Score, ...]:
    """Return the scores of a row."""
    return tuple([None if score == UNSCORED else score for score in row])


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


def beats(scores: Sequence[Score], others: Sequence[Score]) -> bool:
    """Tell whether ``scores`` have the higher mean on the examples that both have a score for."""
    return higher(*paired_means(scores, others))
