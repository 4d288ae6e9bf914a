"""What a run may say of its winner: baseline and winner on examples that no choice depended on."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.evals.statistics import ANSWERS, Gain, Outcome, gain
from promptgraft.search.scores import Score, paired_means
from promptgraft.targets.types import GepaExample

LEVEL = 0.95
"""The confidence of a verdict: at most half of the rest is called improved without a gain."""

ERROR = (1 - LEVEL) / 2
"""The error of each side of its interval."""


_HARDLY = 0.1


class RunVerdict(StrEnum):
    """What a run may say of its winner."""

    IMPROVED = "improved"
    """It is better on held-out examples, and that is more than luck."""
    NOT_SHOWN = "better on validation only"
    """It is better on the validation set; on held-out examples that may be luck."""
    WORSE = "worse on held-out examples"
    """It is better on the validation set, and worse on held-out examples or a critical one."""
    NOT_CHECKED = "better on validation, not checked"
    """It is better on the validation set; nothing was measured on held-out examples."""
    NOT_IMPROVED = "not improved"
    """Nothing beat the baseline."""


@attrs.frozen(kw_only=True)
class HeldOut:
    """Baseline and winner on the held-out examples.

    Attributes:
        ids: the examples that were evaluated; all of them when nothing was.
        baseline_scores: the baseline's mean score of each example, None for unscored. Empty when
            nothing was measured.
        winner_scores: the winner's.
        spent: share of the error of the interval that the last look at the scores spends.
        rollouts: how many it took.
        is_fixed: whether examples were answered again, and always as at first.
        lost: the critical examples on which the winner is worse, those included that the gain
            does not count.
        chars: mean length of the answers of the baseline and of the winner, in characters; None
            when nothing was measured.
        why_not: why nothing was measured; empty when it was.

    Raises:
        DataFormatError: it was measured, and an example lacks a place for its two scores.
    """

    ids: tuple[str, ...]
    baseline_scores: tuple[Score, ...] = ()
    winner_scores: tuple[Score, ...] = ()
    spent: float = ERROR
    rollouts: int = 0
    is_fixed: bool = False
    lost: tuple[str, ...] = ()
    chars: tuple[float, float] | None = None
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
    def answer_length(self) -> str:
        """How the length of the answers has changed, in words; empty where it hardly has."""
        if self.chars is None or not all(self.chars):
            return ""
        before, after = self.chars
        share = after / before - 1
        if abs(share) < _HARDLY:
            return ""
        return f"{before:,.0f} -> {after:,.0f} characters ({share:+.0%})"

    @property
    def gain(self) -> Gain | None:
        """What the winner gained, with its interval; None when nothing was measured."""
        if self.why_not:
            return None
        before, after = (
            {id_: (score,) for id_, score in zip(self.ids, scores, strict=True)}
            for scores in (self.baseline_scores, self.winner_scores)
        )
        return gain(before, after, level=LEVEL, spent=self.spent)


def again_size(examples: Sequence[GepaExample]) -> int:
    """Return the rollouts that are kept to ask critical held-out examples again."""
    return 2 * (ANSWERS - 1) * sum(one.critical for one in examples)


def verdict_of(best: int, held_out: HeldOut | None) -> RunVerdict:
    """Return what may be said of candidate ``best``; 0 is the baseline."""
    if not best:
        return RunVerdict.NOT_IMPROVED
    if held_out is not None and held_out.lost:
        return RunVerdict.WORSE
    found = held_out.gain if held_out else None
    if found is None or not found.cases:
        return RunVerdict.NOT_CHECKED
    return {
        Outcome.IMPROVED: RunVerdict.IMPROVED,
        Outcome.NOT_SHOWN: RunVerdict.NOT_SHOWN,
        Outcome.WORSE: RunVerdict.WORSE,
    }[found.verdict]
