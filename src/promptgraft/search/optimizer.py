"""A run from its checks to its winner, whatever the algorithm."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import attrs

from promptgraft.adapters.base import is_in_batches, opened
from promptgraft.errors import (
    ConfigError,
    DataFormatError,
    JournalCorruptError,
    OverrideConflictError,
    PromptgraftError,
    WinnerNotStoredError,
)
from promptgraft.frozenmap import FrozenMap
from promptgraft.journal.base import NoJournal
from promptgraft.overrides.types import Provenance
from promptgraft.prompt.template import as_kept
from promptgraft.runtime.deadline import remove_left_over
from promptgraft.runtime.session import Budget, EventBus, SessionProtocol, Watch, teller
from promptgraft.search.algorithm import Questions
from promptgraft.search.answers import Answers, Working
from promptgraft.search.batches import Books, Sources
from promptgraft.search.config import RunConfig
from promptgraft.search.context import BasePromptOptimizer, OptimizationContext, PersistenceScope
from promptgraft.search.course import assemble
from promptgraft.search.events import Emit, RunStarted
from promptgraft.search.first_calls import (
    check_metrics,
    check_overlap,
    check_prices,
    judges_of,
    models_asked,
    rehearsed,
    warn_of_nameless,
)
from promptgraft.search.ledger import Ledger
from promptgraft.search.notices import StopFileRemoved
from promptgraft.search.notices import Working as WorkingNotice
from promptgraft.search.passing import Passing
from promptgraft.search.place import Place
from promptgraft.search.plan import RunPlan, SeenAnswers
from promptgraft.search.planning import plan_run
from promptgraft.search.remarks import Remarks
from promptgraft.search.repeating import Repeated
from promptgraft.search.result import RunResult
from promptgraft.search.stopping import StopReason, is_early
from promptgraft.search.targets import example_digest, fingerprint_of, target_for, targeted
from promptgraft.search.teaching import Teaching
from promptgraft.serde import Json, digest, shown
from promptgraft.targets.base import Target, texts_of
from promptgraft.targets.judging import metrics_of
from promptgraft.targets.prompts import Improvable, PromptSet
from promptgraft.text import raised

_logger = logging.getLogger("promptgraft")


class Optimizer(BasePromptOptimizer[RunResult]):
    """Improves a prompt with the algorithm that its settings are for.

    Args:
        context: the surroundings of the run.
        config: its settings.
    """

    def __init__(self, context: OptimizationContext, config: RunConfig) -> None:
        super().__init__(context)
        given: object = config
        if not isinstance(given, RunConfig):
            raise ConfigError(
                f"config: expected settings such as a GepaConfig, found {shown(given)}"
            )
        self._config = config

    def optimize(self, prompt: Improvable, *, session: SessionProtocol | None = None) -> RunResult:
        """Improve ``prompt``, keep the winner if it beats the baseline, and say what happened.

        ``prompt`` is the source with whatever is bound for every example; or a subject such as
        ``Texts``, which is answered by its own adapter; or several ``Prompts`` and the function
        that answers with them; or a target of one's own. The overrides that the context's store
        holds for prompts are part of the baseline. With a journal, answers that it holds are not
        asked for again.

        Raises:
            UnknownPartError: a target does not exist or may not be overridden.
            ConfigError, BindingError, DataFormatError: settings or examples do not fit the
                prompt; found before the first rollout.
            FeedbackError: the feedback function failed; names the example.
            JournalError: the journal is locked, damaged, or belongs to another run.
            WinnerNotStoredError: the run is complete, but the store refused the winner; the
                result is in the error.
        """
        if session is not None and not callable(getattr(session, "dispatch", None)):
            raise ConfigError(f"session: expected a session, found {shown(session)}")
        in_session = self._config.persist_scope is PersistenceScope.SESSION
        if session is None and self._config.persist and in_session:
            raise ConfigError(
                "persist_scope: expected a session for the winner, found none; give `optimize` a "
                "session, or leave persist_scope out"
            )
        run = _Run(self._context, self._config, prompt, session)
        with opened(self._context.around(prompt).adapter):
            return run.complete()

    def plan(self, prompt: Improvable, *, seen: SeenAnswers | None = None) -> RunPlan:
        """Say what ``optimize`` can use for ``prompt``, without a call and without a journal.

        ``seen`` are the answers of an earlier run, if there is one.

        Raises:
            UnknownPartError, ConfigError, BindingError, DataFormatError: as ``optimize`` does.
        """
        context = attrs.evolve(self._context, journal=None)
        return _Run(context, self._config, prompt, None).plan(seen)


class _Run:
    def __init__(
        self,
        context: OptimizationContext,
        config: RunConfig,
        subject: Improvable,
        session: SessionProtocol | None,
    ) -> None:
        self._context = context = context.around(subject)
        self._config = config = targeted(config, subject).with_own_examples()
        limits = config.limits
        self._own = subject.adapters if isinstance(subject, PromptSet) else {}
        self._session = session
        self._emit = teller(session, context.event_bus)
        self._digests = {
            example.id: example_digest(example)
            for example in (*config.training_examples, *config.held_out)
        }
        self._deadline = context.run_deadline(limits.timeout, stop_files=limits.stop_files)
        self._budget = Budget(max_cost=limits.max_cost, max_tokens=limits.max_tokens)
        self._watch = Watch(
            budget=self._budget if self._budget.is_limited else None, notices=context.event_bus
        )
        # Whatever can be found wrong without the journal is found before it is touched.
        target = target_for(subject, config, context, self._watch)
        self._questions = self._present_questions(target)
        target.check((*config.training_examples, *config.held_out))
        check_metrics(config, context.adapter)
        pareto, training = config.split
        check_overlap(
            {
                "the validation set": pareto,
                "the training set": training,
                "the held-out examples": config.held_out,
            }
        )
        teacher = context.teacher
        self._teaching = Teaching(teacher, config, self._digests) if teacher else None
        asked = models_asked(context, self._own)
        check_prices(config, asked)
        judges = judges_of(metrics_of(config.feedback_fn))
        self._in_batches = any(map(is_in_batches, (*asked, *judges)))
        fingerprint = fingerprint_of(
            context, config, target.identity, examples=self._digests, questions=self._questions
        )
        self._fingerprint: Mapping[str, Json] = fingerprint
        if context.journal is not None:
            warn_of_nameless(asked)
            self._fingerprint = context.journal.begin(
                fingerprint, reuse_scores=context.reuse_scores
            )
        self._run_id = digest(self._fingerprint)[:12]
        self._answers = Answers(NoJournal() if context.journal is None else context.journal)
        self._target = self._as_begun(target)
        self._ledger = Ledger(
            config.budget, max_reflections=limits.max_reflections, budget=self._budget
        )

    def complete(self) -> RunResult:
        """Run the search and keep the winner."""
        context, bus = self._context, self._context.event_bus
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
        course, driver = assemble(
            context,
            self._config,
            target=self._target,
            questions=self._questions,
            answers=self._answers,
            ledger=self._ledger,
            sources=self._sources(working),
            publish=remarks,
        )
        tag, ledger = context.overrides_tag, self._ledger
        found = partial(course.result, remarks, run_id=self._run_id, tag=tag, ledger=ledger)
        try:
            result = found(stopped=driver.run(course.run()))
        except PromptgraftError as error:
            if len(course.population.pool):
                error.result = found(stopped=(StopReason.FAILED, str(error)))
            raise
        try:
            result = self._keep(result)
        finally:
            self._emit(result.ended)
        return result

    def _sources(self, working: Working | None) -> Sources:
        runs, rollout = self._config.objectives.num_runs, self._target.rollout
        thresholds = Passing.of(self._config.feedback_fn).thresholds
        return Sources(
            rollout=rollout
            if runs == 1
            else Repeated(rollout=rollout, runs=runs, thresholds=thresholds),
            example_digests=self._digests,
            reflection=self._context.proposing_adapter,
            watch=self._watch,
            deadline=self._deadline,
            working=working,
            scorer=self._config.objectives.new_scorer(),
            in_batches=self._in_batches,
            max_example_chars=self._config.max_example_chars,
            max_trace_chars=self._config.max_trace_chars,
        )

    def _teach(self, emit: Emit, working: Working | None) -> None:
        """Have the teacher answer the cases that have no ``expected``."""
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
        Place.parse(position)  # whatever shows the run relies on its form
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
        return plan_run(
            self._target,
            self._config,
            task=self._context.adapter,
            reflection=self._context.proposing_adapter,
            questions=self._questions,
            seen=seen,
            teaching=self._teaching,
        )

    def _present_questions(self, target: Target) -> Questions:
        """Return the questions as users have them now: a run does not change its questions."""
        store = self._context.overrides_store
        own = [one.question for one in target.modules if one.question is not None]
        asked = {**self._config.questions, **{one.key: one for one in own}}
        return {key: as_kept(template, store) for key, template in asked.items()}

    def _as_begun(self, target: Target) -> Target:
        """Return the target over what was in force when the run began.

        It is an answer too: the winner of this very run changes the store, and a run that is
        resumed must see what it saw at first.
        """
        kept, question = target.in_force, digest(target.identity.name)
        if kept is None:
            return target
        recorded = self._answers.recall("base", question)
        if recorded is None:
            self._answers.journal.append("base", question, "base", kept)
            return target
        try:
            return target.over(recorded)
        except DataFormatError as error:
            raise JournalCorruptError(
                f"the journal's record `base` is no override: {error}; restore the journal"
            ) from None

    def _keep(self, result: RunResult) -> RunResult:
        config = self._config
        if not config.persist or not result.found_better:
            return result
        if not (result.improved or config.keep_anyway):
            if self._context.overrides_store and not is_early(result.stop_reason):
                _logger.warning(
                    "the winner is not stored: it is %s; `keep_anyway=True` stores it all the same",
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
        except Exception as error:  # whatever a store raises: nothing may be lost
            why = str(error) if isinstance(error, PromptgraftError) else raised(error)
            raise WinnerNotStoredError(f"the winner is not stored: {why}", result) from error
