"""A run from its checks to the stored winner: started with an optimizer, or as a job."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext

import attrs

from promptgraft import errors
from promptgraft.adapters.abilities import check_opening, opened
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import digest, shown
from promptgraft.ground.strict.checks import instance
from promptgraft.ground.text import raised
from promptgraft.overrides.looks import Look, record_of
from promptgraft.overrides.types import Provenance
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.session import SessionProtocol
from promptgraft.search.assemble import begin, search
from promptgraft.search.config import RunConfig
from promptgraft.search.context import BasePromptOptimizer, OptimizationContext
from promptgraft.search.plan import RunPlan, SeenAnswers
from promptgraft.search.planning import plan_run
from promptgraft.search.preflight import CheckedRun, are_in_batches, models_asked, preflight
from promptgraft.search.result import RunResult
from promptgraft.search.run_phases import BegunRun
from promptgraft.search.settings import Limits, PersistenceScope
from promptgraft.search.stopping import RunStoppedError, is_early
from promptgraft.search.wear import Wear, wear_from_json
from promptgraft.targets.base import Subject, Target
from promptgraft.targets.prompts import Improvable, PromptSet, name_of, prompts_of

_WEAR = "wear"
"""Kind of the journal's record of how worn held-out examples were, and how its key begins."""

_logger = logging.getLogger("promptgraft")


def with_wear(begun: BegunRun, result: RunResult) -> RunResult:
    """Remember that the held-out examples have judged a winner, and add how worn they are.

    How worn they are is kept in the journal like an answer, so that a resumed run has the same.

    Raises:
        JournalError, StoreError: the look cannot be kept; the error has the result.
    """
    checked, held_out = begun.checked, result.held_out
    if held_out is None or held_out.why_not:
        return result
    judged = [example for example in checked.config.held_out if example.id in held_out.ids]
    cases = checked.digests_of(judged)
    recorded = begun.answers.recall(_key(cases), digest(cases))
    if recorded is None:
        look = Look(
            run=begun.run_id,
            prompt=result.name,
            time=checked.context.clock.now().isoformat(),
            cases=cases,
        )
        try:
            wear = _looked(begun, look, checked.wear_of(judged))
        except errors.PromptgraftError as error:
            error.result = result
            raise
    else:
        wear = wear_from_json(recorded)
    worn = (wear.line,) if wear is not None and wear.is_worn else ()
    return attrs.evolve(result, wear=wear, remarks=(*result.remarks, *worn))


def _key(cases: Sequence[str]) -> str:
    # Not one for the run, because a resumed run may have other held-out examples.
    return f"{_WEAR}/{digest(cases)[:16]}"


def _looked(begun: BegunRun, look: Look, wear: Wear | None) -> Wear | None:
    """Remember a look, and keep in the journal how worn its examples are."""
    record, journal = record_of(begun.checked.context.overrides_store), begun.answers.journal
    if record is None or not begun.checked.context.remember_looks:
        return None
    try:
        journal.admit(_key(look.cases))
    except (errors.JournalError, RunStoppedError):
        return None  # the replay of a run that has kept none
    record.remember_look(look)
    worn = None if wear is None else attrs.asdict(wear)
    journal.append(_key(look.cases), digest(look.cases), _WEAR, {"wear": worn})
    journal.sync()
    return wear


