"""What metrics say of a candidate as a whole: how many of its answers pass, and their means."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import attrs

from promptgraft.evals.metrics.base import ends_case, is_required
from promptgraft.frozenmap import FrozenMap
from promptgraft.serde import Json
from promptgraft.targets.judging import metrics_of
from promptgraft.targets.types import FeedbackFn, RolloutRecord


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
