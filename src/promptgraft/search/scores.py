"""Scores with gaps: a rollout that the provider failed has none."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, overload

Score = float | None
"""A score on one example; None when the rollout stayed unscored."""

Row: TypeAlias = "array[float]"
"""Scores as numbers, 8 bytes each; unscored is ``UNSCORED``."""

UNSCORED = -math.inf
"""Less than every score."""

BELOW_SCORES = -sys.float_info.max
"""The height of a cell in which nobody is scored: not equal to what stands for unscored."""


class Scores(Sequence[Score]):
    """The scores of a candidate, as large runs keep them: 8 bytes each. Equal to such a tuple.

    Attributes:
        row: the same as numbers; not to be changed.
    """

    __slots__ = ("row",)

    def __init__(self, scores: Iterable[Score]) -> None:
        self.row: Row = array("d", [UNSCORED if score is None else score for score in scores])

    def __len__(self) -> int:
        return len(self.row)

    @overload
    def __getitem__(self, place: int) -> Score: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Score, ...]: ...
    def __getitem__(self, place: int | slice) -> Score | tuple[Score, ...]:
        if isinstance(place, slice):
            return tuple(self)[place]
        score = self.row[place]
        return None if score == UNSCORED else score

    def __iter__(self) -> Iterator[Score]:
        if UNSCORED not in self.row:
            return iter(self.row)
        return (None if score == UNSCORED else score for score in self.row)

    def __contains__(self, score: object) -> bool:
        return (UNSCORED if score is None else score) in self.row

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Scores):
            return self.row == other.row
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def packed(scores: Sequence[Score]) -> Row:
    """Return scores as a row; what is one is returned as it is."""
    if isinstance(scores, array):
        return scores
    return scores.row if isinstance(scores, Scores) else Scores(scores).row


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
