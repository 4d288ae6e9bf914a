"""What a run may claim about its winner: held-out scores, verdict, and pass rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.evals.gains import ANSWERS, Gain, Outcome, gain
from promptgraft.evals.metrics.base import ends_case, is_required
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import Json
from promptgraft.ground.text import change
from promptgraft.search.scores import Score, paired_means
from promptgraft.targets.evidence import LABEL_CHARS
from promptgraft.targets.judging import hidden_in, metrics_of
from promptgraft.targets.types import FeedbackFn, GepaExample, RolloutRecord

LEVEL = 0.95
"""Confidence of a verdict: at most the rest is called improved without a real gain."""

ERROR = (1 - LEVEL) / 2
"""Error probability at each end of the confidence interval, and of the sign test on each side."""

_ROOM = 0.75  # a hidden metric above this has little to gain
_HARDLY = 0.1  # changes in length below this share are not mentioned


class RunVerdict(StrEnum):
    """What a run may claim about its winner."""

    IMPROVED = "improved"
    """Better on held-out examples, by more than chance."""
    GAMED = "gamed?"
    """Better on held-out examples, but a hidden metric disagrees, or the answers game a metric."""
    NOT_SHOWN = "better on validation only"
    """Better on the validation set; on held-out examples the difference may be chance."""
    WORSE = "worse on held-out examples"
    """Better on the validation set, but worse on held-out examples."""
    LOST_CRITICAL = "worse on a critical case"
    """Better on the validation set, but worse on a held-out example that is critical."""
    NOT_CHECKED = "better on validation, not checked"
    """Better on the validation set; not evaluated on held-out examples."""
    NOT_IMPROVED = "not improved"
    """Nothing beat the baseline."""


def case_of(id_: str, family: str) -> str:
    """Return the name of the case that an example counts as: its family, if it is of one."""
    kind = "family " if family else "case " if id_.startswith(("family ", "case ")) else ""
    return f"{kind}{family or id_}"


@attrs.frozen(kw_only=True)
class HiddenScores:
    """What a hidden metric scores on the held-out examples, in the order of their ids.

    Attributes:
        metric: its name.
        baseline_scores: the baseline's mean score on each example, None for unscored.
        winner_scores: the winner's.
    """

    metric: str
    baseline_scores: tuple[Score, ...]
    winner_scores: tuple[Score, ...]


@attrs.frozen(kw_only=True)
class HeldOut:
    """Baseline and winner on the held-out examples.

    Attributes:
        ids: the examples that were evaluated; all of them if there was no evaluation.
        baseline_scores: the baseline's mean score on each example, None for unscored. Empty if
            there was no evaluation.
        winner_scores: the winner's.
        spent: share of the interval's error that the last look at the scores spends.
        spent_on_cases: the same of the sign test's error; 0 in runs of versions without it.
        rollouts: number of rollouts.
        is_fixed: whether answers were repeated and always equal to the first.
        lost: the critical examples on which the winner is worse, including those that are left
            out of the gain.
        chars: mean length of the answers of baseline and winner, in characters; None if there
            was no evaluation.
        why_not: why there was no evaluation; empty if there was one.
        hidden: what hidden metrics score.
        signs: signs that the winner games its metrics, one line each.
        families: the family of each example, empty for one that stands alone; none if no example
            has one. The examples of a family count as one case, with their means.
        answers: how often each of both answered each example; none in runs of versions without it.

    Raises:
        DataFormatError: there was an evaluation, and the numbers of ids and scores differ.
    """

    ids: tuple[str, ...]
    baseline_scores: tuple[Score, ...] = ()
    winner_scores: tuple[Score, ...] = ()
    spent: float = ERROR
    spent_on_cases: float = 0.0
    rollouts: int = 0
    is_fixed: bool = False
    lost: tuple[str, ...] = ()
    chars: tuple[float, float] | None = None
    why_not: str = ""
    hidden: tuple[HiddenScores, ...] = ()
    signs: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    answers: tuple[int, ...] = ()

    def __attrs_post_init__(self) -> None:
        counts = {len(self.ids), len(self.baseline_scores), len(self.winner_scores)}
        if not self.why_not and len(counts) > 1:
            raise DataFormatError("held-out examples: expected two scores for each id")

    @property
    def baseline_mean(self) -> float | None:
        """The baseline's mean over the examples that both have scores for."""
        return paired_means(self.baseline_scores, self.winner_scores)[0]

    @property
    def winner_mean(self) -> float | None:
        """The winner's mean over the same examples."""
        return paired_means(self.baseline_scores, self.winner_scores)[1]

    @property
    def repeats(self) -> str:
        """How often each example was answered; empty for once, or always with the same answer."""
        counts = sorted(set(self.answers))
        if self.is_fixed or counts in ([], [1]):
            return ""
        return f", each answered {' to '.join(map(str, {counts[0]: 0, counts[-1]: 0}))} times"

    @property
    def answer_length(self) -> str:
        """The change in the length of the answers, in words; empty if it is small."""
        if self.chars is None or not all(self.chars):
            return ""
        before, after = self.chars
        share = after / before - 1
        if abs(share) < _HARDLY or max(before, after) <= LABEL_CHARS:
            return ""  # of labels some are longer than others
        return f"{before:,.0f} -> {after:,.0f} characters ({share:+.0%})"

    @cached_property
    def gain(self) -> Gain | None:
        """The winner's gain with its interval; None if there was no evaluation."""
        if self.why_not:
            return None
        errors = {"spent": self.spent, "spent_on_cases": self.spent_on_cases}
        return self._gain_of(self.baseline_scores, self.winner_scores, **errors)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why the scores may have risen without better answers, one line each."""
        lines = [line for hidden in self.hidden if (line := self._disagreement(hidden))]
        return (*lines, *self.signs)

    def gain_over(self, other: HeldOut) -> Gain:
        """Return the gain of this winner over that of another run on the same examples."""
        theirs = dict(zip(other.ids, other.winner_scores, strict=True))
        return self._gain_of([theirs.get(id_) for id_ in self.ids], self.winner_scores)

    def hidden_gain(self, hidden: HiddenScores) -> Gain:
        """Return the winner's gain in a hidden metric."""
        return self._gain_of(hidden.baseline_scores, hidden.winner_scores)

    def _disagreement(self, hidden: HiddenScores) -> str:
        """Return how a hidden metric disagrees with the scores; empty if it does not."""
        visible_gain, hidden_gain = self.gain, self.hidden_gain(hidden)
        if visible_gain is None or visible_gain.mean_gain is None or hidden_gain.mean_gain is None:
            return ""
        has_room = (hidden_gain.mean_before or 0.0) <= _ROOM
        is_left_behind = hidden_gain.mean_gain <= 0 and has_room and self._leaves_behind(hidden)
        if hidden_gain.verdict is not Outcome.WORSE and not is_left_behind:
            return ""
        means = change(hidden_gain.mean_before, hidden_gain.mean_after)
        return (
            f"the score gains {visible_gain.mean_gain:+.3f}, and the hidden metric "
            f"`{hidden.metric}` {hidden_gain.mean_gain:+.3f} ({means})"
        )

    def _leaves_behind(self, hidden: HiddenScores) -> bool:
        """Return whether the scores gain more than a hidden metric, by more than chance."""
        gains, hidden_gains = (
            [
                None if before is None or after is None else after - before
                for before, after in zip(*sides, strict=True)
            ]
            for sides in (
                (self.baseline_scores, self.winner_scores),
                (hidden.baseline_scores, hidden.winner_scores),
            )
        )
        return self._gain_of(hidden_gains, gains).verdict is Outcome.IMPROVED

    def _gain_of(self, before: Sequence[Score], after: Sequence[Score], **errors: float) -> Gain:
        pairs: dict[str, list[tuple[Score, Score]]] = {}
        families = self.families or ("",) * len(self.ids)
        for id_, family, *pair in zip(self.ids, families, before, after, strict=True):
            pairs.setdefault(case_of(id_, family), []).append((pair[0], pair[1]))
        # A family counts as one case, with the means of its examples.
        means = {case: paired_means(*zip(*scores, strict=True)) for case, scores in pairs.items()}
        return gain(
            {case: (before,) for case, (before, _) in means.items()},
            {case: (after,) for case, (_, after) in means.items()},
            level=LEVEL,
            **errors,
        )


