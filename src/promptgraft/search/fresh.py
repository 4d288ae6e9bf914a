"""What baseline and winner did on answers that the search did not choose by."""

from __future__ import annotations

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.evals.statistics import Gain, gain
from promptgraft.search.scores import Score, paired_means


@attrs.frozen(kw_only=True)
class Confirmation:
    """What baseline and winner did on fresh answers to the validation set.

    Attributes:
        candidate: the winner's position.
        baseline_mean: the baseline's mean; None when nothing was scored.
        winner_mean: the winner's.
        p_value: how often chance alone would do as well or better, 0 to 1.
        confirmed: whether that is at most the policy's level.
    """

    candidate: int
    baseline_mean: float | None
    winner_mean: float | None
    p_value: float
    confirmed: bool


@attrs.frozen(kw_only=True)
class HeldOut:
    """Baseline and winner on the held-out examples.

    Attributes:
        ids: the examples.
        baseline_scores: the baseline's scores, by example; None for unscored. Empty when
            nothing was measured.
        winner_scores: the winner's.
        why_not: why nothing was measured; empty when it was.

    Raises:
        DataFormatError: it was measured, and an example lacks a place for its two scores.
    """

    ids: tuple[str, ...]
    baseline_scores: tuple[Score, ...] = ()
    winner_scores: tuple[Score, ...] = ()
    why_not: str = ""

    def __attrs_post_init__(self) -> None:
        counts = {len(self.ids), len(self.baseline_scores), len(self.winner_scores)}
        if not self.why_not and len(counts) > 1:
            raise DataFormatError("held-out examples: expected two scores for each id")

    @property
    def baseline_mean(self) -> float | None:
        """The baseline's mean over the examples that both have a score for."""
        return paired_means(self.baseline_scores, self.winner_scores)[0]

    @property
    def winner_mean(self) -> float | None:
        """The winner's mean over the same."""
        return paired_means(self.baseline_scores, self.winner_scores)[1]

    @property
    def gain(self) -> Gain | None:
        """What the winner gained, with its 95 % interval; None when nothing was measured."""
        if self.why_not:
            return None
        before, after = (
            {id_: (score,) for id_, score in zip(self.ids, scores, strict=True)}
            for scores in (self.baseline_scores, self.winner_scores)
        )
        return gain(before, after)
