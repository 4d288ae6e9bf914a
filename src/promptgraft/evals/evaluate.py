"""A prompt tried on cases, and judged: once, or several times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future

import attrs

from promptgraft.adapters.base import ProviderAdapter, check_adapter
from promptgraft.errors import ConfigError, LimitReachedError
from promptgraft.evals.aggregate import (
    CaseRepeats,
    EvaluationReport,
    Spread,
    Varies,
    case_repeats,
    spread_of_runs,
    summarize,
    unscored,
)
from promptgraft.evals.aggregation import Aggregation
from promptgraft.evals.attempt import Attempt, Attempting
from promptgraft.evals.binding import ParamsOf, bind_cases
from promptgraft.evals.metrics.base import asks_models, check_cases, check_metrics
from promptgraft.evals.types import Case, Metric
from promptgraft.notebook import Card, Shown
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.event_loop import check_may_wait
from promptgraft.runtime.session import SessionProtocol
from promptgraft.runtime.side_by_side import as_ended
from promptgraft.strict.checks import COUNT


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
        """The figures of the first run; the whole evaluation when there is no other."""
        return self.runs[0]

    def __repr__(self) -> str:
        return f"<Evaluation {len(self.runs)} runs, the first: {self.report!r}>"

    def _card(self) -> Card:
        from promptgraft.evals.cards import evaluation_card

        return evaluation_card(self)


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
        executor: runs cases side by side, in threads; None tries them in turn.
        deadline: when the evaluation ends; that of ``session`` when it is None.
        session: pays, and is told of every call of a model when it ends.

    Raises:
        ConfigError: cases, metrics and prompt do not fit together.
        PermanentProviderError: the model or a judge refuses for good.
        CallerError: a metric of the user failed.
    """
    check_adapter(adapter, "adapter")
    if executor is not None:
        check_may_wait()
    chosen = _checked(cases, metrics, num_runs)
    prompts = bind_cases(prompt, chosen, params)
    attempting = Attempting(
        adapter=adapter,
        metrics=tuple(metrics),
        aggregation=aggregation,
        session=session,
        deadline=deadline,
    )
    plan = [(case, run) for run in range(num_runs) for case in chosen]
    attempts, stopped = _Tries(attempting, prompts, executor).made(plan)
    judged_anew = any(asks_models(metric) for metric in metrics)
    by_run = [attempts[len(chosen) * run :][: len(chosen)] for run in range(num_runs)]
    runs = [summarize((one.outcome for one in found), metrics) for found in by_run]
    return Evaluation(
        runs=tuple(runs),
        cases=tuple(
            case_repeats([run.cases[place] for run in runs], _varies(case, judged_anew))
            for place, case in enumerate(chosen)
        ),
        score=spread_of_runs(runs),
        attempts=attempts,
        stopped=stopped,
    )


def _checked(cases: Iterable[Case], metrics: Sequence[Metric], num_runs: int) -> tuple[Case, ...]:
    chosen = tuple(cases)
    if not chosen:
        raise ConfigError("cases: expected at least one case, found none")
    twice = [found for found, count in Counter(case.id for case in chosen).items() if count > 1]
    if twice:
        raise ConfigError(f"cases: two cases have the id `{twice[0]}`; ids must differ")
    COUNT.hold("num_runs", num_runs)
    check_metrics(metrics)
    check_cases(metrics, chosen)
    return chosen


def _varies(case: Case, judged_anew: bool) -> Varies:
    if case.recorded is None:
        return Varies.BOTH if judged_anew else Varies.ANSWERS
    return Varies.JUDGEMENTS if judged_anew else Varies.NOTHING


@attrs.frozen
class _Tries:
    attempting: Attempting
    prompts: Mapping[str, Prompt[object]]
    executor: Executor | None

    def made(self, plan: Sequence[tuple[Case, int]]) -> tuple[tuple[Attempt, ...], str]:
        """Return an attempt for everything planned, and why they ended early."""
        if self.executor is None:
            found = self._in_turn(plan)
        else:
            found = self._side_by_side(self.executor, plan)
        stopped = self._stopped(found, plan)
        attempts = tuple(
            found[place] if place in found else _untried(case, run, stopped)
            for place, (case, run) in enumerate(plan)
        )
        return attempts, stopped

    def _in_turn(self, plan: Sequence[tuple[Case, int]]) -> dict[int, Attempt]:
        found: dict[int, Attempt] = {}
        for place, (case, run) in enumerate(plan):
            found[place] = self.attempting(case, self.prompts[case.id], run)
            if found[place].stopped:
                break
        return found

    def _side_by_side(
        self, executor: Executor, plan: Sequence[tuple[Case, int]]
    ) -> dict[int, Attempt]:
        futures: dict[Future[Attempt], int] = {
            executor.submit(self.attempting, case, self.prompts[case.id], run): place
            for place, (case, run) in enumerate(plan)
        }
        found: dict[int, Attempt] = {}
        failures: dict[int, BaseException] = {}
        try:
            for future in as_ended(futures, self.attempting.ends):
                if future.cancelled():
                    continue
                if error := future.exception():
                    failures[futures[future]] = error
                else:
                    found[futures[future]] = future.result()
                if error or future.result().stopped:
                    _cancel(futures)
        finally:
            _cancel(futures)
        if failures:
            raise failures[min(failures)]
        return found

    def _stopped(self, found: Mapping[int, Attempt], plan: Sequence[tuple[Case, int]]) -> str:
        for place in sorted(found):
            if found[place].stopped:
                return found[place].stopped
        ends = self.attempting.ends
        if len(found) == len(plan) or ends is None:
            return ""
        try:
            ends.check()
        except LimitReachedError as error:
            return str(error)
        return ""


def _untried(case: Case, run: int, why: str) -> Attempt:
    return Attempt(case_id=case.id, run=run, outcome=unscored(case.id, f"not tried: {why}"))


def _cancel(futures: Iterable[Future[Attempt]]) -> None:
    for future in futures:
        future.cancel()
