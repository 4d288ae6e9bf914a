"""From verdicts to figures: of cases, of an evaluation, and of several runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from statistics import stdev

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.aggregation import Aggregation, WeightedMean
from promptgraft.evals.metrics.base import ends_case, is_required
from promptgraft.evals.metrics.checking import check_metrics
from promptgraft.evals.statistics import mean
from promptgraft.evals.types import Metric, Verdict
from promptgraft.notebook import Card, Shown, Table, cell, first_rows
from promptgraft.serde import Json, unstructure
from promptgraft.text import counted, score


class CaseStatus(StrEnum):
    """What became of one case."""

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    UNSCORED = "unscored"


@attrs.frozen(kw_only=True)
class CaseOutcome:
    """What became of one case.

    Attributes:
        case_id: id of the case.
        status: ``crashed`` when there is no answer for a reason that counts against the
            candidate; it scores 0.
        score: 0 to 1; None for an unscored case.
        verdicts: of every metric in their order; empty when there was no answer.
        error: why there is no answer, or no score; empty otherwise.
    """

    case_id: str
    status: CaseStatus
    score: float | None
    verdicts: tuple[Verdict, ...] = ()
    error: str = ""


@attrs.frozen(kw_only=True)
class MetricSummary:
    """One metric over all cases; a crashed case counts as failed, with a score of 0.

    Attributes:
        mean_score: over scored and crashed cases; None when there is none.
        mean_amount: of the cases where an amount is known; None when there is none.
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
    """What an evaluation came to. Unscored cases are in no mean and in no rate.

    Attributes:
        pass_rate: the share of passing cases among the passed, failed and crashed ones; None
            when there is none of them.
        mean_score: the mean of the scores of the same cases; None when there is none.
        failed: how many cases do not pass, without the crashed ones.
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
        """How many cases passed, failed, crashed and have no score."""
        return (
            f"{self.passed} passed, {self.failed} failed, {len(self.crashed)} crashed, "
            f"{len(self.unscored)} unscored"
        )

    def to_json(self) -> Json:
        """Return the report as plain data."""
        plain = unstructure(self)
        return {"version": 1, **plain} if isinstance(plain, dict) else plain

    def __repr__(self) -> str:
        return f"<EvaluationReport {len(self.cases)} cases: {self.counts}>"

    def _card(self) -> Card:
        return report_card(self)


def report_card(report: EvaluationReport) -> Card:
    """Return what is shown of a report: its metrics, and the worst cases first."""
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
                ((one.case_id, score(one.score), one.status, _why(one)) for one in worst),
                ("worst cases first", "score", "status", "why"),
            ),
        ),
    )


def _why(case: CaseOutcome) -> str:
    failed = [verdict for verdict in case.verdicts if not verdict.passed]
    return cell(case.error or "; ".join(f"{one.metric}: {one.reason}" for one in failed))


def judged(
    case_id: str,
    verdicts: Sequence[Verdict],
    metrics: Sequence[Metric],
    aggregation: Aggregation | None = None,
) -> CaseOutcome:
    """Return what the verdicts on one answer come to.

    A case passes when it passes every required metric; without a required one, all of them. Its
    score is the aggregation of its metrics; without one, the plain mean of the required metrics.
    It is unscored when a metric is that is required or has a part in the score, and it scores 0
    when a metric that ends cases fails.

    Raises:
        ConfigError: the verdicts are not those of the metrics, or two metrics have one name.
    """
    check_metrics(metrics)
    if [verdict.metric for verdict in verdicts] != [metric.name for metric in metrics]:
        raise ConfigError(
            f"case `{case_id}`: expected one verdict of each of "
            f"{[metric.name for metric in metrics]}, in this order, found "
            f"{[verdict.metric for verdict in verdicts]}"
        )
    kept = tuple(verdicts)
    asked = dict(zip((metric.name for metric in metrics), kept, strict=True))
    if any(ends_case(metric) and asked[metric.name].passed is False for metric in metrics):
        return CaseOutcome(case_id=case_id, status=CaseStatus.FAILED, score=0.0, verdicts=kept)
    required = {metric.name for metric in metrics if is_required(metric)} or set(asked)
    chosen = aggregation or WeightedMean(dict.fromkeys(required, 1.0))
    chosen.check(asked)
    missing = [asked[name] for name in asked if name in required or name in chosen.names]
    missing = [verdict for verdict in missing if verdict.score is None]
    if missing:
        why = "; ".join(f"{verdict.metric}: {verdict.reason}" for verdict in missing)
        return unscored(case_id, why, kept)
    scores = {name: verdict.score for name, verdict in asked.items() if verdict.score is not None}
    passes = all(asked[name].passed for name in required)
    return CaseOutcome(
        case_id=case_id,
        status=CaseStatus.PASSED if passes else CaseStatus.FAILED,
        score=chosen.score(scores),
        verdicts=kept,
    )


def crashed(case_id: str, error: str) -> CaseOutcome:
    """Return that a case has no answer, and that this counts as 0."""
    return CaseOutcome(case_id=case_id, status=CaseStatus.CRASHED, score=0.0, error=error)


def unscored(case_id: str, error: str, verdicts: tuple[Verdict, ...] = ()) -> CaseOutcome:
    """Return that a case has no score, and why."""
    return CaseOutcome(
        case_id=case_id, status=CaseStatus.UNSCORED, score=None, verdicts=verdicts, error=error
    )


def summarize(outcomes: Iterable[CaseOutcome], metrics: Sequence[Metric]) -> EvaluationReport:
    """Return the figures of an evaluation."""
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


class Varies(StrEnum):
    """What differs from one run to the next, and so what a spread is made of."""

    ANSWERS = "answers"
    JUDGEMENTS = "judgements"
    BOTH = "answers and judgements"
    NOTHING = "nothing"


@attrs.frozen(kw_only=True)
class Spread:
    """Mean and standard deviation (of a sample) of the scores of several runs.

    Without a score there is no mean, with fewer than two no deviation: then they are None.
    """

    mean: float | None
    deviation: float | None


@attrs.frozen(kw_only=True)
class CaseRepeats:
    """One case over all runs.

    Attributes:
        score: over the runs in which it has one.
        passed: number of runs in which it passes.
        failed: number of runs in which it fails or crashes.
        unscored: number of runs in which it has no score.
        varies: what differs from run to run.
    """

    case_id: str
    score: Spread
    passed: int
    failed: int
    unscored: int
    varies: Varies


def _spread(scores: Iterable[float | None]) -> Spread:
    known = [score for score in scores if score is not None]
    return Spread(mean=mean(known), deviation=stdev(known) if len(known) > 1 else None)


def case_repeats(outcomes: Sequence[CaseOutcome], varies: Varies) -> CaseRepeats:
    """Return what the runs of one case come to; ``outcomes`` has one for each."""
    kinds = [outcome.status for outcome in outcomes]
    passed, unscored = kinds.count(CaseStatus.PASSED), kinds.count(CaseStatus.UNSCORED)
    return CaseRepeats(
        case_id=outcomes[0].case_id,
        score=_spread(one.score for one in outcomes),
        passed=passed,
        failed=len(kinds) - passed - unscored,
        unscored=unscored,
        varies=varies,
    )


def spread_of_runs(runs: Sequence[EvaluationReport]) -> Spread:
    """Return how the mean score of whole runs spreads.

    It is taken over the cases that have a score in every run: other means would differ because
    they are of different cases.
    """
    unscored = {case.case_id for run in runs for case in run.cases if case.score is None}
    return _spread(
        mean(case.score for case in run.cases if case.case_id not in unscored) for run in runs
    )
