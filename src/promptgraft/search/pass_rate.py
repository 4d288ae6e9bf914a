"""Which answers pass, and the figures of those of a candidate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import attrs

from promptgraft.evals.metrics.base import ends_case, is_required
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.search.verdict import NO_FIGURES, Figures
from promptgraft.targets.judging import hidden_in, metrics_of
from promptgraft.targets.types import FeedbackFn, RolloutRecord


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
        return Tally(self).add(records)


@attrs.define
class Tally:
    """Running figures of one candidate."""

    _asked: PassRules
    _passed: int = 0
    _judged: int = 0
    _sums: dict[str, float] = attrs.field(factory=lambda: defaultdict(float))
    _counts: dict[str, int] = attrs.field(factory=lambda: defaultdict(int))

    def add(self, records: Iterable[RolloutRecord]) -> Figures:
        """Add answers to further examples, and return the figures of all so far."""
        for record in records if self._asked.thresholds else ():
            if record.feedback is None:
                continue
            self._judged += 1
            self._passed += self._asked.passes(record) is True
            scores = {verdict.metric: verdict.score for verdict in record.verdicts}
            for name in self._asked.thresholds:
                # A hidden metric gives no verdict on most answers, and none means nothing.
                score = scores.get(name, None if name in self._asked.hidden else 0.0)
                if score is not None:
                    self._sums[name] += score
                    self._counts[name] += 1
        if not self._judged:
            return NO_FIGURES
        return Figures(
            pass_rate=self._passed / self._judged,
            means=FrozenMap((name, self._sums[name] / n) for name, n in self._counts.items()),
        )
