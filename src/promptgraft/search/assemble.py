"""The second stage of a run: its journal, its first calls, its search, and the engine for it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
from msgspec.structs import replace

from promptgraft.adapters.calling.gathering import BatchExecutor
from promptgraft.errors import CallerError, DataFormatError, JournalCorruptError, PromptgraftError
from promptgraft.evals.spending import spent_from_json, spent_to_json
from promptgraft.ground.content import files_in
from promptgraft.ground.serde import digest, shown
from promptgraft.journal.base import NoJournal
from promptgraft.overrides.parts.body import BodySyntax
from promptgraft.prompt.syntax import SectionSource
from promptgraft.runtime.deadline import Deadline, remove_left_over
from promptgraft.runtime.session import EventBus, SessionProtocol, publishing
from promptgraft.search.algorithm import BaseSearch, Kit
from promptgraft.search.answers import Answers, Repeated, Working
from promptgraft.search.batches import AnswerSources
from promptgraft.search.calls import Calls
from promptgraft.search.driver import Driver
from promptgraft.search.events import Emit, Event, RunStarted, StopFileRemoved
from promptgraft.search.events import Working as WorkingNotice
from promptgraft.search.ledger import Ledger, RolloutBudget
from promptgraft.search.place import Place
from promptgraft.search.plan import RunPlan
from promptgraft.search.planning import plan_run
from promptgraft.search.population import Population
from promptgraft.search.preflight import CheckedRun
from promptgraft.search.reflection import ShownImages
from promptgraft.search.result import RunResult
from promptgraft.search.run_phases import BegunRun, Remarks, RunPhases
from promptgraft.search.scores import Scorer
from promptgraft.search.stopping import StopReason
from promptgraft.search.stops import Stops
from promptgraft.search.verdict import PassRules
from promptgraft.targets.base import Target, texts_of
from promptgraft.targets.part import PartOf
from promptgraft.targets.part_kinds import SectionModule
from promptgraft.targets.prompt_target import PromptTarget
from promptgraft.targets.texts import PlayingAdapter

_logger = logging.getLogger("promptgraft")

_PROBE = "rehearsal"
"""The key of the journal's record of the call before the run."""


def begin(checked: CheckedRun, session: SessionProtocol | None) -> BegunRun:
    """Bind the journal to a run.

    Raises:
        JournalError: the journal is locked, damaged, or belongs to another run.
    """
    context, limits = checked.context, checked.config.limits
    journal = context.journal
    fingerprint = checked.fingerprint if journal is None else checked.begin(journal)
    calls = None
    if journal is not None:
        # Only a journal can keep the calls of a run.
        from promptgraft.search.call_log import CallLog

        calls = CallLog(journal)
    ledger = Ledger(
        checked.config.budget, max_reflections=limits.max_reflections, budget=checked.budget
    )
    answers = Answers(NoJournal() if journal is None else journal, ledger, calls=calls)
    if calls is not None:
        # Calls that were in flight when an earlier process of the run was killed.
        ledger.count(calls.unfinished(), recorded=True)
    target = _with_recorded_base(checked.target, answers)
    # Another state of the store has other texts, so its plan would be that of another run.
    plan = checked.plan if target is checked.target else None
    return BegunRun(
        checked=attrs.evolve(checked, target=target, fingerprint=fingerprint, plan=plan),
        # From the journal's fingerprint, so that a run resumed with other functions keeps its id.
        run_id=attrs.evolve(checked, fingerprint=fingerprint).run_id,
        answers=answers,
        watch=attrs.evolve(checked.watch, keeper=calls),
        emit=_publishing(session, checked, target),
        session=session,
    )


def _publishing(session: SessionProtocol | None, checked: CheckedRun, target: Target) -> Emit:
    """Return a function that publishes events, with texts as the authors of prompts write them."""
    emit = publishing(session, checked.context.event_bus)
    sources: dict[str, SectionSource] = {}
    for module in target.modules:
        part = module.part if isinstance(module, PartOf) else module
        address = module.address if isinstance(module, PartOf) else next(iter(checked.prompts), "")
        if isinstance(part, SectionModule) and address in checked.prompts:
            source = checked.prompts[address].template.section(part.path).source
            if source.syntax in (BodySyntax.FORMAT, BodySyntax.JINJA):
                sources[module.name] = source
    return partial(_publish_written, emit, sources) if sources else emit