def again_size(examples: Sequence[GepaExample]) -> int:
    """Return how many rollouts are reserved for repeating critical held-out examples."""
    return 2 * (ANSWERS - 1) * sum(example.critical for example in examples)


def verdict_of(best: int, held_out: HeldOut | None) -> RunVerdict:
    """Return the verdict on candidate ``best``; 0 is the baseline."""
    if not best:
        return RunVerdict.NOT_IMPROVED
    if held_out is not None and held_out.lost:
        return RunVerdict.LOST_CRITICAL
    if held_out is None or held_out.gain is None or not held_out.gain.cases:
        return RunVerdict.NOT_CHECKED
    if held_out.gain.verdict is Outcome.IMPROVED:
        return RunVerdict.GAMED if held_out.doubts else RunVerdict.IMPROVED
    is_worse = held_out.gain.verdict is Outcome.WORSE
    return RunVerdict.WORSE if is_worse else RunVerdict.NOT_SHOWN


@attrs.frozen(kw_only=True)
class Figures:
    """What metrics say about answers to several examples.

    Attributes:
        pass_rate: share of the scored answers that pass every required metric; None if there are
            none, or no metrics.
        means: the mean score of each metric; an answer without its verdict counts as 0, and one
            whose verdict has no score is left out.
    """

    pass_rate: float | None = None
    means: Mapping[str, float] = FrozenMap()


