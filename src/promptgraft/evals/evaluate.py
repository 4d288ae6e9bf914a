"""A prompt tried on cases, and judged: once, or several times."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future

import attrs

from promptgraft.adapters.base import ProviderAdapter, check_adapter, opened
from promptgraft.errors import (
    BindingError,
    CandidateError,
    ConfigError,
    LimitReachedError,
    PermanentProviderError,
)
from promptgraft.evals.aggregate import (
    Aggregation,
    CaseRepeats,
    EvaluationReport,
    Spread,
    Varies,
    case_repeats,
    report_card,
    spread_of_runs,
    summarize,
    unscored,
)
from promptgraft.evals.attempt import Attempt, Attempting
from promptgraft.evals.faults import CaseFaults, in_one_line
from promptgraft.evals.metrics.base import asks_models
from promptgraft.evals.metrics.checking import check_asked, check_cases, check_metrics
from promptgraft.evals.types import Case, Metric
from promptgraft.frozenmap import FrozenMap
from promptgraft.isolation import isolated
from promptgraft.notebook import Card, Shown
from promptgraft.prompt.rendering import values_of
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import TextsPrompt, takes_cases
from promptgraft.runtime.deadline import Deadline, as_ended
from promptgraft.runtime.event_loop import check_may_wait
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import did_you_mean, shown
from promptgraft.strict.checks import COUNT
from promptgraft.text import listed, score

ParamsOf = Callable[[Case], object]
"""Makes what a prompt is bound to of a case: one parameter, or a tuple of several."""

Plan = Sequence[tuple[Case, Prompt[object], int]]
"""What is tried: a case, its prompt, and the number of the run."""


class _CaseInput(FrozenMap[str, object]):
    """A class of its own: a prompt keeps only the last parameter of each class."""


def params_of_cases(
    prompt: Prompt[object], cases: Iterable[Case], params: ParamsOf | None = None
) -> dict[str, tuple[object, ...]]:
    """Return what the prompt is bound to for each case, by the id of the case.

    Without ``params`` a text goes to the one placeholder that is open, and an object to the
    placeholders of its names; the prompt of an agent takes the case itself. To a recorded answer
    nothing is bound.

    Cases that do not fit the prompt raise one ``ConfigError``, which says once what several of them
    share.
    """
    faults = in_one_line()
    made = params_of_fitting(prompt, cases, params, faults)
    faults.refuse()
    return made


def params_of_fitting(
    prompt: Prompt[object], cases: Iterable[Case], params: ParamsOf | None, faults: CaseFaults
) -> dict[str, tuple[object, ...]]:
    """Return the same for the cases that fit the prompt, and note what is wrong with the others."""
    made: dict[str, tuple[object, ...]] = {}
    make = params or _maker_of(prompt)
    for case in cases:
        if case.recorded is not None:
            made[case.id] = ()
            continue
        try:
            found = make(case)
            made[case.id] = _checked_params(prompt, found)
        except (BindingError, ConfigError) as error:
            faults.add_of(case, str(error))
    return made


def _maker_of(prompt: Prompt[object]) -> ParamsOf:
    if takes_cases(prompt):
        return lambda case: case
    if isinstance(prompt, TextsPrompt) and prompt.takes_inputs:
        return lambda case: case.input
    open_names, hints = _open_placeholders(prompt), prompt.template.lookalikes()
    return lambda case: _by_name(case, open_names, hints)


def _checked_params(prompt: Prompt[object], found: object) -> tuple[object, ...]:
    made = found if isinstance(found, tuple) else (found,)
    # A block that does not render with these values is the prompt's fault, not the case's.
    with contextlib.suppress(CandidateError):
        # Overrides can use no other placeholders than the source.
        attrs.evolve(prompt.bind(*made), overrides_store=None).render()
    return made


def _by_name(
    case: Case, open_names: tuple[str, ...], hints: Mapping[str, str]
) -> Mapping[str, object]:
    if case.turns or case.context:
        raise ConfigError(
            "a case with several turns or a context needs `params` that say where they go"
        )
    there = listed(open_names) or "none"
    if isinstance(case.input, dict):
        for name in case.input:
            if name not in open_names:
                near = did_you_mean(name, list(open_names))
                mend = hints.get(name, f"open placeholders: {there}")
                raise ConfigError(f"input: the prompt has no placeholder `{name}`{near}; {mend}")
        if missing := [name for name in open_names if name not in case.input]:
            raise ConfigError(f"input: expected a value for {listed(missing)}, found none")
        return _CaseInput(case.input)
    if not isinstance(case.input, str):
        raise ConfigError(f"input: expected a text or an object, found {shown(case.input)}")
    if len(open_names) != 1:
        meant = "" if open_names else "; ".join(itertools.islice(hints.values(), 3))
        mend = meant or "give an object with values by name, or `params`"
        raise ConfigError(f"input: a text needs one open placeholder, found {there}; {mend}")
    return _CaseInput({open_names[0]: case.input})


def _open_placeholders(prompt: Prompt[object]) -> tuple[str, ...]:
    """Return the names that the prompt reads and that are not bound yet."""
    known = {name for param in prompt.params for name in values_of(param)}
    reads = dict.fromkeys(
        name for _, section in prompt.template.walked for name in section.source.reads
    )
    return tuple(name for name in reads if name not in known)


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
        executor: runs cases side by side, in threads; None tries them in turn.
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
    attempting = Attempting(
        adapter=adapter,
        metrics=tuple(metrics),
        aggregation=aggregation,
        session=session,
        deadline=deadline,
    )
    prompts = [(case, prompt.bind(*bound[case.id])) for case in chosen]
    plan = [(*_isolated(*planned), run) for run in range(num_runs) for planned in prompts]
    with opened(adapter):
        found = (
            _in_turn(attempting, plan) if executor is None else _at_once(attempting, plan, executor)
        )
    stopped = _stopped(found, len(plan), deadline)
    attempts = tuple(
        found.get(place) or _untried(case, run, stopped)
        for place, (case, _, run) in enumerate(plan)
    )
    by_run = [attempts[len(chosen) * run :][: len(chosen)] for run in range(num_runs)]
    runs = tuple(summarize((one.outcome for one in made), metrics) for made in by_run)
    judged_anew = any(asks_models(metric) for metric in metrics)
    repeats = [
        case_repeats([run.cases[place] for run in runs], _varies(case, judged_anew))
        for place, case in enumerate(chosen)
    ]
    return Evaluation(
        runs=runs,
        cases=tuple(repeats),
        score=spread_of_runs(runs),
        attempts=attempts,
        stopped=stopped,
    )


def _checked(
    prompt: Prompt[object], cases: Iterable[Case], metrics: Sequence[Metric], num_runs: int
) -> tuple[Case, ...]:
    chosen = tuple(cases)
    if not chosen:
        raise ConfigError("cases: expected at least one case, found none")
    twice = [found for found, count in Counter(case.id for case in chosen).items() if count > 1]
    if twice:
        raise ConfigError(f"cases: two cases have the id `{twice[0]}`; ids must differ")
    COUNT.hold("num_runs", num_runs)
    check_metrics(metrics)
    check_cases(metrics, chosen, prompt.template.output_type, by_turn=takes_cases(prompt))
    return chosen


def _varies(case: Case, judged_anew: bool) -> Varies:
    if case.recorded is None:
        return Varies.BOTH if judged_anew else Varies.ANSWERS
    return Varies.JUDGEMENTS if judged_anew else Varies.NOTHING


def _isolated(case: Case, prompt: Prompt[object]) -> tuple[Case, Prompt[object]]:
    """Return copies that no tool and no metric of another attempt changes."""
    own_case, params = isolated((case, prompt.params), where=f"case `{case.id}`")
    return own_case, attrs.evolve(prompt, params=params)


def _in_turn(attempting: Attempting, plan: Plan) -> dict[int, Attempt]:
    """Return the attempts until a limit was reached, by their place in the plan."""
    found: dict[int, Attempt] = {}
    for place, (case, prompt, run) in enumerate(plan):
        found[place] = attempting(case, prompt, run)
        if found[place].stopped:
            break
    return found


def _at_once(attempting: Attempting, plan: Plan, executor: Executor) -> dict[int, Attempt]:
    """Return the same of attempts side by side, or raise the error of the first place."""
    futures = {executor.submit(attempting, *planned): at for at, planned in enumerate(plan)}
    found: dict[int, Attempt] = {}
    failures: dict[int, BaseException] = {}
    try:
        for future in as_ended(futures, attempting.deadline):
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


def _untried(case: Case, run: int, why: str) -> Attempt:
    return Attempt(case_id=case.id, run=run, outcome=unscored(case.id, f"not tried: {why}"))
