"""What a search works with: made from its settings, and put to use in each step.

``Parts`` begins the attempts of a step, has their changes proposed, and learns from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from promptgraft.algorithms.gepa.additions.base import Addition, Tools
from promptgraft.algorithms.gepa.attempt import Attempt, Changes, Step
from promptgraft.algorithms.gepa.reflect import Reflector, questions_of
from promptgraft.algorithms.gepa.select import Minibatches, Parents, TrainingRollouts, Turns
from promptgraft.algorithms.gepa.settings import GepaSettings
from promptgraft.search.acceptance import Comparer, Rejections, most_rollouts
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Asking
from promptgraft.search.events import MutationProposed
from promptgraft.search.leak_guard import AnswerGuard
from promptgraft.search.population import Seen
from promptgraft.search.stops import Patience
from promptgraft.search.validation import Full, RacingValidator, Validator
from promptgraft.targets.judging import metrics_of

if TYPE_CHECKING:
    from promptgraft.algorithms.gepa.merge import Merger


@attrs.frozen(kw_only=True)
class Parts(Tools):
    """The parts of one search: what additions work with, and what they do not see.

    Attributes:
        config: the settings.
        patience: ends the search after too many steps without anything to try.
        parents: chooses parents.
        minibatches: draws minibatches.
        comparer: compares children with their parents.
        merger: merges candidates of the frontier; None if none are merged.
        additions: what the search does besides the algorithm, in the order of the settings.
    """

    config: GepaSettings
    patience: Patience
    parents: Parents
    minibatches: Minibatches
    comparer: Comparer
    merger: Merger | None
    additions: list[Addition] = attrs.field(factory=list, init=False, hash=False)

    @classmethod
    def of(cls, config: GepaSettings, kit: Kit) -> Parts:
        """Return the parts of a search with these settings."""
        strategy, seen_texts = config.strategy, Seen()
        # Nothing else looks at them, and a long run would hold many.
        keeps = strategy.reuse_rollouts or strategy.minibatches == "teaching"
        training_rollouts = TrainingRollouts(kit.scorer, keeps=keeps)
        validator = _validator(config, kit)
        parts = cls(
            config=config,
            kit=kit,
            reflector=_reflector(config, kit, seen_texts),
            validator=validator,
            seen=seen_texts,
            trial_size=config.trial_size,
            training_rollouts=training_rollouts,
            patience=Patience(
                max_idle_steps=config.limits.max_idle_steps,
                max_failed_reflections=config.limits.max_failed_reflections,
            ),
            parents=Parents(
                config.seed, exploration=strategy.exploration, explored=strategy.explored
            ),
            minibatches=Minibatches(
                seed=config.seed,
                examples={example.id: example for example in kit.training},
                size=config.batch_size,
                growth=strategy.minibatch_growth,
                choice=strategy.minibatches,
                reuses=strategy.reuse_rollouts,
                training_rollouts=training_rollouts,
            ),
            comparer=Comparer(
                policy=config.acceptance,
                scorer=kit.scorer,
                max_rollout_cost=config.guards.max_rollout_cost,
            ),
            merger=_merger(config, kit, seen_texts, validator),
        )
        parts.additions.extend(use.started(parts) for use in config.used_additions)
        return parts

    def attempts(self, step: Step, *, ahead: int) -> Sequence[Attempt]:
        """Begin the attempts of a step, while ``ahead`` earlier ones are under way."""
        count, pool = self.config.strategy.proposals_per_step, self.kit.population.pool
        # A parent that is being validated has no scores yet: those of the best one stand for it.
        member = pool.best if step.is_incumbent else step.parent
        # The first step is paid for by the least budget, so the baseline's do not grow.
        scores = pool.scores[member] if member else ()
        attempts = [
            Attempt(
                step=step,
                number=(step.number - 1) * count + index + 1,
                position=f"step/{step.number}" + (f"/{index + 1}" if count > 1 else ""),
                ahead=ahead + index,
                rejections=Rejections(step.number, step.parent, self.kit.emit),
                turn=self.reflector.turns.at(ahead + index),
            )
            for index in range(count)
        ]
        for attempt in attempts:
            # All of them begin, whoever proposes then: each uses up its random numbers in any case.
            proposers = [addition.begin(attempt) for addition in self.additions]
            attempt.proposers = [*filter(None, proposers), self.reflector.propose]
            if attempt.minibatch:
                attempt.reused = self.minibatches.reusable(attempt.candidate, attempt.minibatch)
            else:
                drawn = self.minibatches.draw(attempt.candidate, scores)
                attempt.minibatch, attempt.reused = drawn
            # An addition that tries few examples may use the rest of a usual trial on its own.
            size = max(len(attempt.minibatch), self.minibatches.size)
            attempt.largest = most_rollouts(self.comparer.policy, size) - len(attempt.reused)
        return attempts

    def propose(self, attempt: Attempt) -> Asking[None]:
        """Set and publish the changes of a child: those of a reflection, or of an addition."""
        if attempt.is_reflection:
            failures, perfect = self.kit.scorer.split(attempt.records)
            learns_from_perfect = self.config.strategy.learn_from_perfect
            attempt.had_failures = bool(failures or (perfect and learns_from_perfect))
            if not attempt.had_failures:
                return
        changes: Changes | None = None
        for propose in attempt.proposers:
            if changes is None:
                changes = yield from propose(attempt)
        for addition in self.additions:
            if changes:
                changes = addition.revise(attempt, changes)
        attempt.changes = changes or ()
        for change in attempt.changes:
            self.kit.emit(
                MutationProposed(
                    step=attempt.step.number,
                    parent=attempt.step.parent,
                    module=change.module.name,
                    before=change.before.text,
                    after=change.text,
                    reason=change.reason,
                )
            )

    def learn(self, attempt: Attempt) -> None:
        """Learn from an attempt that has ended. Call in the order of the steps."""
        new = [record for record in attempt.records if record.example_id not in attempt.reused]
        self.training_rollouts.add(attempt.candidate, new)
        # A module keeps its turn where there was nothing to learn about it.
        if attempt.had_failures:
            self.reflector.turns.took(attempt.turn, attempt.modules)
        for addition in self.additions:
            addition.learn(attempt)


def _reflector(config: GepaSettings, kit: Kit, seen: Seen) -> Reflector:
    strategy, copied = config.strategy, config.copied_words
    return Reflector(
        kit=kit,
        meta_prompts=questions_of(kit.questions, as_published=strategy.published_question),
        turns=Turns(
            config.seed,
            kit.target.modules,
            example_rate=config.example_mutation_rate,
            are_drawn=config.module_choice == "random",
        ),
        module_choice=config.module_choice,
        most_together=config.most_together,
        guard=AnswerGuard(kit.training, copied, metrics_of(config.feedback_fn)) if copied else None,
        seen=seen,
    )


def _validator(config: GepaSettings, kit: Kit) -> Validator:
    """Return what validates children: on everything, or in a race against the best candidate."""
    if isinstance(config.validation, Full):
        return Validator(kit.validation, kit.population)
    return RacingValidator(
        kit.validation,
        kit.population,
        policy=config.validation,
        budget=kit.budget,
        seed=config.seed,
    )


def _merger(config: GepaSettings, kit: Kit, seen: Seen, validator: Validator) -> Merger | None:
    if not (config.enable_merge and config.strategy.max_merge_invocations):
        return None
    # Imported here, because few searches merge.
    from promptgraft.algorithms.gepa.merge import Merger

    return Merger(config=config, kit=kit, seen=seen, validator=validator)