def _publish_written(emit: Emit, sources: Mapping[str, SectionSource], event: object) -> None:
    changes: dict[str, object] = {}
    if texts := getattr(event, "texts", {}):
        written = {
            part: sources[part].as_template(texts[part]) for part in sources if part in texts
        }
        changes["texts"] = {**texts, **written}
    elif source := sources.get(getattr(event, "module", None) or ""):
        for field in ("before", "after", "text"):
            if text := getattr(event, field, ""):
                changes[field] = source.as_template(text)
        if source.jinja and (detail := getattr(event, "detail", "")):
            changes["detail"] = source.jinja.spelled_out(detail)
    emit(replace(event, **changes) if changes and isinstance(event, Event) else event)


def _with_recorded_base(target: Target, answers: Answers) -> Target:
    """Return the target with the overrides that were in force when the run began.

    They are recorded like an answer: the winner of this very run changes the store, and a resumed
    run must see what it saw at first.
    """
    in_force, question = target.in_force, digest(target.identity.name)
    if in_force is None:
        return target
    recorded = answers.recall("base", question)
    if recorded is None:
        answers.journal.append("base", question, "base", in_force)
        return target
    try:
        return target.over(recorded)
    except DataFormatError as error:
        raise JournalCorruptError(
            f"the journal's record `base` is no override: {error}; restore the journal"
        ) from None


def search(begun: BegunRun) -> RunResult:
    """Run the search to its end and return the result; its winner is not stored yet.

    Before it, makes the calls that precede a search, and announces the run.

    Raises:
        CallerError: the agent fails, or the algorithm returns no search.
        ProviderError, LimitReachedError: from a call.
        ConfigError: an answer of the teacher cannot be used.
        PromptgraftError: the run failed; has the result so far if there is one.
    """
    checked = begun.checked
    context, bus = checked.context, checked.context.event_bus
    if context.journal is not None:
        bound = [prompt.params for prompt in checked.prompts.values()]
        params = [example.params for example in checked.examples]
        context.journal.keep_files(files_in([bound, params]))
    _probe_agent(begun)
    left_over = remove_left_over(checked.config.limits.stop_files)
    plan = checked.plan or plan_run(checked)
    _announce(begun, plan, left_over)
    working: Working | None = None
    if bus is not None:
        working = partial(_publish_progress, bus, plan=plan, ledger=begun.answers.ledger)
    remarks = Remarks(checked.config.feedback_fn, begun.emit)
    begun = _with_taught_cases(begun, remarks, working)
    # The search counts a branch only once it is joined, so that no decision depends on how far
    # running branches have come; the whole ledger counts at once.
    answers = attrs.evolve(begun.answers, ledger=begun.answers.ledger.part())
    sources = _sources(begun, working)
    driver = _driver(begun, answers, sources, remarks)
    algorithm = _algorithm(begun, answers.ledger, sources.scorer, driver.emit)
    phases = RunPhases(search=algorithm, begun=begun, remarks=remarks)
    try:
        try:
            stop = driver.run(phases.run())
        finally:
            # Answers that the search has left behind are paid for.
            if begun.answers.calls is not None:
                begun.answers.ledger.count(begun.answers.calls.close())
        return phases.result(stop)
    except PromptgraftError as error:
        # A result needs the baseline; before that there is none to save.
        if len(phases.population.pool):
            error.result = phases.result((StopReason.FAILED, str(error)))
        raise


def _probe_agent(begun: BegunRun) -> None:
    """Call an agent once before the run, unless that is recorded; see ``PlayingAdapter``."""
    checked, answers = begun.checked, begun.answers
    adapter, target = checked.context.adapter, checked.target
    if not isinstance(adapter, PlayingAdapter) or not isinstance(target, PromptTarget):
        return
    # Whichever agent gave it: one whose function has changed may answer the rest of a run.
    recorded = answers.journal.record(_PROBE)
    if recorded is not None:
        calls = [*spent_from_json(recorded.answer, _PROBE), *answers.failed_calls([_PROBE])]
        answers.ledger.count(calls, recorded=True)
        return
    answers.journal.admit(_PROBE)
    [prompt] = target.rollout.prompts_of(target.baseline()).values()
    watch, deadline = begun.watch.at(_PROBE), checked.deadline
    spent = adapter.rehearse(prompt, checked.config.cases, watch=watch, deadline=deadline)
    answers.ledger.count(answers.newly_paid(_PROBE, spent))
    question = digest([target.identity.digest])
    answers.journal.append(_PROBE, question, _PROBE, spent_to_json(spent))


