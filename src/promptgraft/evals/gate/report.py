"""The subject that a gate evaluates, and the report on which it decides."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Executor
from typing import Any

import attrs

from promptgraft.adapters.base import ProviderAdapter, adapter_identity
from promptgraft.evals.aggregate import Aggregation, CaseOutcome, CaseStatus, metrics_identity
from promptgraft.evals.attempt import UNUSABLE, CaseAttempt
from promptgraft.evals.binding import ParamsOf
from promptgraft.evals.causes import constant_metrics, silent_metrics, unusable
from promptgraft.evals.dataset import cases_digest
from promptgraft.evals.evaluate import Evaluation, evaluate
from promptgraft.evals.gains import mean
from promptgraft.evals.metrics.base import is_required
from promptgraft.evals.types import Answer, Case, Metric
from promptgraft.ground.notebook import Card, Shown, first_rows
from promptgraft.ground.serde import HexDigest, Json, unstructure
from promptgraft.ground.text import cases_of_split, counted, score
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.session import SessionProtocol

_CRASHED = CaseStatus.CRASHED
_SHOWN_IDS = 20
_SHOWN_OF_CASES = ("id", "critical", "score", "passed", "reason")


@attrs.frozen(kw_only=True)
class Answered:
    """The part of an attempt that a gate keeps.

    Attributes:
        answer: the answer without its steps and turns; None if there is none.
        seconds: the time that the models took, including judges.
    """

    outcome: CaseOutcome
    answer: Answer | None
    seconds: float

    @classmethod
    def of(cls, attempt: CaseAttempt) -> Answered:
        """Return the part of an attempt that a gate keeps."""
        calls = (*attempt.task_calls, *attempt.judge_calls)
        return cls(
            outcome=attempt.outcome,
            # Steps and turns may be large, and no report shows them.
            answer=attempt.answer and attrs.evolve(attempt.answer, steps=(), turns=()),
            seconds=math.fsum(call.seconds for call in calls),
        )


@attrs.frozen(kw_only=True)
class CaseResult:
    """One case with all answers to it.

    Attributes:
        critical: whether it must never get worse.
        family: what the cases share that answer like it and count as one; empty if it is alone.
        outcomes: the outcome of each answer, run by run; at least one.
        seconds: the time that the models took for each answer, including judges.
        required: the metrics that a case must pass.
        again: additional answers to a critical case that scored lower than in a baseline. They
            count in no mean and in no rate.
        repairs: how those of its answers were repaired that had to be, one line each.
    """

    id: str
    critical: bool
    family: str = ""
    outcomes: tuple[CaseOutcome, ...]
    seconds: tuple[float, ...]
    required: frozenset[str] = frozenset()
    again: tuple[CaseOutcome, ...] = ()
    repairs: tuple[str, ...] = ()

    @property
    def scores(self) -> tuple[float, ...]:
        """The scores of all scored answers, including those of ``again``."""
        scores = (outcome.score for outcome in (*self.outcomes, *self.again))
        return tuple(score for score in scores if score is not None)

    @property
    def score(self) -> float | None:
        """The mean over the scored answers; None without any."""
        return mean(outcome.score for outcome in self.outcomes)

    @property
    def scored(self) -> int:
        """The number of scored answers."""
        return len(self.outcomes) - self.unscored

    @property
    def unscored(self) -> int:
        """The number of unscored answers."""
        return sum(outcome.status is CaseStatus.UNSCORED for outcome in self.outcomes)

    @property
    def passes(self) -> int:
        """The number of passing answers."""
        return sum(outcome.status is CaseStatus.PASSED for outcome in self.outcomes)

    @property
    def passed(self) -> bool | None:
        """Whether all scored answers pass; None without any."""
        # A case that passes only sometimes would pass or fail a gate by chance.
        return self.passes == self.scored if self.scored else None

    @property
    def reason(self) -> str:
        """Why the first such answer does not pass or has no score; empty if all pass."""
        status = CaseStatus.UNSCORED if self.passed is None else None
        for outcome in self.outcomes:
            if outcome.status is status or outcome.status in (
                CaseStatus.FAILED,
                CaseStatus.CRASHED,
            ):
                return reason_of(outcome, self.required)
        return ""


def reason_of(outcome: CaseOutcome, required: frozenset[str] = frozenset()) -> str:
    """Return why an answer does not pass: one line for each required metric that failed.

    If none of the failed metrics is required, there is one line for each of them.
    """
    if outcome.error or outcome.status is CaseStatus.PASSED:
        return outcome.error
    failed = [verdict for verdict in outcome.verdicts if verdict.passed is False]
    counting = [verdict for verdict in failed if verdict.metric in required] or failed
    return "\n".join(
        f"{verdict.metric} {verdict.score:.4g}: {verdict.reason}" for verdict in counting
    )


def in_a_row(reason: str) -> str:
    """Return a reason in one line: functions of users give several."""
    lines = (" ".join(line.split()) for line in reason.splitlines())
    return "; ".join(filter(None, lines))


def case_results(
    cases: Iterable[Case], answered: Iterable[Answered], metrics: Sequence[Metric]
) -> tuple[CaseResult, ...]:
    """Return cases with their answers, run by run; cases without an answer are left out."""
    by_case: dict[str, list[Answered]] = {}
    for item in answered:
        by_case.setdefault(item.outcome.case_id, []).append(item)
    required = frozenset(metric.name for metric in metrics if is_required(metric))
    return tuple(
        CaseResult(
            id=case.id,
            critical=case.critical,
            family=case.family,
            outcomes=tuple(item.outcome for item in by_case[case.id]),
            seconds=tuple(item.seconds for item in by_case[case.id]),
            required=required,
            repairs=tuple(
                "; ".join(item.answer.notes)
                for item in by_case[case.id]
                if item.answer is not None and item.answer.notes
            ),
        )
        for case in cases
        if case.id in by_case
    )


@attrs.frozen(kw_only=True)
class TriedPrompt:
    """What was evaluated on which cases: the head of a report and of a baseline.

    Attributes:
        prompt: namespace and key.
        tried: the version of the prompt, in words, such as ``tag `latest```.
        split: the split of the cases.
        model: the identity of the adapter that answered.
        dataset: digest of the cases.
        metrics: names and digest of the metrics.
        num_runs: how often each case was answered.
    """

    prompt: str
    tried: str
    split: str
    model: str
    dataset: HexDigest
    metrics: str
    num_runs: int

    def head(self) -> dict[str, Any]:
        """Return the attributes of the head by name, without those of a subclass."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(TriedPrompt)}


