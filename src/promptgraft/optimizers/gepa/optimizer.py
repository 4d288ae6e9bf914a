"""The public face of GEPA: checks everything, runs the loop, keeps the winner."""

from __future__ import annotations

import re
from collections.abc import Callable

import attrs

from promptgraft.errors import (
    DataFormatError,
    JournalCorruptError,
    PromptgraftError,
    WinnerNotStoredError,
)
from promptgraft.frozenmap import FrozenMap
from promptgraft.optimizers.answers import Answers
from promptgraft.optimizers.base import (
    BasePromptOptimizer,
    OptimizationContext,
    PersistenceScope,
)
from promptgraft.optimizers.gepa.config import GepaConfig
from promptgraft.optimizers.gepa.events import GepaOptimizationCompleted, GepaOptimizationStarted
from promptgraft.optimizers.gepa.loop import GepaLoop
from promptgraft.optimizers.gepa.prompts import REFLECT_ON_SECTION
from promptgraft.optimizers.gepa.reflection import Reflector
from promptgraft.optimizers.gepa.selection import split_examples
from promptgraft.optimizers.gepa.types import GepaResult
from promptgraft.optimizers.ledger import Ledger, Role
from promptgraft.optimizers.prompt_rollout import PromptRollout
from promptgraft.optimizers.prompt_target import PromptTarget
from promptgraft.optimizers.rollouts import RolloutRunner
from promptgraft.optimizers.snapshot import override_from_plain, override_to_plain, store_of
from promptgraft.optimizers.stopping import StopReason
from promptgraft.optimizers.types import GepaExample, SectionModule
from promptgraft.overrides.store import OverrideAddress
from promptgraft.overrides.types import PromptOverride, Provenance, show_path
from promptgraft.prompt.output import choices_of
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import HexDigest, Json, digest, field_names, unstructure

_ALGORITHM = "gepa/1"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class GepaOptimizer(BasePromptOptimizer[GepaResult]):
    """Improves sections of a prompt with GEPA.

    Args:
        context: the surroundings of the run.
        config: its settings.
    """

    def __init__(self, context: OptimizationContext, config: GepaConfig) -> None:
        super().__init__(context)
        self._config = config

    def optimize(
        self, prompt: Prompt[object], *, session: SessionProtocol | None = None
    ) -> GepaResult:
        """Improve ``prompt``, keep the winner if it beats the baseline, and say what happened.

        ``prompt`` is the source with whatever is bound for every example. The overrides that
        the context's store holds for it are part of the baseline. With a journal, answers
        that it holds are not asked for again.

        Raises:
            UnknownPartError: a target does not exist or may not be overridden.
            ConfigError, BindingError, DataFormatError: settings or examples do not fit the
                prompt; found before the first rollout.
            FeedbackError: the feedback function failed; names the example.
            JournalError: the journal is locked, damaged, or belongs to another run.
            WinnerNotStoredError: the run is complete, but the store refused the winner; the
                result is in the error.
        """
        run = _Run(self._context, self._config, prompt, session)
        return run.complete()