def store_winner(begun: BegunRun, result: RunResult) -> RunResult:
    """Store the winner if it is better and the settings say so, and return the final result.

    Raises:
        WinnerNotStoredError: the store refused it; the error has the result.
    """
    context, config = begun.checked.context, begun.checked.config
    if not config.persist or not result.found_better:
        return result
    if not (result.improved or config.keep_anyway):
        if context.overrides_store and not is_early(result.stop_reason):
            _logger.warning(
                "the winner is not saved (%s): its gain is not proven on test cases; the "
                "setting `keep_anyway` saves it anyway",
                result.verdict,
            )
        return result
    if config.persist_scope is PersistenceScope.SESSION:
        if begun.session is not None:
            for override in result.best_overrides.values():
                begun.session.dispatch(override)
        return result
    scores = {"baseline": result.baseline_pareto_mean, "best": result.best_pareto_mean}
    provenance = Provenance(
        run_id=begun.run_id,
        note=f"{config.algorithm}, {result.total_rollouts} rollouts, seed {config.seed}",
        scores=FrozenMap((name, mean) for name, mean in scores.items() if mean is not None),
    )
    try:
        persisted = begun.checked.target.persist(result.best, provenance, pool=result.candidates)
        return attrs.evolve(result, persisted=persisted)
    except errors.OverrideConflictError as error:
        is_single = len(result.best_overrides) == 1
        winner = "best_override" if is_single else "best_overrides[address]"
        raise errors.WinnerNotStoredError(
            f"the winner is not stored: {error} since the run began; look at both, then roll "
            "the tag back and resume the run, or write the winner over it: "
            f"`store.upsert(prompt.descriptor, error.result.{winner})`",
            result,
        ) from error
    except errors.user_errors() as error:  # the result must not be lost
        why = str(error) if isinstance(error, errors.PromptgraftError) else raised(error)
        raise errors.WinnerNotStoredError(f"the winner is not stored: {why}", result) from error


class Optimizer(BasePromptOptimizer[object, RunResult]):
    """Improves a prompt with the algorithm of its settings.

    Args:
        context: the context of the run.
        config: its settings.
    """

    def __init__(self, context: OptimizationContext, config: RunConfig) -> None:
        super().__init__(context)
        kind: type = RunConfig  # which is abstract
        instance(kind, "settings such as a GepaConfig").hold("config", config)
        self._config = config

    def optimize(self, prompt: Improvable, *, session: SessionProtocol | None = None) -> RunResult:
        """Improve ``prompt``, store the winner if it beats the baseline, and return the result.

        ``prompt`` is a prompt with the parameters that all examples share; or a subject such as
        ``Texts``, which brings its own adapter; or several ``Prompts`` with the function that
        uses them; or a target of your own. Overrides of prompts in the context's store are part
        of the baseline. Answers that the journal holds are not asked for again.

        Raises:
            UnknownPartError: a named part does not exist or may not be overridden.
            ConfigError, BindingError, DataFormatError: settings or examples do not fit the
                prompt; raised before the first rollout.
            FeedbackError: the feedback function failed; names the example.
            JournalError: the journal is locked, damaged, or belongs to another run.
            WinnerNotStoredError: the run is complete, but the store refused the winner; the
                error has the result.
        """
        _check_session(self._config, session)
        return _run(preflight(self._context, self._config, prompt), session)

    def plan(
        self,
        prompt: Improvable,
        *,
        session: SessionProtocol | None = None,
        seen: SeenAnswers | None = None,
    ) -> RunPlan:
        """Return what ``optimize`` is expected to use for ``prompt``, and what it can use.

        No model is called, and a journal is compared but not changed. ``session`` is that of the
        run, which gets no events from a plan; ``seen`` are the answers of an earlier run, if there
        is one.

        Raises:
            UnknownPartError, ConfigError, BindingError, DataFormatError, JournalMismatchError: as
                ``optimize`` does before its first call.
        """
        _check_session(self._config, session)
        return _planned(preflight(self._context, self._config, prompt), seen)


def _check_session(config: RunConfig, session: SessionProtocol | None) -> None:
    if session is not None and not callable(getattr(session, "dispatch", None)):
        raise errors.ConfigError(f"session: expected a session, found {shown(session)}")
    in_session = config.persist_scope is PersistenceScope.SESSION
    if session is None and config.persist and in_session:
        raise errors.ConfigError(
            "persist_scope: expected a session for the winner, found none; give `session=`, or "
            "leave persist_scope out"
        )


def _run(checked: CheckedRun, session: SessionProtocol | None = None) -> RunResult:
    begun = begin(checked, session)
    calls = begun.answers.calls
    with opened(checked.context.adapter), nullcontext() if calls is None else closing(calls):
        result = search(begun)
        try:
            result = store_winner(begun, with_wear(begun, result))
        finally:
            # Also if the winner cannot be stored: the search itself has ended.
            begun.emit(result.ended)
    return result


def _planned(checked: CheckedRun, seen: SeenAnswers | None) -> RunPlan:
    check_opening(checked.context.adapter)
    if (journal := checked.context.journal) is not None:
        checked.check_journal(journal)
    plan = checked.plan if seen is None else None
    return plan or plan_run(checked, seen)