NO_FIGURES = Figures()


@attrs.frozen(kw_only=True)
class PassingSides:
    """The figures of baseline and winner.

    Attributes:
        thresholds: the lowest score that passes, by metric; empty if there are no metrics.
        validation: of both on the validation set, as far as they were evaluated on it.
        held_out: of both on held-out examples; None if there was no evaluation.
        hidden: names of the metrics that judge held-out answers only.
    """

    thresholds: Mapping[str, float] = FrozenMap()
    validation: tuple[Figures, Figures] = (NO_FIGURES, NO_FIGURES)
    held_out: tuple[Figures, Figures] | None = None
    hidden: tuple[str, ...] = ()

    @property
    def rows(self) -> Iterator[tuple[str, str, float | None, float | None]]:
        """Label, passing score and both values of each figure; held-out examples first."""
        sets = {"unseen cases": self.held_out, "validation cases": self.validation}
        for name, sides in sets.items():
            if sides is None or not self.thresholds:
                continue
            yield f"pass rate, {name}", "", sides[0].pass_rate, sides[1].pass_rate
            for metric, threshold in self.thresholds.items():
                before, after = (side.means.get(metric) for side in sides)
                is_hidden = metric in self.hidden
                if not is_hidden or before is not None or after is not None:
                    what = f"{metric} (hidden)" if is_hidden else metric
                    yield f"{what}, {name}", f"{threshold:g}", before, after

    def to_json(self) -> dict[str, Json]:
        """Return them as plain data."""
        return {
            "thresholds": dict(self.thresholds),
            "validation": _sides_json(self.validation),
            "held_out": None if self.held_out is None else _sides_json(self.held_out),
            **({"hidden": list(self.hidden)} if self.hidden else {}),
        }


NO_SIDES = PassingSides()


def _sides_json(sides: tuple[Figures, Figures]) -> dict[str, Json]:
    return {
        name: {"pass_rate": side.pass_rate, "means": dict(side.means)}
        for name, side in zip(("baseline", "best"), sides, strict=True)
    }


@attrs.frozen(kw_only=True)
class PassRules:
    """Which answers of a run pass, according to its metrics.

    Attributes:
        thresholds: the lowest score that passes, by metric; empty if there are no metrics.
        required: the metrics that an answer has to pass.
        hidden: the metrics that judge held-out answers only.
    """

    thresholds: Mapping[str, float] = FrozenMap()
    required: frozenset[str] = frozenset()
    hidden: tuple[str, ...] = ()

    @classmethod
    def of(cls, feedback: FeedbackFn | None) -> PassRules:
        """Return the requirements of a feedback function; none if it has no metrics."""
        metrics = metrics_of(feedback)
        # If no metric is required, all are: otherwise every answer would pass.
        counted_names = {
            metric.name for metric in metrics if is_required(metric) or ends_case(metric)
        }
        thresholds = {metric.name: metric.threshold for metric in metrics}
        hidden = hidden_in(feedback)
        required = frozenset(counted_names or thresholds.keys() - {*hidden})
        return cls(thresholds=thresholds, required=required, hidden=hidden)

    def passes(self, record: RolloutRecord) -> bool | None:
        """Return whether an answer passes; None if it is unscored."""
        if record.feedback is None:
            return None
        passed = {verdict.metric: verdict.passed for verdict in record.verdicts}
        return all(passed.get(name) for name in self.required)

    def figures(self, records: Iterable[RolloutRecord]) -> Figures:
        """Return the figures of answers."""
        return Tally(self).add(records) if self.thresholds else NO_FIGURES


@attrs.define
class Tally:
    """Running figures of one candidate."""

    _rules: PassRules
    _passed: int = 0
    _judged: int = 0
    _sums: dict[str, float] = attrs.field(factory=lambda: defaultdict(float))
    _counts: dict[str, int] = attrs.field(factory=lambda: defaultdict(int))

    def add(self, records: Iterable[RolloutRecord]) -> Figures:
        """Add answers to further examples, and return the figures of all so far."""
        for record in records:
            if record.feedback is None:
                continue
            self._judged += 1
            self._passed += self._rules.passes(record) is True
            scores = {verdict.metric: verdict.score for verdict in record.verdicts}
            for name in self._rules.thresholds:
                # A hidden metric gives no verdict on most answers, and none means nothing.
                score = scores.get(name, None if name in self._rules.hidden else 0.0)
                if score is not None:
                    self._sums[name] += score
                    self._counts[name] += 1
        if not self._judged:
            return NO_FIGURES
        return Figures(
            pass_rate=self._passed / self._judged,
            means=FrozenMap((name, self._sums[name] / n) for name, n in self._counts.items()),
        )