@attrs.frozen(kw_only=True, repr=False)
class GateReport(TriedPrompt, Shown):
    """The report on an evaluation. Unscored answers count in no mean and in no rate.

    Attributes:
        cases: in the order of the data set.
        stopped: why the evaluation ended early; empty if it did not.
    """

    cases: tuple[CaseResult, ...]
    stopped: str = ""

    @property
    def mean_score(self) -> float | None:
        """The mean over the scored cases; None without any."""
        return mean(case.score for case in self.cases)

    @property
    def pass_rate(self) -> float | None:
        """The share of scored answers that pass; None without any."""
        scored = sum(case.scored for case in self.cases)
        return sum(case.passes for case in self.cases) / scored if scored else None

    @property
    def failing(self) -> tuple[CaseResult, ...]:
        """The cases that do not pass: critical ones first, then by score from the lowest."""
        failing = [case for case in self.cases if case.passed is False]
        return tuple(sorted(failing, key=lambda case: (not case.critical, case.score)))

    @property
    def unusable(self) -> str:
        """Why not a single answer could be used; empty if one could."""
        outcomes = [outcome for case in self.cases for outcome in case.outcomes]
        return unusable(
            (
                outcome.case_id,
                outcome.error.removeprefix(UNUSABLE) if outcome.status is _CRASHED else "",
            )
            for outcome in outcomes
        )

    @property
    def unscored(self) -> int:
        """The number of unscored answers."""
        return sum(case.unscored for case in self.cases)

    @property
    def constants(self) -> tuple[str, ...]:
        """A line for each metric that scored many answers all the same below 1, or not at all."""
        scores: dict[str, list[float]] = {}
        reasons: dict[str, list[str]] = {}
        outcomes = (outcome for case in self.cases for outcome in case.outcomes)
        for verdict in (verdict for outcome in outcomes for verdict in outcome.verdicts):
            if verdict.score is None:
                reasons.setdefault(verdict.metric, []).append(verdict.reason)
            else:
                scores.setdefault(verdict.metric, []).append(verdict.score)
        return *constant_metrics(scores), *silent_metrics(reasons, scores)

    @property
    def repaired(self) -> str:
        """How many answers were repaired, and how the first was; empty if none was."""
        repairs = [note for case in self.cases for note in case.repairs]
        if not repairs:
            return ""
        answers = sum(len(case.outcomes) for case in self.cases)
        return f"{len(repairs)} of {counted(answers, 'answer')} repaired: {repairs[0]}"

    @property
    def critical_unscored(self) -> tuple[str, ...]:
        """The ids of critical cases without any score."""
        return tuple(case.id for case in self.cases if case.critical and case.score is None)

    def joined(self, again: GateReport) -> GateReport:
        """Return the report with the additional answers of another one."""
        more = {case.id: case.outcomes for case in again.cases}
        cases = (
            attrs.evolve(case, again=(*case.again, *more.get(case.id, ()))) for case in self.cases
        )
        return attrs.evolve(self, cases=tuple(cases), stopped=again.stopped)

    def line(self) -> str:
        """Return the subject and the main figures on one line."""
        return (
            f"{self.prompt}, {self.tried}, {cases_of_split(len(self.cases), self.split)}: "
            f"pass rate {score(self.pass_rate)}, mean score {score(self.mean_score)}"
        )

    def __repr__(self) -> str:
        names = [repr(case.id) for case in self.failing]
        failing = f", failing {', '.join(names[:_SHOWN_IDS])}" if names else ""
        more = f" and {len(names) - _SHOWN_IDS} more" if len(names) > _SHOWN_IDS else ""
        return f"<{self.line()}{failing}{more}>"

    def _card(self) -> Card:
        failing = ((case.id, score(case.score), case.reason) for case in self.failing)
        return Card(
            title=self.prompt,
            lead=f"pass rate {score(self.pass_rate)}, mean score {score(self.mean_score)}",
            fields=(
                ("tried", self.tried),
                ("cases", cases_of_split(len(self.cases), self.split)),
                ("model", self.model),
                ("unscored", f"{self.unscored}"),
            ),
            blocks=(first_rows(failing, ("failing", "score", "why")),),
        )

    def case(self, case_id: str) -> CaseResult:
        """Return the case with this id.

        Raises:
            KeyError: there is none.
        """
        return {case.id: case for case in self.cases}[case_id]

    def to_json(self) -> dict[str, Json]:
        """Return the report as plain data."""
        return {
            **self.head(),
            "mean_score": self.mean_score,
            "pass_rate": self.pass_rate,
            "unscored": self.unscored,
            "repaired": self.repaired,
            "stopped": self.stopped,
            "cases": [
                {
                    **{name: getattr(case, name) for name in _SHOWN_OF_CASES},
                    "answers": list(map(_outcome_json, case.outcomes)),
                    "again": list(map(_outcome_json, case.again)),
                }
                for case in self.cases
            ],
        }


