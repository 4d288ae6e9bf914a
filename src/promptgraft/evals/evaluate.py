"""Evaluation of a prompt on cases, in one run or several."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from typing import Any

import attrs

from promptgraft.adapters.abilities import check_serves, opened
from promptgraft.adapters.base import ProviderAdapter, check_adapter
from promptgraft.adapters.calling.gathering import BatchExecutor
from promptgraft.errors import (
    CandidateError,
    ConfigError,
    LimitReachedError,
    PermanentProviderError,
)
from promptgraft.evals import aggregate
from promptgraft.evals.attempt import UNANSWERED, CaseAttempt, attempted
from promptgraft.evals.binding import ParamsOf, params_of_cases
from promptgraft.evals.metrics.judging import check_asked, check_cases, check_metrics
from promptgraft.evals.types import Case, Metric, cases_of
from promptgraft.ground.content import kinds_of_files
from promptgraft.ground.frames import frame_of
from promptgraft.ground.frozenmap import isolated
from promptgraft.ground.notebook import Card, Shown
from promptgraft.ground.strict.checks import COUNT, instance
from promptgraft.ground.text import score
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import plays_turns
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.event_loop import check_may_wait
from promptgraft.runtime.futures import as_ended
from promptgraft.runtime.session import SessionProtocol

Plan = Sequence[tuple[Case, Prompt[object], int]]
"""The attempts to make: each a case, its bound prompt, and the number of the run."""


@attrs.frozen(kw_only=True)
class Evaluation(Shown):
    """The result of an evaluation.

    Attributes:
        runs: the report of each run over all cases.
        cases: each case over all runs, in the order of the cases.
        score: mean and standard deviation of the runs' mean scores, over the cases that have a
            score in every run.
        attempts: all answers, run by run and in the order of the cases.
        stopped: why the evaluation ended early; empty if it did not. The remaining cases are
            unscored.
    """

    runs: tuple[aggregate.EvaluationReport, ...]
    cases: tuple[aggregate.CaseSummary, ...]
    score: aggregate.Spread
    attempts: tuple[CaseAttempt, ...]
    stopped: str = ""

    @property
    def report(self) -> aggregate.EvaluationReport:
        """The report of the first run."""
        return self.runs[0]

    def to_frame(self, library: str = "pandas") -> Any:
        """Return a table of ``pandas``, ``polars`` or ``pyarrow`` with one row per answer.

        The columns are ``case``, ``run`` (from 0), ``status``, ``score``, ``error``, ``answer``
        (its text), and ``metric NAME`` and ``reason NAME`` with what each metric gave.

        Raises:
            ConfigError: the library is unknown or not installed.
        """
        rows = [
            {
                "case": attempt.case_id,
                "run": attempt.run,
                "status": attempt.outcome.status.value,
                "score": attempt.outcome.score,
                "error": attempt.outcome.error,
                "answer": None if attempt.answer is None else attempt.answer.text,
                **{
                    f"{column} {verdict.metric}": value
                    for verdict in attempt.outcome.verdicts
                    for column, value in (("metric", verdict.score), ("reason", verdict.reason))
                },
            }
            for attempt in self.attempts
        ]
        return frame_of(rows, library)

    def __repr__(self) -> str:
        return f"<Evaluation {len(self.runs)} runs, the first: {self.report!r}>"

    def _card(self) -> Card:
        card = aggregate.report_card(self.report)
        fields = list(card.fields)
        if len(self.runs) > 1:
            mean, deviation = score(self.score.mean), score(self.score.deviation)
            fields.append(("runs", f"{len(self.runs)}; the first is shown"))
            fields.append(("mean of all", f"{mean}, standard deviation {deviation}"))
        if self.stopped:
            fields.append(("stopped", self.stopped))
        return attrs.evolve(card, fields=tuple(fields))


def evaluate(
    prompt: Prompt[object],
    cases: Iterable[Case],
    metrics: Sequence[Metric],
    *,
    adapter: ProviderAdapter,
    params: ParamsOf | None = None,
    aggregation: aggregate.Aggregation | None = None,
    num_runs: int = 1,
    executor: Executor | None = None,
    deadline: Deadline | None = None,
    session: SessionProtocol | None = None,
) -> Evaluation:
    """Answer cases with a prompt and judge the answers; recorded answers are judged as they are.

    Everything is checked before the first call. Results are in the order of the cases, whatever
    the number of threads.

    Args:
        prompt: the prompt, with the parameters that are the same for every case already bound.
        cases: cases with different ids.
        metrics: metrics with different names.
        adapter: the model or agent that answers.
        params: makes the remaining parameters of the prompt from a case. By default a text fills
            the only open placeholder, and an object fills the placeholders of its keys' names.
        aggregation: combines the scores of a case's metrics; None for their mean.
        num_runs: how often each case is answered and judged.
        executor: runs cases concurrently, in threads; None runs them one after the other. In a
            ``BatchExecutor``, models with ``mode="batch"`` answer in batches.
        deadline: the end of the evaluation; by default that of ``session``.
        session: pays for model calls, and receives an event for each.

    Raises:
        ConfigError: the cases, metrics and prompt do not fit together.
        PermanentProviderError: the model or a judge refuses permanently, or nothing answers.
        CallerError: a user's metric failed.
    """
    check_adapter(adapter, "adapter")
    instance(Executor).or_none.hold("executor", executor)
    instance(Deadline).or_none.hold("deadline", deadline)
    if executor is not None:
        check_may_wait()
    chosen = _checked(prompt, cases, metrics, num_runs)
    check_asked(adapter, chosen, metrics)
    bound = params_of_cases(prompt, chosen, params)
    check_served(adapter, prompt, bound.values())
    if deadline is None and session is not None:
        deadline = session.deadline
    attempt = functools.partial(
        attempted,
        adapter=adapter,
        metrics=tuple(metrics),
        aggregation=aggregation,
        whole=session,
        deadline=deadline,
    )
    prompts = [(case, prompt.bind(*bound[case.id])) for case in chosen]
    # Run by run, so that an evaluation that is stopped has whole runs first.
    plan = [(*_isolated(*planned), run) for run in range(num_runs) for planned in prompts]
    with opened(adapter):
        if executor is None:
            all_attempts = _in_turn(attempt, plan)
        else:
            all_attempts = _at_once(attempt, plan, executor, deadline)
    stopped = _stopped(all_attempts, len(plan), deadline)
    why = f"not tried: {stopped}"
    attempts = [
        all_attempts.get(place)
        or CaseAttempt(case_id=case.id, run=run, outcome=aggregate.unscored(case.id, why))
        for place, (case, _, run) in enumerate(plan)
    ]
    return _evaluation(len(chosen), metrics, attempts, stopped)


def check_served(
    adapter: ProviderAdapter, prompt: Prompt[object], bound: Iterable[tuple[object, ...]]
) -> None:
    """Raise a ``ConfigError`` if the adapter cannot answer the prompt with the first parameters.

    The first with each kind of file are tried too.
    """
    params_bound = [params for params in bound if params]  # none where an answer is recorded
    for place in kinds_of_files(params_bound):
        # A block that does not render scores 0, as in a run.
        with contextlib.suppress(CandidateError):
            check_serves(adapter, prompt.bind(*params_bound[place]).render())


def _checked(
    prompt: Prompt[object], cases: Iterable[Case], metrics: Sequence[Metric], num_runs: int
) -> tuple[Case, ...]:
    instance(Prompt).hold("prompt", prompt)
    chosen = cases_of(cases)
    if not chosen:
        raise ConfigError("cases: expected at least one case, found none")
    COUNT.hold("num_runs", num_runs)
    check_metrics(metrics)
    check_cases(metrics, chosen, prompt.template.output_type, by_turn=plays_turns(prompt))
    return chosen


def _evaluation(
    size: int, metrics: Sequence[Metric], attempts: Sequence[CaseAttempt], stopped: str
) -> Evaluation:
    """Return the result of attempts that are ordered run by run."""
    by_run = [attempts[begin : begin + size] for begin in range(0, len(attempts), size)]
    runs = tuple(
        aggregate.summarize((attempt.outcome for attempt in attempts_of_run), metrics)
        for attempts_of_run in by_run
    )
    return Evaluation(
        runs=runs,
        cases=tuple(map(aggregate.summarize_case, zip(*(run.cases for run in runs), strict=True))),
        score=aggregate.spread_of_runs(runs),
        attempts=tuple(attempts),
        stopped=stopped,
    )


def _isolated(case: Case, prompt: Prompt[object]) -> tuple[Case, Prompt[object]]:
    """Return copies that tools and metrics of other attempts cannot change."""
    own_case, params = isolated((case, prompt.params), where=f"case `{case.id}`")
    return own_case, attrs.evolve(prompt, params=params)


def _in_turn(attempt: Callable[..., CaseAttempt], plan: Plan) -> dict[int, CaseAttempt]:
    """Make attempts one by one until a limit is reached; return them by position in the plan."""
    attempts_by_place: dict[int, CaseAttempt] = {}
    for place, (case, prompt, run) in enumerate(plan):
        attempts_by_place[place] = attempt(case, prompt, run)
        _refuse_outage(attempts_by_place)
        if attempts_by_place[place].stopped:
            break
    return attempts_by_place


def _at_once(
    attempt: Callable[..., CaseAttempt], plan: Plan, executor: Executor, ends: Deadline | None
) -> dict[int, CaseAttempt]:
    """Make attempts concurrently; raise the error of the first in the plan that failed."""
    # Held, so that no batch is sent before all attempts have been submitted.
    with executor.held() if isinstance(executor, BatchExecutor) else nullcontext():
        futures = {executor.submit(attempt, *planned): at for at, planned in enumerate(plan)}
    attempts_by_place: dict[int, CaseAttempt] = {}
    failures: dict[int, BaseException] = {}
    try:
        for future in as_ended(futures, ends):
            if future.cancelled():
                continue
            if error := future.exception():
                failures[futures[future]] = error
                if isinstance(error, PermanentProviderError):
                    break  # those in flight will be refused too, so do not wait for them
            else:
                attempts_by_place[futures[future]] = future.result()
                _refuse_outage(attempts_by_place)
            if error or future.result().stopped:
                _cancel(futures)
    finally:
        _cancel(futures)  # after an interrupt too, so that no further case is paid for
    if failures:
        raise failures[min(failures)]
    return attempts_by_place


_FIRST = 5  # in the plan: among many side by side, those that fail are the first to end


def _refuse_outage(attempts: Mapping[int, CaseAttempt]) -> None:
    """Raise a ``PermanentProviderError`` if the first cases, and all others, had no answer."""
    errors = (attempt.outcome.error for attempt in attempts.values())
    if all(error.startswith(UNANSWERED) for error in errors) and {*range(_FIRST)} <= {*attempts}:
        raise PermanentProviderError(
            f"nothing has answered, and the first {_FIRST} cases were all tried in vain: "
            f"{attempts[0].outcome.error.removeprefix(UNANSWERED)}; mend that, then run it again"
        )


def _cancel(futures: Iterable[Future[CaseAttempt]]) -> None:
    for future in futures:
        future.cancel()


def _stopped(attempts: Mapping[int, CaseAttempt], planned: int, ends: Deadline | None) -> str:
    """Return why the plan was not completed; empty if it was."""
    for place in sorted(attempts):
        if attempts[place].stopped:
            return attempts[place].stopped
    if len(attempts) < planned and ends is not None:
        try:
            ends.check()
        except LimitReachedError as error:
            return str(error)
    return ""
