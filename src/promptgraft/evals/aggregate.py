"""Aggregation of verdicts: over the metrics of a case, the cases of a run, and several runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from statistics import stdev
from typing import Protocol

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.gains import mean
from promptgraft.evals.metrics.base import ends_case, is_hidden, is_required, node_of
from promptgraft.evals.metrics.judging import check_metrics
from promptgraft.evals.types import Metric, Verdict
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.functions import described, without_address
from promptgraft.ground.notebook import Card, Shown, Table, cell, first_rows
from promptgraft.ground.serde import Json, did_you_mean, digest_text, shown, unstructure
from promptgraft.ground.strict.checks import plain_score
from promptgraft.ground.text import counted, listed, score

_STEP = 0.001  # the weight of a metric in a lexicographic order, relative to the one before
_DIGITS = 16  # of the digest in an identity


class Aggregation(Protocol):
    """Combines scores by metric into one from 0 to 1; only the metrics in ``names`` count."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def score(self, scores: Mapping[str, float]) -> float: ...


def check_aggregation(aggregation: Aggregation, known: Collection[str]) -> None:
    """Raise a ``ConfigError`` if an aggregation names unknown or hidden metrics."""
    for name in aggregation.names:
        if name not in known:
            near = did_you_mean(name, sorted(known))
            there = f"; there are {listed(known)}"
            raise ConfigError(f"weights: unknown metric `{name}`{near or there}")


def _weights(_: object, __: object, value: Mapping[str, float]) -> None:
    for name, weight in value.items():
        if not 0 <= weight < math.inf:
            raise ConfigError(
                f"weights: expected a number of at least 0 for `{name}`, found {shown(weight)}"
            )
    if not any(value.values()):
        raise ConfigError("weights: expected at least one weight above 0, found none")


@attrs.frozen
class WeightedMean:
    """The weighted mean of scores; weights need not add up to 1.

    Attributes:
        weights: by metric, finite and at least 0, one of them above 0; a metric without a weight
            does not count.
    """

    weights: Mapping[str, float] = attrs.field(converter=FrozenMap[str, float], validator=_weights)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, weight in self.weights.items() if weight > 0)

    def score(self, scores: Mapping[str, float]) -> float:
        total = math.fsum(self.weights.values())
        parts = (self.weights[name] / total * scores[name] for name in self.names)
        return min(1.0, math.fsum(parts))  # rounding may exceed 1


def _order(_: object, __: object, value: tuple[str, ...]) -> None:
    if not value or len(set(value)) < len(value):
        raise ConfigError(f"order: expected different metrics, found {shown(value)}")


@attrs.frozen
class Lexicographic:
    """The first metric decides; the second decides between equal scores of it, and so on.

    In the combined score that a search needs, each metric counts a thousandth of the one before:
    a lead of a thousandth in an earlier metric decides.

    Attributes:
        order: different metrics, the most important first.
    """

    order: tuple[str, ...] = attrs.field(validator=_order)

    @property
    def names(self) -> tuple[str, ...]:
        return self.order

    def score(self, scores: Mapping[str, float]) -> float:
        shares = [_STEP**place for place in range(len(self.order))]
        parts = (share * scores[name] for share, name in zip(shares, self.order, strict=True))
        return min(1.0, math.fsum(parts) / math.fsum(shares))


def metrics_identity(
    metrics: Sequence[Metric], aggregation: Aggregation | None = None, *, code: bool = True
) -> str:
    """Return the names of metrics and a digest of them, their options and their aggregation.

    With ``code``, the digest also covers the code of their functions.
    """
    whole = (tuple(metrics), aggregation)
    # Addresses in memory, as in the `repr` of a function, differ from process to process.
    description = described(whole) if code else without_address(repr(whole))
    # Options that came later and are not in the `repr`, so that earlier identities stay valid.
    names = ",".join(
        metric.name
        + (f"@{node}" if (node := node_of(metric)) else "")
        + (" (hidden)" if is_hidden(metric) else "")
        for metric in metrics
    )
    return f"metrics {names} {digest_text(description)[:_DIGITS]}"


class CaseStatus(StrEnum):
    """The status of one answer."""

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    UNSCORED = "unscored"


@attrs.frozen(kw_only=True)
class CaseOutcome:
    """The outcome of one answer to a case.

    Attributes:
        status: ``crashed`` if there is no answer and the candidate is to blame; it scores 0.
        score: 0 to 1; None if unscored.
        verdicts: one of each metric, in their order; empty if there was no answer.
        error: why there is no answer, or no score; empty otherwise.
    """

    case_id: str
    status: CaseStatus
    score: float | None
    verdicts: tuple[Verdict, ...] = ()
    error: str = ""


