"""GEPA as published (Agrawal et al. 2025, arXiv:2507.19457): algorithms 1 and 2.

The numbers of lines are those of algorithm 1. Its loop (line 7) is in ``search/pipeline.py``, which
calls ``begin``, ``work``, ``commit``, ``close`` and ``conclude`` for each step. Whatever a search
does beyond the algorithm is an addition (``additions/``).
"""

from __future__ import annotations

from promptgraft.algorithms.gepa.attempt import CONFLICT, TWIN, Attempt, Result, Step
from promptgraft.algorithms.gepa.settings import GepaSettings
from promptgraft.algorithms.gepa.setup import Parts
from promptgraft.search.algorithm import BaseSearch, Kit
from promptgraft.search.asks import Asking, Rollouts
from promptgraft.search.pipeline import Pipeline, Stepping
from promptgraft.search.validation import PoolEntry
from promptgraft.targets.base import RejectionReason

_SURELY_UNUSABLE = 20
"""Answers of the baseline after which a run ends if none of them can be used."""


class GepaSearch(Stepping[Step, Attempt], BaseSearch):
    """One GEPA search."""

    def __init__(self, config: GepaSettings, kit: Kit) -> None:
        super().__init__(kit)
        self.config = config
        self.parts: Parts = Parts.of(config, kit)
        self.pipeline: Pipeline[Step, Attempt] = Pipeline(
            search=self,
            kit=kit,
            validator=self.parts.validator,
            at_once=config.strategy.steps_at_once,
            most_questions=config.reflections_per_proposal,
        )
        self._result: Result | None = None

    def run(self) -> Asking[None]:
        """Algorithm 1: improve the target until there is a reason to stop, then raise it."""
        self.parts.seen.add(self.kit.target.baseline().digest)
        # Lines 3 to 6: evaluate the baseline on the validation set.
        required = self.config.objectives_asked_for
        yield from self.evaluate_baseline(self.parts.validator.baseline, required=required)
        # Lines 7 to 19: make steps while the budget lasts.
        yield from self.pipeline.run()

    def evaluate_more_of_baseline(self) -> Asking[None]:
        return self.parts.validator.evaluate_more_of_baseline(_SURELY_UNUSABLE)

    def begin(self, number: int, *, ahead: int) -> Step:
        """Line 8, algorithm 2: select the parent of a step from the frontier."""
        pool, waiting = self.population.pool, self._result
        parent = self.parts.parents.choose(pool)
        is_incumbent, candidate = parent == pool.best, pool.candidates[parent]
        if is_incumbent and waiting is not None and waiting.step.is_incumbent:
            # Most accepted children become the best candidate, so this step builds on this one,
            # which is the next to join the pool.
            parent, candidate = len(pool), waiting.candidate
        step = Step(
            number=number,
            parent=parent,
            candidate=candidate,
            is_incumbent=is_incumbent,
            tried=len(self.parts.seen),
            entry=self.parts.validator.begin(alone=not ahead and waiting is None),
        )
        # Lines 9 and 10: fix whose turn it is to be changed, and draw a minibatch.
        step.attempts = self.parts.attempts(step, ahead=ahead)
        return step

    def work(self, attempt: Attempt) -> Asking[None]:
        """Lines 11 to 14: evaluate the parent, propose a change, evaluate the child."""
        records = yield from Rollouts(
            position=f"{attempt.position}/parent",
            candidate=attempt.candidate,
            examples=[example for example in attempt.minibatch if example.id not in attempt.reused],
        )
        attempt.add_parent_rollouts(records)
        # Lines 12 and 13: reflect on the module and the rollouts.
        yield from self.parts.propose(attempt)
        if attempt.changes:
            yield from attempt.compare(self.parts.comparer)

    def commit(self, attempt: Attempt, ended: Asking[None]) -> Asking[None]:
        """Line 15: keep the child if it was better. Called in the order of the steps."""
        parts, step = self.parts, attempt.step
        self.steps = step.number
        self.rejections += attempt.rejections.all
        yield from ended
        parts.learn(attempt)
        if attempt.compared is None:
            return
        self.proposals += attempt.is_reflection
        if attempt.child.digest in parts.seen:
            self.rejections += attempt.refuse(RejectionReason.DUPLICATE, TWIN)
            return
        step.new.append(attempt)
        parts.seen.add(attempt.child.digest)
        if attempt.accepted:
            parts.training_rollouts.add(attempt.child, attempt.compared.batches[-1])

    def close(self, step: Step) -> Asking[None]:
        """Combine the accepted children of a step into its result."""
        if not step.learners:
            # The best candidate may be perfect everywhere: find out.
            yield from self.pipeline.or_broken(self.parts.validator.deepen(self.steps))
        step.count_idle(self.parts.patience)
        if step.better:
            result = step.result(self.kit, self.parts.seen)
            for attempt in result.left_out:
                self.rejections += attempt.refuse(RejectionReason.CONFLICT, CONFLICT)
            self._result = result if result.attempts else None

    def conclude(self) -> Asking[None]:
        """Lines 16 to 18: evaluate the result, add it to the pool, perhaps merge."""
        if (result := self._result) is None:
            return
        where = f"step/{result.step.number}/pareto"
        position = yield from self.parts.validator.validate(where, result.entrant)
        self._result = None
        self.accepted += [attempt.child.modules for attempt in result.attempts]
        result.publish(self.kit, position)
        if (merger := self.parts.merger) is not None:
            merge = merger.attempt(self.population.pool, result.step.number)
            yield from self.pipeline.or_broken(merge)

    def finish(self) -> Asking[None]:
        """Line 20: determine the best candidate."""
        yield from self.parts.validator.finish(self.steps)
        for addition in self.parts.additions:
            yield from addition.finish(self.steps)
        yield from self.parts.validator.complete_best(self.steps)

    @property
    def best(self) -> int:
        """Position of the candidate that wins."""
        pick = self.config.objectives.pick
        return self.population.pick(pick) if pick else self.population.pool.best

    @property
    def pending(self) -> PoolEntry | None:
        return None if self._result is None else self._result.step.entry

    @property
    def most_after(self) -> int:
        return self.parts.merger.largest if self.parts.merger else 0

    def gives_back(self) -> bool:
        return any(addition.gives_back() for addition in self.parts.additions)