def _outcome_json(outcome: CaseOutcome) -> Json:
    plain = unstructure(outcome)
    assert isinstance(plain, dict)  # noqa: S101 - an attrs class
    return {name: value for name, value in plain.items() if name != "case_id"}


@attrs.frozen(kw_only=True)
class Subject:
    """One version of a prompt, with everything that is needed to evaluate it.

    Attributes:
        prompt: with the store that holds its overrides, if there are any.
        tried: the version of the prompt, in words.
        split: the split of the cases.
        aggregation: combines the scores of metrics; None for their mean.
        params: makes the parameters of a case; None for its input.
        notes: warnings about the scores, one line each.
    """

    prompt: Prompt[object]
    tried: str
    split: str
    cases: tuple[Case, ...]
    metrics: tuple[Metric, ...]
    adapter: ProviderAdapter
    aggregation: Aggregation | None = None
    params: ParamsOf | None = None
    notes: tuple[str, ...] = ()

    def of(self, ids: Collection[str]) -> tuple[Case, ...]:
        """Return the cases with these ids."""
        return tuple(case for case in self.cases if case.id in ids)

    def evaluate(
        self,
        cases: Iterable[Case] | None = None,
        *,
        num_runs: int = 1,
        executor: Executor | None = None,
        session: SessionProtocol | None = None,
    ) -> Evaluation:
        """Evaluate the prompt on all or some of its cases; see ``evaluate``."""
        return evaluate(
            self.prompt,
            self.cases if cases is None else cases,
            self.metrics,
            adapter=self.adapter,
            params=self.params,
            aggregation=self.aggregation,
            num_runs=num_runs,
            executor=executor,
            session=session,
        )

    def report(
        self, answered: Iterable[Answered], *, num_runs: int = 1, stopped: str = ""
    ) -> GateReport:
        """Return the report on answers: ``num_runs`` for each case, run by run."""
        return GateReport(
            prompt=f"{self.prompt.descriptor.ns}/{self.prompt.descriptor.key}",
            tried=self.tried,
            split=self.split,
            model=adapter_identity(self.adapter),
            dataset=cases_digest(self.cases),
            metrics=metrics_identity(self.metrics, self.aggregation),
            num_runs=num_runs,
            cases=case_results(self.cases, answered, self.metrics),
            stopped=stopped,
        )
