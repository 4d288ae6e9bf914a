"""Several metrics as one."""

from __future__ import annotations

from typing import ClassVar

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.metrics.base import BaseMetric, ChecksCases, asks_models, verdict_of
from promptgraft.evals.types import Answer, Case, Metric, Verdict
from promptgraft.runtime.session import SessionProtocol


def _parts(
    _: object, attribute: attrs.Attribute[tuple[Metric, ...]], value: tuple[Metric, ...]
) -> None:
    if not value:
        raise ConfigError(f"{attribute.name}: expected at least one metric, found none")


@attrs.frozen(kw_only=True)
class AllOf(BaseMetric):
    """The least score of several metrics, with the reasons of those that fail.

    Unscored when one of them is.

    Attributes:
        metrics: what is asked, each with its own threshold.
    """

    kind: ClassVar[str] = "all_of"

    metrics: tuple[Metric, ...] = attrs.field(validator=_parts)

    @property
    def asks_models(self) -> bool:
        """Whether one of the metrics asks models."""
        return any(asks_models(metric) for metric in self.metrics)

    def check(self, case: Case) -> None:
        for metric in self.metrics:
            if isinstance(metric, ChecksCases):
                metric.check(case)

    def judge(
        self, case: Case, answer: Answer, *, session: SessionProtocol | None = None
    ) -> Verdict:
        return self._all(
            [verdict_of(metric, case, answer, session=session) for metric in self.metrics]
        )

    def assess(self, case: Case, answer: Answer) -> Verdict:
        return self.judge(case, answer)

    def _all(self, verdicts: list[Verdict]) -> Verdict:
        unscored = [verdict for verdict in verdicts if verdict.score is None]
        if unscored:
            return self.unscored("; ".join(verdict.reason for verdict in unscored))
        failed = [verdict for verdict in verdicts if not verdict.passed]
        said = "; ".join(verdict.reason for verdict in failed or verdicts)
        return self.verdict(min(verdict.score or 0.0 for verdict in verdicts), said)
