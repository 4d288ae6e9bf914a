"""One attempt at a better candidate, and the step that it belongs to.

As published, a step makes one attempt. With several, each has a minibatch of its own, and those
that succeed are combined into one candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any, TypeAlias

import attrs

from promptgraft.algorithms.gepa.select import Turn
from promptgraft.search.acceptance import Change, Compared, Comparer, Rejections
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Asking, Records
from promptgraft.search.events import ExampleGenerated, MutationAccepted, MutationRejected
from promptgraft.search.pipeline import Step as PipelineStep
from promptgraft.search.population import Seen
from promptgraft.search.scores import total_of
from promptgraft.search.stops import Patience
from promptgraft.search.validation import Entrant
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.combining import combined
from promptgraft.targets.types import Candidate, GepaExample, Module, RolloutRecord

TWIN = "a proposal made at the same time has tried the same text"
"""Why a child is refused that equals another one."""
CONFLICT = "it conflicts with another change accepted in this step, or that has it already"
"""Why a child is refused that cannot be combined with the better ones of its step."""

Changes: TypeAlias = tuple[Change, ...]
"""The changes of a child, each grafted onto the one before it."""


@attrs.define(kw_only=True, eq=False)
class Attempt:
    """One attempt: a parent, a minibatch, and what became of them.

    What is known when it begins depends on its number alone, so attempts may overlap in any way.

    Attributes:
        number: counts the attempts of all steps from 1.
        position: position in the run, a prefix of the keys of its answers.
        ahead: how many earlier attempts are under way when it begins.
        rejections: refused texts.
        minibatch: the examples that parent and child are evaluated on; what proposes a child may
            leave out some of the parent's.
        reused: the parent's rollouts that are not made again, by example id.
        largest: most rollouts that it can use.
        earlier: answers of earlier candidates with their scores, by example id, of which a
            question shows the better ones.
        is_reflection: whether its proposal comes from a reflection on the minibatch.
        turn: which modules have their turn.
        proposers: who may propose, in this order.
        notes: what additions know of it, each under its own name.
        records: the parent's rollouts on the minibatch.
        had_failures: whether there was anything to learn from them.
        modules: the modules that it has chosen to change; empty if there is nothing to change.
        changes: the usable changes.
        compared: the comparison; None without a child.
    """

    step: Step
    number: int
    position: str
    ahead: int
    rejections: Rejections
    minibatch: tuple[GepaExample, ...] = ()
    reused: Mapping[str, RolloutRecord] = attrs.field(factory=dict)
    largest: int = 0
    earlier: Mapping[str, Sequence[tuple[float, RolloutRecord]]] = attrs.field(factory=dict)
    is_reflection: bool = True
    turn: Turn = attrs.field(factory=Turn)
    proposers: list[Proposer] = attrs.field(factory=list)
    notes: dict[str, Any] = attrs.field(factory=dict)
    records: Records = ()
    had_failures: bool = False
    modules: tuple[Module, ...] = ()
    changes: Changes = ()
    compared: Compared | None = None

    @property
    def candidate(self) -> Candidate:
        """The parent."""
        return self.step.candidate

    @property
    def child(self) -> Candidate:
        """The parent with all changes; the parent itself if there are none."""
        if not self.changes:
            return self.candidate
        # Each change is grafted onto the one before it, so the last candidate has them all.
        modules = tuple(change.module for change in self.changes)
        return attrs.evolve(self.changes[-1].candidate, modules=modules)

    @property
    def accepted(self) -> bool:
        """Whether there is a child that was better than its parent."""
        return self.compared is not None and self.compared.refusal is None

    def add_parent_rollouts(self, records: Records) -> None:
        """Add the parent's rollouts to those that are reused."""
        rollouts = {**self.reused, **{record.example_id: record for record in records}}
        self.records = tuple(rollouts[example.id] for example in self.minibatch)

    def compare(self, comparer: Comparer) -> Asking[None]:
        """Evaluate the child, compare it with its parent, and publish a refusal."""
        by_id = {record.example_id: record for record in self.records}
        self.compared = yield from comparer.compare(
            self.position,
            (self.candidate, self.child),
            self.minibatch,
            # An addition may have dropped examples since the parent was evaluated.
            tuple(by_id[example.id] for example in self.minibatch),
        )
        if self.compared.refusal is not None:
            self.rejections.add_all(self.changes, *self.compared.refusal, compared=self.compared)

    def refuse(self, reason: RejectionReason, detail: str) -> list[MutationRejected]:
        """Refuse a child that was better than its parent; return the rejections."""
        if self.compared is None or not self.accepted:
            return []
        return self.rejections.add_all(self.changes, reason, detail, compared=self.compared)


Proposer: TypeAlias = Callable[[Attempt], Asking[Changes | None]]
"""Turns the parent's rollouts into changes; returns None to leave that to the next one."""