def _announce(begun: BegunRun, plan: RunPlan, left_over: Sequence[Path]) -> None:
    checked = begun.checked
    begun.emit(
        RunStarted(
            run_id=begun.run_id,
            prompt=checked.target.identity.name,
            pareto_ids=tuple(example.id for example in checked.config.split[0]),
            modules=tuple(module.name for module in checked.target.modules),
            texts=texts_of(checked.target, checked.target.baseline()),
            seed=checked.config.seed,
            settings=checked.fingerprint,
        )
    )
    begun.emit(plan.event)
    if checked.context.event_bus is None:  # which would show the warnings
        for warning in plan.warnings:
            _logger.warning("%s", warning)
    for path in left_over:
        _logger.warning("removed the stop file `%s` that an earlier run has left behind", path)
        begun.emit(StopFileRemoved(path=str(path)))


def _publish_progress(
    bus: EventBus, position: str, done: int, total: int, *, plan: RunPlan, ledger: Ledger
) -> None:
    Place.parse(position)  # progress displays rely on its form
    bus.publish(
        WorkingNotice(
            position=position,
            done=done,
            total=total,
            rollouts=ledger.rollouts,
            reflections=ledger.reflections,
            tokens=ledger.charge.tokens,
            cost=ledger.known_cost,
            expected_cost=plan.forecast(ledger),
        )
    )


def _with_taught_cases(begun: BegunRun, emit: Emit, working: Working | None) -> BegunRun:
    """Return the run with answers of the teacher for the cases that have no ``expected``."""
    checked = begun.checked
    if checked.teaching is None:
        return begun
    config = checked.teaching.complete(
        checked.config,
        begun.answers,
        watch=begun.watch,
        executor=checked.context.executor,
        deadline=checked.deadline,
        working=working,
        emit=emit,
    )
    return attrs.evolve(begun, checked=attrs.evolve(checked, config=config))


def _sources(begun: BegunRun, working: Working | None) -> AnswerSources:
    checked, config = begun.checked, begun.checked.config
    runs, rollout = config.objectives.num_runs, checked.target.rollout
    if runs > 1:
        thresholds = PassRules.of(config.feedback_fn).thresholds
        rollout = Repeated(rollout=rollout, runs=runs, thresholds=thresholds)
    reflection, aims = checked.context.proposing_adapter, config.objectives
    return AnswerSources(
        rollout=rollout,
        example_digests=checked.digests,
        reflection=reflection,
        watch=begun.watch,
        deadline=checked.deadline,
        working=working,
        scorer=Scorer(aims.weights, also=aims.pick, perfect_score=aims.perfect_score),
        in_batches=checked.is_in_batches,
        max_example_chars=config.max_example_chars,
        max_trace_chars=config.max_trace_chars,
        shown_images=ShownImages.of(config.training_examples, config.data, reflection),
    )


def _driver(begun: BegunRun, answers: Answers, sources: AnswerSources, publish: Emit) -> Driver:
    context, config, deadline = begun.checked.context, begun.checked.config, begun.checked.deadline
    stops = Stops(
        stoppers=config.stoppers,
        ledger=answers.ledger,
        deadline=deadline,
        pause=context.pause,
        clock=context.clock,
        perfect_score=config.objectives.perfect_score,
        for_steps=config.budget - config.reserved_size,
    )
    gathering = partial(
        BatchExecutor,
        journal=context.journal,
        deadline=deadline,
        pause=context.pause,
        notices=context.event_bus,
    )
    return Driver(
        sources=sources,
        answers=answers,
        calls=Calls(
            answers.journal,
            executor=context.executor,
            questions_at_once=config.questions_at_once,
            gathering=gathering if sources.in_batches else None,
            deadline=deadline or Deadline(),
        ),
        max_unscored_share=config.limits.max_unscored_share,
        look=stops.look,
        publish=publish,
        author=config.author,
    )


def _algorithm(begun: BegunRun, ledger: Ledger, scorer: Scorer, emit: Emit) -> BaseSearch:
    checked, config = begun.checked, begun.checked.config
    validation, training = config.split
    kit = Kit(
        target=checked.target,
        validation=validation,
        training=training,
        scorer=scorer,
        population=Population(
            pool=config.pool(),
            target=checked.target,
            examples=validation,
            scorer=scorer,
            required=config.objectives.required,
            max_unscored_share=config.limits.max_unscored_share,
            ledger=ledger,
            emit=emit,
            pass_rules=PassRules.of(config.feedback_fn),
        ),
        budget=RolloutBudget(ledger, reserve=config.reserved_size),
        questions=checked.questions,
        emit=emit,
    )
    search: object = config.search(kit)
    if not isinstance(search, BaseSearch):
        raise CallerError(
            f"algorithm `{config.algorithm}`: `search` returned {shown(search)}; "
            "expected a BaseSearch"
        )
    return search
