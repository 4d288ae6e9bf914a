"""What a run may say of its winner: baseline and winner on examples that no choice depended on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.evals.metrics.base import ends_case, is_required
from promptgraft.evals.statistics import ANSWERS, Gain, Outcome, gain
from promptgraft.frozenmap import FrozenMap
from promptgraft.search.scores import Score, paired_means
from promptgraft.serde import Json
from promptgraft.targets.judging import metrics_of
from promptgraft.targets.types import FeedbackFn, GepaExample, RolloutRecord

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


@attrs.frozen(kw_only=True)
class Figures:
    """What metrics say of answers to several examples.

    Attributes:
        pass_rate: the share of the answers with a score that every required metric passes; None
            where there is none, or no metric.
        means: the mean score of each metric; an answer that could not be judged counts as 0.
    """

    pass_rate: float | None = None
    means: Mapping[str, float] = FrozenMap()


NO_FIGURES = Figures()


@attrs.frozen(kw_only=True)
class Passing:
    """The metrics of a run, as far as they say which answers pass.

    Attributes:
        thresholds: the least score that passes, by metric; empty where no metrics judge.
        required: the metrics that an answer has to pass.
    """

    thresholds: Mapping[str, float] = FrozenMap()
    required: frozenset[str] = frozenset()

    @classmethod
    def of(cls, feedback: FeedbackFn | None) -> Passing:
        """Return what a feedback function asks for; nothing of one that has no metrics."""
        metrics = metrics_of(feedback)
        asked = {one.name for one in metrics if is_required(one) or ends_case(one)}
        thresholds = {one.name: one.threshold for one in metrics}
        return cls(thresholds=thresholds, required=frozenset(asked or thresholds))

    def passes(self, record: RolloutRecord) -> bool | None:
        """Tell whether an answer passes; None when it is unscored."""
        if record.feedback is None:
            return None
        said = {verdict.metric: verdict.passed for verdict in record.verdicts}
        return all(said.get(name) for name in self.required)

    def figures(self, records: Iterable[RolloutRecord]) -> Figures:
        """Return what the metrics say of answers."""
        return Tally(self).add(records)


@attrs.define
class Tally:
    """What metrics say of the answers of one candidate so far."""

    _asked: Passing
    _passed: int = 0
    _judged: int = 0
    _sums: dict[str, float] = attrs.field(factory=lambda: defaultdict(float))
    _counts: dict[str, int] = attrs.field(factory=lambda: defaultdict(int))

    def add(self, records: Iterable[RolloutRecord]) -> Figures:
        """Take account of answers to further examples; return the figures of all so far."""
        for record in records if self._asked.thresholds else ():
            if record.feedback is None:
                continue
            self._judged += 1
            self._passed += self._asked.passes(record) is True
            scores = {one.metric: one.score for one in record.verdicts}
            for name in self._asked.thresholds:
                score = scores.get(name, 0.0)
                if score is not None:
                    self._sums[name] += score
                    self._counts[name] += 1
        if not self._judged:
            return NO_FIGURES
        return Figures(
            pass_rate=self._passed / self._judged,
            means=FrozenMap((name, self._sums[name] / n) for name, n in self._counts.items()),
        )


@attrs.frozen(kw_only=True)
class PassingSides:
    """The figures of baseline and winner.

    Attributes:
        thresholds: the least score that passes, by metric; empty where no metrics judge.
        validation: of both on the validation set, as far as they were tried on it.
        held_out: of both on held-out examples; None when nothing was measured there.
    """

    thresholds: Mapping[str, float] = FrozenMap()
    validation: tuple[Figures, Figures] = (NO_FIGURES, NO_FIGURES)
    held_out: tuple[Figures, Figures] | None = None

    @property
    def rows(self) -> Iterator[tuple[str, str, float | None, float | None]]:
        """What is measured, the score that passes, and what both have; held-out examples first."""
        sets = {"held out": self.held_out, "validation": self.validation}
        for name, sides in sets.items():
            if sides is None or not self.thresholds:
                continue
            yield f"pass rate, {name}", "", sides[0].pass_rate, sides[1].pass_rate
            for metric, threshold in self.thresholds.items():
                before, after = (side.means.get(metric) for side in sides)
                yield f"{metric}, {name}", f"{threshold:g}", before, after

    def to_json(self) -> dict[str, Json]:
        """Return them as plain data."""
        return {
            "thresholds": dict(self.thresholds),
            "validation": _sides_json(self.validation),
            "held_out": None if self.held_out is None else _sides_json(self.held_out),
        }


NO_SIDES = PassingSides()


def _sides_json(sides: tuple[Figures, Figures]) -> dict[str, Json]:
    return {
        name: {"pass_rate": one.pass_rate, "means": dict(one.means)}
        for name, one in zip(("baseline", "best"), sides, strict=True)
    }