@attrs.define(kw_only=True, eq=False)
class Step(PipelineStep[Attempt]):
    """A step of the algorithm.

    Attributes:
        candidate: the parent of all its attempts.
        is_incumbent: whether the parent was the best candidate when the step began, or was
            expected to become it.
        tried: how many candidates had been tried when it began.
        new: the committed attempts whose children no earlier attempt had tried.
    """

    candidate: Candidate
    is_incumbent: bool
    tried: int
    new: list[Attempt] = attrs.field(factory=list)

    @property
    def learners(self) -> list[Attempt]:
        """The attempts that could learn something."""
        # Attempts that do not reflect, such as relocations, need no failures.
        return [
            attempt
            for attempt in self.attempts
            if attempt.had_failures or not attempt.is_reflection
        ]

    @property
    def better(self) -> list[Attempt]:
        """The new children that were better than their parent, best first."""
        gains = {
            attempt: attempt.compared.gain
            for attempt in self.new
            if attempt.compared is not None and attempt.accepted
        }
        return sorted(gains, key=lambda attempt: -gains[attempt])  # stable: the earlier first

    def count_idle(self, patience: Patience) -> None:
        """Count whether it has tried anything new.

        Raises:
            RunStoppedError: there were too many steps without anything new.
        """
        if not self.learners:
            patience.idle("in the last minibatches every answer with a score was perfect")
            return
        last = self.learners[-1]
        if self.new or not all(attempt.is_reflection for attempt in self.attempts):
            patience.renew()
        elif last.compared is not None:
            patience.refused(RejectionReason.DUPLICATE, TWIN)
        elif last.rejections.all:
            refusal = last.rejections.all[-1]
            patience.refused(refusal.reason, refusal.detail)
        else:
            unseen = "no part that may change was shown to the model"
            patience.idle("no change was proposed" if last.modules else unseen)

    def result(self, kit: Kit, seen: Seen) -> Result:
        """Combine its accepted children into one candidate.

        If their parent was expected to become the best candidate and did not, their changes are
        applied to the best candidate instead.
        """
        pool, better = kit.population.pool, self.better
        parent = pool.best if self.is_incumbent else self.parent
        candidate, applied, remaining = pool.candidates[parent], list[Attempt](), better
        is_parent = candidate.digest == self.candidate.digest
        if is_parent:
            # The best child is the base while its parent still leads; else all are applied anew.
            applied, remaining = better[:1], better[1:]
            candidate = attrs.evolve(better[0].child, parents=(parent,))
        if remaining:
            children = [attempt.child for attempt in remaining]
            combination, contributes = combined(
                kit.target,
                candidate,
                children,
                base=self.candidate,
                parents=(parent,),
                examples=kit.validation,
                is_child=is_parent,
            )
            # It may equal one of the children, none of which has been validated yet.
            alike = {child.digest for child in children}
            if combination.digest not in seen or combination.digest in alike:
                candidate = combination
                applied += compress(remaining, contributes)
        seen.add(candidate.digest)
        left_out = [attempt for attempt in better if attempt not in applied]
        return Result(self, candidate, applied, left_out)


@attrs.frozen
class Result:
    """The result of a step, before it is validated.

    Attributes:
        candidate: the combination of its accepted children.
        attempts: the attempts whose children are in it, best first.
        left_out: those whose children conflict with it.
    """

    step: Step
    candidate: Candidate
    attempts: Sequence[Attempt]
    left_out: Sequence[Attempt]

    @property
    def entrant(self) -> Entrant:
        """The candidate, to be validated."""
        compared = [attempt.compared for attempt in self.attempts if attempt.compared]
        gains = total_of([0.0, *(child.gain * len(child.batches[0]) for child in compared)])
        return Entrant(
            candidate=self.candidate,
            step=self.step.number,
            entry=self.step.entry,
            proposals=len(self.attempts),
            # Each child was selected for its gain, so the sum would be biased upwards.
            total_gain=gains / max(1, len(compared)),
        )

    def publish(self, kit: Kit, position: int) -> None:
        """Publish that it has joined the pool, with its new examples and accepted changes."""
        pool = kit.population.pool
        parents = [self.step.candidate, *map(pool.candidates.__getitem__, self.candidate.parents)]
        old = {path for parent in parents for path in kit.target.additions(parent)}
        for path, objective in kit.target.additions(self.candidate).items():
            if path not in old:
                kit.emit(
                    ExampleGenerated(
                        step=self.step.number,
                        candidate=position,
                        container_path=path[:-1],
                        key=path[-1],
                        objective=objective,
                    )
                )
        for attempt in self.attempts:
            if attempt.compared is None:
                continue
            kit.emit(
                MutationAccepted(
                    step=self.step.number,
                    candidate=position,
                    parent=self.step.parent,
                    module=attempt.child.changed,
                    parent_score=attempt.compared.before,
                    child_score=attempt.compared.after,
                    pareto_mean=pool.estimate(position),
                    best_pareto_mean=pool.estimate(pool.best),
                )
            )