@attrs.frozen(kw_only=True)
class MetricSummary:
    """One metric over all cases; a crashed case counts as failed with a score of 0.

    Attributes:
        mean_score: mean over scored and crashed cases; None without any.
        mean_amount: mean over the cases with a known amount; None without any.
    """

    name: str
    threshold: float
    required: bool
    mean_score: float | None
    passed: int
    failed: int
    unscored: int
    mean_amount: float | None


@attrs.frozen(kw_only=True)
class EvaluationReport(Shown):
    """The report of one run over all cases. Means and rates leave out unscored cases.

    Attributes:
        pass_rate: the share of cases that pass; None if all are unscored.
        mean_score: the mean score; None if all are unscored.
        failed: the number of cases that do not pass, without crashed ones.
        crashed: the ids of cases without an answer, which score 0.
        unscored: the ids of cases without a score.
    """

    cases: tuple[CaseOutcome, ...]
    metrics: tuple[MetricSummary, ...]
    pass_rate: float | None
    mean_score: float | None
    passed: int
    failed: int
    crashed: tuple[str, ...]
    unscored: tuple[str, ...]

    @property
    def counts(self) -> str:
        return (
            f"{self.passed} passed, {self.failed} failed, {len(self.crashed)} crashed, "
            f"{len(self.unscored)} unscored"
        )

    def to_json(self) -> Json:
        plain = unstructure(self)
        return {"version": 1, **plain} if isinstance(plain, dict) else plain

    def __repr__(self) -> str:
        return f"<EvaluationReport {len(self.cases)} cases: {self.counts}>"

    def _card(self) -> Card:
        return report_card(self)


def report_card(report: EvaluationReport) -> Card:
    """Return the card of a report: its metrics, and its cases from the worst."""
    worst = sorted(report.cases, key=lambda case: (case.score is not None, case.score or 0.0))
    rows = (
        (
            metric.name,
            score(metric.mean_score),
            *(f"{count}" for count in (metric.passed, metric.failed, metric.unscored)),
            f"{metric.threshold:g}",
            "required" if metric.required else "",
        )
        for metric in report.metrics
    )
    return Card(
        title=counted(len(report.cases), "case"),
        lead=f"pass rate {score(report.pass_rate)}, mean score {score(report.mean_score)}",
        fields=(("cases", report.counts),),
        blocks=(
            Table(
                head=("metric", "mean", "passed", "failed", "unscored", "threshold", ""), rows=rows
            ),
            first_rows(
                ((row.case_id, score(row.score), row.status, _why(row)) for row in worst),
                ("worst cases first", "score", "status", "why"),
            ),
        ),
    )


def _why(case: CaseOutcome) -> str:
    failed = [verdict for verdict in case.verdicts if not verdict.passed]
    return cell(
        case.error or "; ".join(f"{verdict.metric}: {verdict.reason}" for verdict in failed)
    )


def judged(
    case_id: str,
    verdicts: Sequence[Verdict],
    metrics: Sequence[Metric],
    aggregation: Aggregation | None = None,
) -> CaseOutcome:
    """Return the outcome of one answer from its verdicts.

    A case passes if it passes every required metric, or all metrics if none is required. Its score
    is that of the aggregation; without one, the mean of the required metrics. It is unscored if a
    metric is unscored that is required or counts in the score. It scores 0 if a metric that ends
    cases fails. Hidden metrics count in none of this.

    Raises:
        ConfigError: the verdicts are not one of each metric, in their order.
    """
    check_metrics(metrics)
    names, verdicts_kept = [metric.name for metric in metrics], tuple(verdicts)
    by_metric = {verdict.metric: verdict for verdict in verdicts_kept}
    if [verdict.metric for verdict in verdicts_kept] != names:
        raise ConfigError(
            f"case `{case_id}`: expected one verdict of each of {names}, in this order, found "
            f"{[verdict.metric for verdict in verdicts_kept]}"
        )
    if any(ends_case(metric) and by_metric[metric.name].passed is False for metric in metrics):
        # Before anything else, because the metrics that were not run have no real score.
        return CaseOutcome(
            case_id=case_id, status=CaseStatus.FAILED, score=0.0, verdicts=verdicts_kept
        )
    # Without a required metric, a case would otherwise pass whatever its answer is.
    countable = [metric.name for metric in metrics if not is_hidden(metric)]
    required = {metric.name for metric in metrics if is_required(metric)} or {*countable}
    chosen = aggregation or WeightedMean(dict.fromkeys(required, 1.0))
    check_aggregation(chosen, countable)
    scores = {
        name: verdict.score for name, verdict in by_metric.items() if verdict.score is not None
    }
    if missing := [name for name in names if name in {*required, *chosen.names} - scores.keys()]:
        why = "; ".join(f"{name}: {by_metric[name].reason}" for name in missing)
        return unscored(case_id, why, verdicts_kept)
    passes = all(by_metric[name].passed for name in required)
    return CaseOutcome(
        case_id=case_id,
        status=CaseStatus.PASSED if passes else CaseStatus.FAILED,
        score=plain_score(chosen.score(scores)),
        verdicts=verdicts_kept,
    )


