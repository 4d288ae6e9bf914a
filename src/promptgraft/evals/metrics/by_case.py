"""Metrics that hold for some cases only: each case names those that judge it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.metrics.base import AllOf, NeedsTexts, Path
from promptgraft.evals.types import Case, Metric, Verdict
from promptgraft.serde import did_you_mean, shown
from promptgraft.strict.checks import number


@attrs.frozen(kw_only=True)
class ByCase(AllOf):
    """The share, by weight, of the metrics of a case that pass; one that fails counts its score.

    A case names its metrics in a field; all judge one that names none. Unscored when one of them
    is.

    Attributes:
        metrics: what cases may name, each with its own threshold.
        weights: how much a metric counts beside the others, 1 by default.
        inverted: the metrics that must not pass.
        field: the field of a case with the names.
    """

    kind: ClassVar[str] = "by_case"

    weights: Mapping[str, float] = attrs.field(
        factory=dict, validator=attrs.validators.deep_mapping(value_validator=number(above=0))
    )
    inverted: tuple[str, ...] = ()
    field: str = "asserts"

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        known = [metric.name for metric in self.metrics]
        for name in (*self.weights, *self.inverted):
            if name not in known:
                near = did_you_mean(name, known)
                raise ConfigError(f"metrics: there is none of the name {shown(name)}{near}")

    def needed_texts(self, case: Case) -> Iterator[tuple[Path, Sequence[str]]]:
        for metric in self.asked_of(case):
            if isinstance(metric, NeedsTexts) and metric.name not in self.inverted:
                yield from metric.needed_texts(case)

    def together(self, verdicts: Sequence[Verdict]) -> Verdict:
        shares, said = [], []
        for verdict in verdicts:
            inverted = verdict.metric in self.inverted
            if verdict.passed is not inverted:
                shares.append(1.0)
                continue
            shares.append(0.0 if inverted else verdict.score or 0.0)
            what = "must not hold, and does: " if inverted else ""
            said.append(f"`{verdict.metric}`: {what}{verdict.reason}")
        weights = [self.weights.get(verdict.metric, 1.0) for verdict in verdicts]
        share = statistics.fmean(shares, weights)
        return self.verdict(share, "; ".join(said) or f"all {len(shares)} hold")

    def asked_of(self, case: Case) -> tuple[Metric, ...]:
        names = case.fields.get(self.field)
        if names is None:
            return self.metrics
        known = {metric.name: metric for metric in self.metrics}
        if not isinstance(names, list) or not names:
            what = f"expects a list of metrics in `{self.field}`, found {shown(names)}"
            raise self.lacking(case, what)
        for name in names:
            if name not in known:
                near = did_you_mean(str(name), list(known))
                raise self.lacking(case, f"has no metric {shown(name)}{near}")
        return tuple(known[str(name)] for name in names)