class _Run:
    """One call of ``optimize``, from checks to persistence."""

    def __init__(
        self,
        context: OptimizationContext,
        config: GepaConfig,
        prompt: Prompt[object],
        session: SessionProtocol | None,
    ) -> None:
        self._context = context
        self._config = config
        self._prompt = prompt
        self._session = session
        self._digests = {example.id: _digest_of(example) for example in config.training_examples}
        self._meta_prompt = self._present_meta_prompt()
        fingerprint = self._fingerprint()
        self._run_id = digest(fingerprint)[:12]
        # Whatever can be found wrong without the journal is found before it is touched.
        present = self._present_overrides()
        self._target_over(present).check_examples(config.training_examples)
        if context.journal is not None:
            context.journal.begin(fingerprint)
        self._answers = Answers(context.journal)
        self._target = self._target_over(self._base(present))
        self._ledger = Ledger(config.rollout_budget)
        self._pareto, self._feedback = split_examples(
            config.training_examples,
            config.pareto_set_size,
            shuffle_seed=config.seed if config.shuffle_examples else None,
        )

    def complete(self) -> GepaResult:
        """Run the loop and keep the winner."""
        self._emit(
            GepaOptimizationStarted(
                run_id=self._run_id,
                descriptor=self._prompt.descriptor,
                rollout_budget=self._config.rollout_budget,
                pareto_size=len(self._pareto),
                modules=tuple(module.name for module in self._target.modules),
            )
        )
        loop = self._loop()
        reason, detail = loop.run()
        result = self._result(loop, reason, detail)
        try:
            return self._keep(result)
        finally:
            self._emit(_completed(result))

    def _loop(self) -> GepaLoop:
        context, config = self._context, self._config
        runner = RolloutRunner(
            self._target.rollout,
            answers=self._answers,
            ledger=self._ledger,
            executor=context.executor,
            deadline=context.deadline,
            example_digests=self._digests,
        )
        reflector = Reflector(
            context.reflection_adapter or context.adapter,
            prompt=self._meta_prompt,
            answers=self._answers,
            ledger=self._ledger,
            deadline=context.deadline,
        )
        return GepaLoop(
            config,
            self._target,
            pareto=self._pareto,
            feedback=self._feedback,
            answers=self._answers,
            ledger=self._ledger,
            runner=runner,
            reflector=reflector,
            deadline=context.deadline,
            emit=self._emit,
        )

    def _emit(self, event: object) -> None:
        if self._session is not None:
            self._session.dispatch(event)
        if self._context.event_bus is not None:
            self._context.event_bus.publish(event)

    def _present_meta_prompt(self) -> Prompt[object]:
        """Return the meta-prompt as users have it now: a run does not change its questions."""
        store = self._context.overrides_store
        found = store.resolve(REFLECT_ON_SECTION.descriptor) if store is not None else None
        return Prompt(REFLECT_ON_SECTION, overrides_store=store_of(found) if found else None)

    def _present_overrides(self) -> PromptOverride:
        """Return what the store holds for the prompt now; nothing at all without a store."""
        descriptor, tag = self._prompt.descriptor, self._context.overrides_tag
        store = self._context.overrides_store
        found = store.resolve(descriptor, tag) if store is not None else None
        return found or OverrideAddress(descriptor.ns, descriptor.key, tag).empty()

    def _base(self, present: PromptOverride) -> PromptOverride:
        """Return what the store held when the run began.

        It is an answer too: the winner of this very run changes the store, and a run that is
        resumed must see what it saw at first.
        """
        question = digest([self._prompt.descriptor.ns, self._prompt.descriptor.key])
        recorded = self._answers.recall("base", question)
        if recorded is None:
            self._answers.record("base", question, "base", override_to_plain(present))
            return present
        restored = override_from_plain(recorded, present)
        if restored is None:
            raise JournalCorruptError("the journal's record `base` is no override; restore it")
        return restored

    def _target_over(self, base: PromptOverride) -> PromptTarget:
        context, config = self._context, self._config
        keeps = config.persist and config.persist_scope is PersistenceScope.GLOBAL
        return PromptTarget(
            rollout=PromptRollout(
                # Without its own store, which is not used and may not travel to a process.
                prompt=attrs.evolve(self._prompt, overrides_store=None),
                base=base,
                adapter=context.adapter,
                scoring=config.scoring,
            ),
            modules=tuple(SectionModule(path) for path in config.target_section_paths),
            max_part_chars=config.max_part_chars,
            store=context.overrides_store if keeps else None,
        )

    def _fingerprint(self) -> dict[str, Json]:
        """Return everything that decides the path of the run, apart from the answers."""
        config, context = self._config, self._context
        reflection = context.reflection_adapter or context.adapter
        return {
            "algorithm": _ALGORITHM,
            "prompt": _template_digest(self._prompt.template),
            "prompt_name": f"{self._prompt.descriptor.ns}/{self._prompt.descriptor.key}",
            "bound": digest([_plain_or_repr(param) for param in self._prompt.params]),
            "dataset": digest(
                [[example.id, self._digests[example.id]] for example in config.training_examples]
            ),
            "targets": [show_path(path) for path in config.target_section_paths],
            "seed": config.seed,
            "shuffle_examples": config.shuffle_examples,
            "minibatch_size": config.minibatch_size,
            "pareto_set_size": config.pareto_set_size,
            "perfect_score": config.perfect_score,
            "on_error": config.on_error,
            "max_example_chars": config.max_example_chars,
            "max_trace_chars": config.max_trace_chars,
            "max_part_chars": config.max_part_chars,
            "task_model": context.adapter.identity,
            "reflection_model": reflection.identity,
            "meta_prompt": _meta_prompt_digest(self._meta_prompt),
            "feedback_fn": _name_of(config.feedback_fn),
            "example_formatter": _name_of(config.scoring.example_formatter),
            "trace_formatter": _name_of(config.trace_formatter),
        }

    def _result(self, loop: GepaLoop, reason: StopReason, detail: str) -> GepaResult:
        pool = loop.pool
        best = pool.best
        winner = pool.candidate(best)
        return GepaResult(
            run_id=self._run_id,
            best_section_overrides=winner.section_bodies,
            best_override=winner.override,
            best_index=best,
            best_pareto_mean=pool.mean(best),
            baseline_pareto_mean=pool.mean(0),
            improved=best != 0,
            persisted=False,
            candidates=pool.candidates,
            scores_matrix=pool.scores,
            pareto_ids=tuple(example.id for example in self._pareto),
            ancestry=tuple(
                candidate.parents[0] if candidate.parents else None for candidate in pool.candidates
            ),
            accepted_mutations=len(pool) - 1,
            rejections=tuple(loop.rejections),
            total_rollouts=self._ledger.totals(Role.TASK).calls,
            unscored_rollouts=loop.unscored,
            total_reflections=self._ledger.totals(Role.REFLECTION).calls,
            steps=loop.steps,
            stop_reason=reason,
            stop_detail=detail,
        )

    def _keep(self, result: GepaResult) -> GepaResult:
        if not result.improved or not self._config.persist:
            return result
        if self._config.persist_scope is PersistenceScope.SESSION:
            if self._session is not None:
                self._session.dispatch(result.best_override)
            return result
        scores = {"baseline": result.baseline_pareto_mean, "best": result.best_pareto_mean}
        provenance = Provenance(
            run_id=self._run_id,
            note=f"GEPA, {result.total_rollouts} rollouts, seed {self._config.seed}",
            scores=FrozenMap((name, mean) for name, mean in scores.items() if mean is not None),
        )
        winner = result.candidates[result.best_index]
        try:
            return attrs.evolve(result, persisted=self._target.persist(winner, provenance))
        except PromptgraftError as error:  # the prompt's own faults, too: nothing may be lost
            raise WinnerNotStoredError(f"the winner is not stored: {error}", result) from error


