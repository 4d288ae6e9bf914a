"""A prompt tried on cases, and judged: once, or several times."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from typing import Any

import attrs

from promptgraft.adapters.base import ProviderAdapter, check_adapter, opened
from promptgraft.adapters.calling.gathering import BatchExecutor
from promptgraft.errors import (
    ConfigError,
    LimitReachedError,
    PermanentProviderError,
)
from promptgraft.evals.aggregate import (
    Aggregation,
    CaseRepeats,
    EvaluationReport,
    Spread,
    case_repeats,
    report_card,
    spread_of_runs,
    summarize,
    unscored,
)
from promptgraft.evals.attempt import Attempt, ParamsOf, attempted, params_of_cases
from promptgraft.evals.metrics.judging import check_asked, check_cases, check_metrics
from promptgraft.evals.types import Case, Metric
from promptgraft.frames import frame_of
from promptgraft.isolation import isolated
from promptgraft.notebook import Card, Shown
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import takes_cases
from promptgraft.runtime.deadline import Deadline, as_ended
from promptgraft.runtime.event_loop import check_may_wait
from promptgraft.runtime.session import SessionProtocol
from promptgraft.strict.checks import COUNT
from promptgraft.text import score

Plan = Sequence[tuple[Case, Prompt[object], int]]
"""What is tried: a case, its prompt, and the number of the run."""


@attrs.frozen(kw_only=True)
class Evaluation(Shown):
    """What an evaluation found.

    Attributes:
        runs: the figures of each run over all cases.
        cases: each case over all runs, in their order.
        score: how the mean score of whole runs spreads, over the cases with a score in each.
        attempts: every answer, run by run and in the order of the cases.
        stopped: why the evaluation ended before all cases were tried; empty when it did not.
            The cases that were not tried are unscored.
    """

    runs: tuple[EvaluationReport, ...]
    cases: tuple[CaseRepeats, ...]
    score: Spread
    attempts: tuple[Attempt, ...]
    stopped: str = ""

    @property
    def report(self) -> EvaluationReport:
        """The figures of the first run."""
        return self.runs[0]

    def to_frame(self, library: str = "pandas") -> Any:
        """Return the answers as a table of ``pandas``, ``polars`` or ``pyarrow``, one a row.

        A row has ``case``, ``run`` (from 0), ``status``, ``score``, ``error``, the ``answer`` as
        text, and the score of each metric as ``metric NAME``.

        Raises:
            ConfigError: the library is another one, or not installed.
        """
        rows = [
            {
                "case": one.case_id,
                "run": one.run,
                "status": one.outcome.status.value,
                "score": one.outcome.score,
                "error": one.outcome.error,
                "answer": None if one.answer is None else one.answer.text,
                **{f"metric {found.metric}": found.score for found in one.outcome.verdicts},
            }
            for one in self.attempts
        ]
        return frame_of(rows, library)

    def __repr__(self) -> str:
        return f"<Evaluation {len(self.runs)} runs, the first: {self.report!r}>"

    def _card(self) -> Card:
        card = report_card(self.report)
        fields = list(card.fields)
        if len(self.runs) > 1:
            mean, deviation = score(self.score.mean), score(self.score.deviation)
            fields.append(("runs", f"{len(self.runs)}, of which the first is shown"))
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
    aggregation: Aggregation | None = None,
    num_runs: int = 1,
    executor: Executor | None = None,
    deadline: Deadline | None = None,
    session: SessionProtocol | None = None,
) -> Evaluation:
    """Try a prompt on cases and judge the answers; recorded answers are judged as they are.

    Everything is checked before the first call. The result is in the order of the cases,
    however many are tried side by side.

    Args:
        prompt: with what is bound for every case.
        cases: with different ids.
        metrics: with different names.
        adapter: answers.
        params: makes the parameters of the prompt of a case; without it a text goes to the one
            placeholder that is open, and an object to the placeholders of its names.
        aggregation: makes one score of the metrics of a case; None for their mean.
        num_runs: how often each case is answered and judged.
        executor: runs cases side by side, in threads; None tries them in turn. In a
            ``BatchExecutor`` models with ``mode="batch"`` answer in batches.
        deadline: when the evaluation ends; that of ``session`` when it is None.
        session: pays for the calls of models, and gets an event for each.

    Raises:
        ConfigError: cases, metrics and prompt do not fit together.
        PermanentProviderError: the model or a judge refuses for good.
        CallerError: a metric of the user failed.
    """
    check_adapter(adapter, "adapter")
    if executor is not None:
        check_may_wait()
    chosen = _checked(prompt, cases, metrics, num_runs)
    check_asked(adapter, chosen, metrics)
    bound = params_of_cases(prompt, chosen, params)
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
    plan = [(*_isolated(*planned), run) for run in range(num_runs) for planned in prompts]
    with opened(adapter):
        if executor is None:
            found = _in_turn(attempt, plan)
        else:
            found = _at_once(attempt, plan, executor, deadline)
    stopped = _stopped(found, len(plan), deadline)
    why = f"not tried: {stopped}"
    attempts = [
        found.get(place) or Attempt(case_id=case.id, run=run, outcome=unscored(case.id, why))
        for place, (case, _, run) in enumerate(plan)
    ]
    return _evaluation(len(chosen), metrics, attempts, stopped)


def _checked(
    prompt: Prompt[object], cases: Iterable[Case], metrics: Sequence[Metric], num_runs: int
) -> tuple[Case, ...]:
    chosen = tuple(cases)
    if not chosen:
        raise ConfigError("cases: expected at least one case, found none")
    COUNT.hold("num_runs", num_runs)
    check_metrics(metrics)
    check_cases(metrics, chosen, prompt.template.output_type, by_turn=takes_cases(prompt))
    return chosen


def _evaluation(
    size: int, metrics: Sequence[Metric], attempts: Sequence[Attempt], stopped: str
) -> Evaluation:
    """Return the figures of the attempts, which come run by run."""
    by_run = [attempts[begin : begin + size] for begin in range(0, len(attempts), size)]
    runs = tuple(summarize((one.outcome for one in made), metrics) for made in by_run)
    return Evaluation(
        runs=runs,
        cases=tuple(map(case_repeats, zip(*(run.cases for run in runs), strict=True))),
        score=spread_of_runs(runs),
        attempts=tuple(attempts),
        stopped=stopped,
    )


def _isolated(case: Case, prompt: Prompt[object]) -> tuple[Case, Prompt[object]]:
    """Return copies that no tool and no metric of another attempt changes."""
    own_case, params = isolated((case, prompt.params), where=f"case `{case.id}`")
    return own_case, attrs.evolve(prompt, params=params)


def _in_turn(attempt: Callable[..., Attempt], plan: Plan) -> dict[int, Attempt]:
    """Return the attempts until a limit was reached, by their place in the plan."""
    found: dict[int, Attempt] = {}
    for place, (case, prompt, run) in enumerate(plan):
        found[place] = attempt(case, prompt, run)
        if found[place].stopped:
            break
    return found


def _at_once(
    attempt: Callable[..., Attempt], plan: Plan, executor: Executor, ends: Deadline | None
) -> dict[int, Attempt]:
    """Return the same of attempts side by side, or raise the error of the first place."""
    with executor.held() if isinstance(executor, BatchExecutor) else nullcontext():
        futures = {executor.submit(attempt, *planned): at for at, planned in enumerate(plan)}
    found: dict[int, Attempt] = {}
    failures: dict[int, BaseException] = {}
    try:
        for future in as_ended(futures, ends):
            if future.cancelled():
                continue
            if error := future.exception():
                failures[futures[future]] = error
                if isinstance(error, PermanentProviderError):
                    break  # those in flight will be refused, too
            else:
                found[futures[future]] = future.result()
            if error or future.result().stopped:
                _cancel(futures)
    finally:
        _cancel(futures)
    if failures:
        raise failures[min(failures)]
    return found


def _cancel(futures: Iterable[Future[Attempt]]) -> None:
    for future in futures:
        future.cancel()


def _stopped(found: Mapping[int, Attempt], planned: int, ends: Deadline | None) -> str:
    """Return why not everything was tried; empty when it was."""
    for place in sorted(found):
        if found[place].stopped:
            return found[place].stopped
    if len(found) < planned and ends is not None:
        try:
            ends.check()
        except LimitReachedError as error:
            return str(error)
    return ""
