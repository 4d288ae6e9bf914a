"""A run from its checks to the stored winner, whatever the algorithm."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypedDict

import attrs

from promptgraft.adapters.base import is_in_batches
from promptgraft.adapters.calling.gathering import BatchExecutor
from promptgraft.errors import (
    CallerError,
    DataFormatError,
    JournalCorruptError,
    OverrideConflictError,
    PromptgraftError,
    WinnerNotStoredError,
    user_errors,
)
from promptgraft.ground.content import files_in
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import Json, digest, shown
from promptgraft.ground.text import raised
from promptgraft.journal.base import Journal, NoJournal
from promptgraft.journal.records import Contents
from promptgraft.overrides.looks import Look, record_of
from promptgraft.overrides.types import Provenance
from promptgraft.prompt.template import with_stored_overrides
from promptgraft.runtime.deadline import Deadline, remove_left_over
from promptgraft.runtime.session import Budget, EventBus, SessionProtocol, Watch, publishing
from promptgraft.search.algorithm import BaseSearch, Kit, Questions
from promptgraft.search.answers import Answers, Repeated, Working
from promptgraft.search.batches import Books, Sources
from promptgraft.search.call_log import CallLog
from promptgraft.search.calls import Calls
from promptgraft.search.config import RunConfig
from promptgraft.search.contents import contents_of
from promptgraft.search.context import OptimizationContext
from promptgraft.search.course import Course, Ending, Remarks
from promptgraft.search.driver import Driver
from promptgraft.search.events import Emit, RunStarted
from promptgraft.search.first_calls import (
    check_answering,
    check_metrics,
    check_overlap,
    check_prices,
    judges_of,
    models_asked,
    question_of,
    rehearsed,
    warn_of_nameless,
)
from promptgraft.search.ledger import Ledger, RolloutBudget
from promptgraft.search.notices import StopFileRemoved
from promptgraft.search.notices import Working as WorkingNotice
from promptgraft.search.passing import Passing
from promptgraft.search.place import Place
from promptgraft.search.plan import RunPlan, SeenAnswers
from promptgraft.search.planning import plan_run
from promptgraft.search.population import Population
from promptgraft.search.result import RunResult
from promptgraft.search.scores import Scorer
from promptgraft.search.settings import PersistenceScope
from promptgraft.search.shown_images import ShownImages
from promptgraft.search.stopping import StopReason, is_early
from promptgraft.search.stops import Stops
from promptgraft.search.targets import example_digest, fingerprint_of, target_for, targeted
from promptgraft.search.teacher import Teaching
from promptgraft.search.wear import wear_of
from promptgraft.targets.base import Target, texts_of
from promptgraft.targets.judging import metrics_of, with_held_out
from promptgraft.targets.prompts import Improvable, PromptSet, prompts_of, without_stores

_logger = logging.getLogger("promptgraft")

_DIGITS = 16  # of the digest of a case in the record of looks


class _OfJournal(TypedDict):
    contents: Contents
    reuse_scores: bool
    translated: Callable[[Mapping[str, Json]], Mapping[str, Json]]


class Run:
    """One run of an algorithm on one subject.

    The constructor raises everything that can be found wrong without a call.

    Args:
        context: the context of the run.
        config: its settings.
        subject: what is improved.
        session: receives the events, and the winner if ``persist_scope`` says so.
    """

    def __init__(
        self,
        context: OptimizationContext,
        config: RunConfig,
        subject: Improvable,
        session: SessionProtocol | None,
    ) -> None:
        self._context = context = context.around(subject)
        config = targeted(config, subject).with_own_examples()
        held_out_ids = [example.id for example in config.held_out]
        judging = with_held_out(config.feedback_fn, held_out_ids)
        self._config = config = attrs.evolve(config, feedback_fn=judging)
        limits = config.limits
        self._session = session
        self._emit = publishing(session, context.event_bus)
        self._digests = {
            example.id: example_digest(example)
            for example in (*config.training_examples, *config.held_out)
        }
        self._deadline = context.run_deadline(limits.timeout, stop_files=limits.stop_files)
        budget = Budget(max_cost=limits.max_cost, max_tokens=limits.max_tokens)
        self._watch = Watch(budget=budget if budget.is_limited else None, notices=context.event_bus)
        # Checks that need no journal come first, so that a failed start leaves it untouched.
        self._prompts = without_stores(prompts_of(subject))
        target = target_for(subject, config, context, self._watch)
        self._questions = self._present_questions(target)
        target.check((*config.training_examples, *config.held_out))
        check_metrics(config, context.adapter)
        check_answering(context.adapter, subject, config.training_examples)
        _check_sets(config)
        teacher = context.teacher
        self._teaching = Teaching(teacher, config, self._digests) if teacher else None
        own_adapters = subject.adapters if isinstance(subject, PromptSet) else {}
        models = models_asked(context, own_adapters)
        check_prices(config, models)
        judges = judges_of(metrics_of(config.feedback_fn))
        self._in_batches = any(map(is_in_batches, (*models, *judges)))
        fingerprint = fingerprint_of(
            context, config, target.identity, examples=self._digests, questions=self._questions
        )
        self._fingerprint: Mapping[str, Json] = fingerprint
        if context.journal is not None:
            warn_of_nameless(models)
            self._fingerprint = context.journal.begin(fingerprint, **self._of_journal())
        # Of the journal's fingerprint, so that a run resumed with other functions keeps its id.
        self._run_id = digest(self._fingerprint)[:12]
        self._calls = None if context.journal is None else CallLog(context.journal)
        self._watch = attrs.evolve(self._watch, keeper=self._calls)
        self._answers = Answers(
            NoJournal() if context.journal is None else context.journal, calls=self._calls
        )
        self._target = self._as_begun(target)
        self._ledger = Ledger(config.budget, max_reflections=limits.max_reflections, budget=budget)

    def _of_journal(self) -> _OfJournal:
        """Return what a journal is told besides the fingerprint of the run."""
        contents = contents_of(
            self._prompts, self._config, examples=self._digests, questions=self._questions
        )
        return {
            "contents": contents,
            "reuse_scores": self._context.reuse_scores,
            "translated": self._config.translated,
        }

    def check_journal(self, journal: Journal) -> None:
        """Raise ``JournalMismatchError`` if a journal belongs to another run; change nothing."""
        journal.check(self._fingerprint, **self._of_journal())

    def complete(self) -> RunResult:
        """Run the search and store the winner."""
        if self._calls is None:
            return self._completed()
        self._ledger.count(self._calls.unfinished(), recorded=True)
        with closing(self._calls):
            return self._completed()

    def _completed(self) -> RunResult:
        context, bus = self._context, self._context.event_bus
        if context.journal is not None:
            examples = (*self._config.training_examples, *self._config.held_out)
            bound = [prompt.params for prompt in self._prompts.values()]
            context.journal.keep_files(files_in([bound, [example.params for example in examples]]))
        rehearsed(
            self._target,
            self._config,
            context.adapter,
            answers=self._answers,
            ledger=self._ledger,
            watch=self._watch,
            deadline=self._deadline,
        )
        left_over = remove_left_over(self._config.limits.stop_files)
        plan = self.plan()
        self._announce(plan, left_over)
        working = None if bus is None else partial(self._working, bus, plan=plan)
        remarks = Remarks(self._config.feedback_fn, self._emit)
        self._teach(remarks, working)
        # The search counts a branch only once it is joined, so that no decision depends on how far
        # running branches have come; the whole ledger counts at once.
        books = Books(self._answers, self._ledger.part())
        sources = self._sources(working)
        driver = self._driver(books, sources, remarks)
        course = Course(
            search=self._search(books, sources.scorer, driver.emit),
            answers=self._answers,
            examples=self._config.held_out,
            seed=self._config.seed,
            remarks=remarks,
            ledger=self._ledger,
            run_id=self._run_id,
            tag=context.overrides_tag,
            prompts=self._prompts,
        )
        try:
            ended = self._driven(driver, course)
            result = self._with_wear(course.result(ended))
        except PromptgraftError as error:
            # A result needs the baseline; before that there is none to save.
            if len(course.population.pool):
                error.result = course.result((StopReason.FAILED, str(error)))
            raise
        try:
            result = self._keep(result)
        finally:
            # Also if the winner cannot be stored: the search itself has ended.
            self._emit(result.ended)
        return result

    def _driven(self, driver: Driver, course: Course) -> Ending:
        """Run the search, and charge what it has left behind."""
        try:
            return driver.run(course.run())
        finally:
            if self._calls is not None:
                self._ledger.count(self._calls.close())

    def _sources(self, working: Working | None) -> Sources:
        runs, rollout = self._config.objectives.num_runs, self._target.rollout
        if runs > 1:
            thresholds = Passing.of(self._config.feedback_fn).thresholds
            rollout = Repeated(rollout=rollout, runs=runs, thresholds=thresholds)
        return Sources(
            rollout=rollout,
            example_digests=self._digests,
            reflection=self._context.proposing_adapter,
            watch=self._watch,
            deadline=self._deadline,
            working=working,
            scorer=self._config.objectives.new_scorer(),
            in_batches=self._in_batches,
            max_example_chars=self._config.max_example_chars,
            max_trace_chars=self._config.max_trace_chars,
            shown_images=ShownImages.of(
                self._config.training_examples, self._config.data, self._context.proposing_adapter
            ),
        )

    def _driver(self, books: Books, sources: Sources, publish: Emit) -> Driver:
        context, config = self._context, self._config
        stops = Stops(
            stoppers=config.limits.stoppers,
            ledger=books.ledger,
            deadline=self._deadline,
            pause=context.pause,
            clock=context.clock,
            perfect_score=config.objectives.perfect_score,
        )
        gathering = partial(
            BatchExecutor,
            journal=context.journal,
            deadline=self._deadline,
            pause=context.pause,
            notices=context.event_bus,
        )
        return Driver(
            sources=sources,
            books=books,
            whole=self._ledger,
            calls=Calls(
                (books.answers.calls or books.answers.journal).append_all,
                executor=context.executor,
                questions_at_once=config.questions_at_once,
                gathering=gathering if self._in_batches else None,
                deadline=self._deadline or Deadline(),
            ),
            max_unscored_share=config.limits.max_unscored_share,
            look=stops.look,
            publish=publish,
            # An unexpected exception of our own algorithms is a bug and keeps its traceback.
            author="" if type(config).__module__.startswith("promptgraft.") else config.algorithm,
        )

    def _search(self, books: Books, scorer: Scorer, emit: Emit) -> BaseSearch:
        config = self._config
        validation, training = config.split
        kit = Kit(
            target=self._target,
            validation=validation,
            training=training,
            scorer=scorer,
            population=Population(
                pool=config.pool(),
                target=self._target,
                examples=validation,
                scorer=scorer,
                required=config.objectives.required,
                max_unscored_share=config.limits.max_unscored_share,
                ledger=books.ledger,
                emit=emit,
                passing=Passing.of(config.feedback_fn),
            ),
            budget=RolloutBudget(books.ledger, reserve=config.reserved_size),
            questions=self._questions,
            emit=emit,
        )
        search: object = config.search(kit)
        if not isinstance(search, BaseSearch):
            raise CallerError(
                f"algorithm `{config.algorithm}`: `search` returned {shown(search)}; "
                "expected a BaseSearch"
            )
        return search

    def _teach(self, emit: Emit, working: Working | None) -> None:
        """Complete the cases that have no ``expected`` with answers of the teacher."""
        if self._teaching is None:
            return
        self._config = self._teaching.taught(
            self._config,
            Books(self._answers, self._ledger),
            watch=self._watch,
            executor=self._context.executor,
            deadline=self._deadline,
            working=working,
            emit=emit,
        )

    def _announce(self, plan: RunPlan, left_over: Iterable[Path]) -> None:
        self._emit(
            RunStarted(
                run_id=self._run_id,
                prompt=self._target.identity.name,
                pareto_ids=tuple(example.id for example in self._config.split[0]),
                modules=tuple(module.name for module in self._target.modules),
                texts=texts_of(self._target, self._target.baseline()),
                seed=self._config.seed,
                settings=self._fingerprint,
            )
        )
        self._emit(plan.event)
        if self._context.event_bus is None:  # which would show the warnings
            for warning in plan.warnings:
                _logger.warning("%s", warning)
        for path in left_over:
            _logger.warning("removed the stop file `%s` that an earlier run has left behind", path)
            self._emit(StopFileRemoved(path=str(path)))

    def _working(
        self, bus: EventBus, position: str, done: int, total: int, *, plan: RunPlan
    ) -> None:
        Place.parse(position)  # progress displays rely on its form
        bus.publish(
            WorkingNotice(
                position=position,
                done=done,
                total=total,
                rollouts=self._ledger.rollouts,
                reflections=self._ledger.reflections,
                tokens=self._ledger.charge.tokens,
                cost=self._ledger.known_cost,
                expected_cost=plan.forecast(self._ledger),
            )
        )

    def plan(self, seen: SeenAnswers | None = None) -> RunPlan:
        """Return what the run can use."""
        record, cases = record_of(self._context.overrides_store), self._config.held_out
        digests = self._held_out_cases({case.id for case in cases})
        wear = wear_of(digests, record.looks(), run=self._run_id) if record and cases else None
        plan = plan_run(
            self._target,
            self._config,
            task=self._context.adapter,
            reflection=self._context.proposing_adapter,
            questions=self._questions,
            seen=seen,
            teaching=self._teaching,
        )
        if wear is None or not wear.is_worn:
            return plan
        return attrs.evolve(plan, warnings=(*plan.warnings, wear.line))

    def _present_questions(self, target: Target) -> Questions:
        """Return the questions with the user's present overrides, which hold for the whole run."""
        store = self._context.overrides_store
        own_questions = [
            module.question for module in target.modules if module.question is not None
        ]
        questions = {
            **self._config.questions,
            **{question.key: question for question in own_questions},
        }
        return {key: with_stored_overrides(template, store) for key, template in questions.items()}

    def _as_begun(self, target: Target) -> Target:
        """Return the target with the overrides that were in force when the run began.

        They are recorded like an answer: the winner of this very run changes the store, and a
        resumed run must see what it saw at first.
        """
        in_force, question = target.in_force, digest(target.identity.name)
        if in_force is None:
            return target
        recorded = self._answers.recall("base", question)
        if recorded is None:
            self._answers.journal.append("base", question, "base", in_force)
            return target
        try:
            return target.over(recorded)
        except DataFormatError as error:
            raise JournalCorruptError(
                f"the journal's record `base` is no override: {error}; restore the journal"
            ) from None

    def _with_wear(self, result: RunResult) -> RunResult:
        """Remember that the held-out cases have judged the winner, and add how worn they are."""
        record, held_out = record_of(self._context.overrides_store), result.held_out
        if record is None or held_out is None or held_out.why_not:
            return result
        cases = self._held_out_cases(held_out.ids)
        wear = wear_of(cases, record.looks(), run=self._run_id)
        time = self._context.clock.now().isoformat()
        record.remember_look(Look(run=self._run_id, prompt=result.name, time=time, cases=cases))
        worn = (wear.line,) if wear is not None and wear.is_worn else ()
        return attrs.evolve(result, wear=wear, remarks=(*result.remarks, *worn))

    def _held_out_cases(self, ids: Collection[str]) -> tuple[str, ...]:
        """Return a digest of what each held-out example with one of these ids asks."""
        return tuple(
            (question_of(example) or self._digests[example.id])[:_DIGITS]
            for example in self._config.held_out
            if example.id in ids
        )

    def _keep(self, result: RunResult) -> RunResult:
        config = self._config
        if not config.persist or not result.found_better:
            return result
        if not (result.improved or config.keep_anyway):
            if self._context.overrides_store and not is_early(result.stop_reason):
                _logger.warning(
                    "the winner is not saved (%s): its gain is not proven on test cases; the "
                    "setting `keep_anyway` saves it anyway",
                    result.verdict,
                )
            return result
        if self._config.persist_scope is PersistenceScope.SESSION:
            if self._session is not None:
                for override in result.best_overrides.values():
                    self._session.dispatch(override)
            return result
        scores = {"baseline": result.baseline_pareto_mean, "best": result.best_pareto_mean}
        provenance = Provenance(
            run_id=self._run_id,
            note=(
                f"{self._config.algorithm}, {result.total_rollouts} rollouts, "
                f"seed {self._config.seed}"
            ),
            scores=FrozenMap((name, mean) for name, mean in scores.items() if mean is not None),
        )
        winner = result.candidates[result.best_index]
        try:
            persisted = self._target.persist(winner, provenance, pool=result.candidates)
            return attrs.evolve(result, persisted=persisted)
        except OverrideConflictError as error:
            raise WinnerNotStoredError(
                f"the winner is not stored: {error} since the run began; look at both, then roll "
                "the tag back and resume the run, or write the winner over it: "
                "`store.upsert(prompt.descriptor, error.result.best_override)`",
                result,
            ) from error
        except user_errors() as error:  # the result must not be lost
            why = str(error) if isinstance(error, PromptgraftError) else raised(error)
            raise WinnerNotStoredError(f"the winner is not stored: {why}", result) from error


def _check_sets(config: RunConfig) -> None:
    """Raise a ``ConfigError`` if two sets share an example."""
    pareto, training = config.split
    check_overlap(
        {
            "the validation set": pareto,
            "the training set": training,
            "the held-out examples": config.held_out,
        }
    )