def _completed(result: GepaResult) -> GepaOptimizationCompleted:
    return GepaOptimizationCompleted(
        run_id=result.run_id,
        stop_reason=result.stop_reason,
        detail=result.stop_detail,
        improved=result.improved,
        baseline_pareto_mean=result.baseline_pareto_mean,
        best_pareto_mean=result.best_pareto_mean,
        total_rollouts=result.total_rollouts,
        total_reflections=result.total_reflections,
    )


def _template_digest(template: PromptTemplate[object]) -> HexDigest:
    """Digest everything of a template that a model is shown and that can be digested."""
    hashes = {part.path: part.content_hash for part in template.descriptor.sections}
    kind = template.output_type
    return digest(
        [
            [
                [list(path), hashes[path], section.title, section.summary]
                for path, section in template.walked
            ],
            choices_of(kind) or (kind and [kind.__qualname__, field_names(kind)]),
        ]
    )


def _meta_prompt_digest(prompt: Prompt[object]) -> HexDigest:
    store = prompt.overrides_store
    override = store.resolve(prompt.descriptor) if store is not None else None
    return digest(
        [_template_digest(prompt.template), override_to_plain(override) if override else None]
    )


def _digest_of(example: GepaExample) -> HexDigest:
    return digest(
        [[_plain_or_repr(param) for param in example.params], _plain_or_repr(example.label)]
    )


def _plain_or_repr(value: object) -> Json:
    """Labels may be anything; those without a plain form are told apart by their ``repr``."""
    try:
        return unstructure(value)
    except DataFormatError:
        return _ADDRESS.sub("", repr(value))


def _name_of(function: Callable[..., object] | None) -> str | None:
    if function is None:
        return None
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{function.__module__}.{name}"