def crashed(case_id: str, error: str) -> CaseOutcome:
    """Return the outcome of a case without an answer, which scores 0."""
    return CaseOutcome(case_id=case_id, status=CaseStatus.CRASHED, score=0.0, error=error)


def unscored(case_id: str, error: str, verdicts: tuple[Verdict, ...] = ()) -> CaseOutcome:
    """Return the outcome of a case without a score."""
    return CaseOutcome(
        case_id=case_id, status=CaseStatus.UNSCORED, score=None, verdicts=verdicts, error=error
    )


def summarize(outcomes: Iterable[CaseOutcome], metrics: Sequence[Metric]) -> EvaluationReport:
    """Return the report of one run."""
    check_metrics(metrics)
    cases = tuple(outcomes)
    ids: dict[CaseStatus, list[str]] = {status: [] for status in CaseStatus}
    for case in cases:
        ids[case.status].append(case.case_id)
    passed, unscored = len(ids[CaseStatus.PASSED]), tuple(ids[CaseStatus.UNSCORED])
    return EvaluationReport(
        cases=cases,
        metrics=tuple(_summary(metric, cases) for metric in metrics),
        pass_rate=passed / (len(cases) - len(unscored)) if len(cases) > len(unscored) else None,
        mean_score=mean(case.score for case in cases),
        passed=passed,
        failed=len(ids[CaseStatus.FAILED]),
        crashed=tuple(ids[CaseStatus.CRASHED]),
        unscored=unscored,
    )


def _summary(metric: Metric, cases: Sequence[CaseOutcome]) -> MetricSummary:
    verdicts = [v for case in cases for v in case.verdicts if v.metric == metric.name]
    scores = [verdict.score for verdict in verdicts if verdict.score is not None]
    crashes = sum(case.status is CaseStatus.CRASHED for case in cases)
    passed = sum(verdict.passed is True for verdict in verdicts)
    return MetricSummary(
        name=metric.name,
        threshold=metric.threshold,
        required=is_required(metric),
        mean_score=mean(scores + [0.0] * crashes),
        passed=passed,
        failed=len(scores) + crashes - passed,
        unscored=len(cases) - len(scores) - crashes,
        mean_amount=mean(verdict.amount for verdict in verdicts),
    )


@attrs.frozen(kw_only=True)
class Spread:
    """Mean and sample standard deviation of the scores of several runs.

    The mean is None without a score; the deviation is None with fewer than two.
    """

    mean: float | None
    deviation: float | None


@attrs.frozen(kw_only=True)
class CaseSummary:
    """One case over all runs.

    Attributes:
        score: over the runs in which it has a score.
        passed: number of runs in which it passes.
        failed: number of runs in which it fails or crashes.
        unscored: number of runs in which it has no score.
    """

    case_id: str
    score: Spread
    passed: int
    failed: int
    unscored: int


def _spread(scores: Iterable[float | None]) -> Spread:
    known_scores = [score for score in scores if score is not None]
    return Spread(
        mean=mean(known_scores), deviation=stdev(known_scores) if len(known_scores) > 1 else None
    )


def summarize_case(outcomes: Sequence[CaseOutcome]) -> CaseSummary:
    """Return one case over all runs, given its outcome in each."""
    kinds = [outcome.status for outcome in outcomes]
    passed, unscored = kinds.count(CaseStatus.PASSED), kinds.count(CaseStatus.UNSCORED)
    return CaseSummary(
        case_id=outcomes[0].case_id,
        score=_spread(outcome.score for outcome in outcomes),
        passed=passed,
        failed=len(kinds) - passed - unscored,
        unscored=unscored,
    )


def spread_of_runs(runs: Sequence[EvaluationReport]) -> Spread:
    """Return the spread of the runs' mean scores over the cases with a score in every run."""
    # With other cases in each, means would differ for that reason alone.
    unscored = {case.case_id for run in runs for case in run.cases if case.score is None}
    return _spread(
        mean(case.score for case in run.cases if case.case_id not in unscored) for run in runs
    )