@attrs.frozen(init=False)
class OptimizationJob:
    """A subject, the context of the run, and its settings.

    ``promptgraft plan`` and ``promptgraft optimize`` take one from a Python file: an object,
    or a function without arguments that returns it.

    Attributes:
        subject: what is improved; for a subject such as ``Texts``, its prompt.
        context: the models, the store of the winner, the overrides in force.
        config: the settings.
        checked: the checks of :meth:`check`, which plans and runs then do not repeat.

    Raises:
        ConfigError: a field has another type.
    """

    subject: Prompt[object] | PromptSet | Target
    context: OptimizationContext
    config: RunConfig
    checked: CheckedRun | None = attrs.field(default=None, init=False, eq=False, repr=False)

    def __init__(
        self, subject: Improvable, context: OptimizationContext, config: RunConfig
    ) -> None:
        if not isinstance(subject, (Prompt, PromptSet, Target, Subject)):
            raise errors.ConfigError(f"subject: expected a Prompt, found {shown(subject)}")
        instance(OptimizationContext).hold("context", context)
        if not isinstance(config, RunConfig):
            raise errors.ConfigError(f"config: expected a RunConfig, found {shown(config)}")
        alone = subject if isinstance(subject, (Prompt, PromptSet, Target)) else subject.prompt
        self.__attrs_init__(alone, context.around(subject), config)

    @property
    def name(self) -> str:
        """The name of the subject in runs: ``namespace/key`` for a prompt."""
        return name_of(self.subject)

    @property
    def prompts(self) -> Mapping[str, Prompt[object]]:
        """The prompts that are improved, by ``namespace/key``."""
        return prompts_of(self.subject)

    @property
    def prompt(self) -> Prompt[object]:
        """The one prompt that is improved.

        Raises:
            ConfigError: there are several, or there is none.
        """
        if not isinstance(self.subject, Prompt):
            raise errors.ConfigError(f"expected a job for one prompt, found one for `{self.name}`")
        return self.subject

    @property
    def is_in_batches(self) -> bool:
        """Whether a model of the run answers in provider batches."""
        return are_in_batches(models_asked(self.context, self.subject), self.config)

    def dry(self) -> OptimizationJob:
        """Return the job on the embedded offline model: it costs nothing and stores nothing.

        Where free text is wanted, the answer is the input. Judges compare words with the reference,
        and simulated users are silent. Stored overrides are applied as in the job. Tools, the
        function of ``Texts``, agents, BAML and your own feedback function are really called.
        """
        from promptgraft.search.dry import without_models

        return OptimizationJob(*without_models(self.subject, self.context, self.config))

    def within(
        self, context: OptimizationContext, *, limits: Limits | None = None
    ) -> OptimizationJob:
        """Return the job with another context, and with other limits if they are given."""
        config = self.config if limits is None else attrs.evolve(self.config, limits=limits)
        return _with_checks(attrs.evolve(self, context=context, config=config), self.checked)

    def check(self) -> OptimizationJob:
        """Return the job with its checks and its plan, for runs that begin at once.

        The overrides in force are those of this moment. Raises as :meth:`Optimizer.plan` does.
        """
        checked = preflight(self.context, self.config, self.subject)
        return _with_checks(attrs.evolve(self), attrs.evolve(checked, plan=plan_run(checked)))

    def _present_checks(self) -> CheckedRun:
        _check_session(self.config, None)
        if self.checked is not None and self.checked.suits(self.context):
            return self.checked.within(self.context, self.config.limits)
        return preflight(self.context, self.config, self.subject)

    def plan(self, *, seen: SeenAnswers | None = None) -> RunPlan:
        """Return what the run can use; see :meth:`Optimizer.plan`."""
        return _planned(self._present_checks(), seen)

    def run(self) -> RunResult:
        """Run it; see :meth:`Optimizer.optimize`."""
        return _run(self._present_checks())


def _with_checks(job: OptimizationJob, checked: CheckedRun | None) -> OptimizationJob:
    """Give checks to a job that nobody else has yet: it does not get them from its arguments."""
    object.__setattr__(job, "checked", checked)
    return job
