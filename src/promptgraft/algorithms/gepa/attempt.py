"""One attempt at a better candidate, and the step that it belongs to.

As published, a step makes one attempt. With several, each has a minibatch of its own, and those
that succeed are combined into one candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any, TypeAlias

import attrs
from msgspec.structs import replace

from promptgraft.algorithms.gepa.select import Turn
from promptgraft.search.acceptance import Change, Compared, Rejections
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Asking, Records
from promptgraft.search.events import ExampleGenerated, MutationAccepted, MutationRejected
from promptgraft.search.events import MutationProposed as Proposed
from promptgraft.search.pipeline import Step as PipelineStep
from promptgraft.search.population import Pool, Seen
from promptgraft.search.stops import Patience
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.combining import combined
from promptgraft.targets.types import Candidate, GepaExample, Module, RolloutRecord

TWIN = "a proposal made at the same time has tried the same text"
"""Why a child is refused that equals another one."""
_CONFLICT = "it conflicts with another change accepted in this step, or that has it already"

Changes: TypeAlias = tuple[Change, ...]
"""The changes of a child, each grafted onto the one before it."""


@attrs.define(kw_only=True, eq=False)
class Attempt:
    """One attempt: a parent, a minibatch, and what became of them.

    What is known when it begins depends on its number alone, so attempts may overlap in any way.

    Attributes:
        step: its step.
        parent: position of the parent, as it was known when the attempt began.
        number: counts the attempts of all steps from 1.
        position: position in the run, a prefix of the keys of its answers.
        ahead: how many earlier attempts are under way when it begins.
        tried: how many candidates had been tried by then.
        rejections: refused texts.
        minibatch: the examples that parent and child are evaluated on.
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
        compared_on: the examples that parent and child are compared on; None for the minibatch.
        compared: the comparison; None without a child.
        child: the parent with all changes; the parent itself if there are none.
    """

    step: Step
    parent: int
    number: int
    position: str
    ahead: int
    tried: int
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
    compared_on: tuple[GepaExample, ...] | None = None
    compared: Compared | None = None
    child: Candidate = attrs.field(
        default=attrs.Factory(lambda self: self.step.candidate, takes_self=True)
    )

    @property
    def candidate(self) -> Candidate:
        """The parent."""
        return self.step.candidate

    @property
    def accepted(self) -> bool:
        """Whether there is a child that was better than its parent."""
        return self.compared is not None and self.compared.refusal is None

    def add(self, records: Records) -> None:
        """Add the parent's rollouts to those that are reused."""
        rollouts = {**self.reused, **{record.example_id: record for record in records}}
        self.records = tuple(rollouts[example.id] for example in self.minibatch)

    @property
    def comparison(
        self,
    ) -> tuple[str, tuple[Candidate, Candidate], tuple[GepaExample, ...], Records]:
        """What the child is compared with: position, pair, examples and the parent's rollouts."""
        about = self.minibatch if self.compared_on is None else self.compared_on
        by_id = {record.example_id: record for record in self.records}
        before = tuple(by_id[example.id] for example in about)
        return self.position, (self.candidate, self.child), about, before

    def propose(self, changes: Changes) -> None:
        """Set the changes of the child, and publish them."""
        self.changes = changes
        for change in changes:
            self.rejections.emit(
                Proposed(
                    step=self.step.number,
                    parent=self.parent,
                    module=change.module.name,
                    before=change.before.text,
                    after=change.text,
                    reason=change.reason,
                )
            )
        if changes:
            modules = tuple(change.module for change in changes)
            self.child = attrs.evolve(changes[-1].candidate, modules=modules)

    def judge(self, compared: Compared) -> None:
        """Set the comparison of the child with its parent, and publish a refusal."""
        self.compared = compared
        if compared.refusal is not None:
            self.rejections.add_all(self.changes, *compared.refusal, compared=compared)

    def refuse(self, reason: RejectionReason, detail: str) -> list[MutationRejected]:
        """Refuse a child that was better than its parent; return the rejections."""
        if self.compared is None or not self.accepted:
            return []
        return self.rejections.add_all(self.changes, reason, detail, compared=self.compared)

    def name_parent(self, position: int) -> None:
        """Set the position of the parent, which may not have been known when the step began."""
        self.step.parent = position
        if self.rejections.parent != position:
            self.rejections.name_parent(position)

    def amended(self, event: object) -> object:
        """Return an event with the position that the parent has been given meanwhile."""
        if isinstance(event, (Proposed, MutationRejected)):
            return replace(event, parent=self.step.parent)
        return event


Proposer: TypeAlias = Callable[[Attempt], Asking[Changes | None]]
"""Turns the parent's rollouts into changes; returns None to leave that to the next one."""


@attrs.define(kw_only=True, eq=False)
class Step(PipelineStep[Attempt]):
    """A step of the algorithm.

    Attributes:
        candidate: the parent of all its attempts.
        is_incumbent: whether the parent was the best candidate when the step began, or was
            expected to become it.
        better: the committed attempts whose children were better than their parent.
        last_to_learn: the last committed attempt that could learn something; None without one.
        has_tried: whether it evaluated a child that no earlier attempt had tried.
    """

    candidate: Candidate
    is_incumbent: bool
    better: list[Attempt] = attrs.field(factory=list)
    last_to_learn: Attempt | None = None
    has_tried: bool = False

    def note(self, attempt: Attempt) -> None:
        """Note that an attempt has ended, for :meth:`count_idle`."""
        if not attempt.is_reflection:
            self.has_tried = True
        if attempt.had_failures or not attempt.is_reflection:
            self.last_to_learn = attempt

    def count_idle(self, patience: Patience) -> None:
        """Count whether it has tried anything new.

        Raises:
            RunStoppedError: there were too many steps without anything new.
        """
        taught = self.last_to_learn
        if taught is None:
            patience.idle("in the last minibatches every answer with a score was perfect")
        elif self.has_tried:
            patience.renew()
        elif not taught.modules:
            patience.idle("no part that may change was shown to the model")
        elif taught.compared is None:
            refusal = taught.rejections.all[-1]
            patience.refused(refusal.reason, refusal.detail)
        else:
            patience.refused(RejectionReason.DUPLICATE, TWIN)

    def result(self, kit: Kit, seen: Seen) -> Result:
        """Combine its accepted children into one candidate.

        If their parent was expected to become the best candidate and did not, their changes are
        applied to the best candidate instead.
        """
        pool = kit.population.pool
        attempts = sorted(self.better, key=lambda one: -_gain(one))  # stable: the earlier first
        parent = pool.best if self.is_incumbent else self.parent
        is_parent = pool.candidates[parent].digest == self.candidate.digest
        first, *children = [attempt.child for attempt in attempts]
        # The best child is the base while its parent still leads; otherwise all are applied anew.
        onto = pool.candidates[parent]
        if is_parent:
            onto = attrs.evolve(first, parents=(parent,))
        else:
            children = [first, *children]
        candidate, contributes = onto, (False,) * len(children)
        if children:
            combination = combined(
                kit.target,
                onto,
                children,
                base=self.candidate,
                parents=(parent,),
                examples=kit.validation,
                is_child=is_parent,
            )
            # It may equal one of the children, none of which has been validated yet.
            alike = {child.digest for child in children}
            if combination.candidate.digest not in seen or combination.candidate.digest in alike:
                candidate, contributes = combination.candidate, combination.contributes
        seen.add(candidate.digest)
        if is_parent:
            contributes = (True, *contributes)
        contributing = list(compress(attempts, contributes))
        left_out = [attempt for attempt in attempts if attempt not in contributing]
        return Result(self, candidate, contributing, left_out)


def _gain(attempt: Attempt) -> float:
    return attempt.compared.gain if attempt.compared is not None else 0.0


@attrs.frozen
class Result:
    """The result of a step, before it is validated.

    Attributes:
        step: the step.
        candidate: the combination of its accepted children.
        attempts: the attempts whose children are in it, best first.
        left_out: those whose children conflict with it.
    """

    step: Step
    candidate: Candidate
    attempts: Sequence[Attempt]
    left_out: Sequence[Attempt]

    @property
    def total_gain(self) -> float:
        """Its gain on a minibatch, summed over the examples: the mean over the children.

        Each child was selected for its gain, so the sum would be biased upwards.
        """
        compared = [attempt.compared for attempt in self.attempts if attempt.compared]
        gains = sum(child.gain * len(child.batches[0]) for child in compared)
        return gains / max(1, len(compared))

    def refuse_others(self) -> list[MutationRejected]:
        """Refuse the children that conflict with it; return the rejections."""
        return [
            rejection
            for attempt in self.left_out
            for rejection in attempt.refuse(RejectionReason.CONFLICT, _CONFLICT)
        ]

    def publish(self, kit: Kit, position: int) -> None:
        """Publish that it has joined the pool, with its new examples and accepted changes."""
        for path, objective in self._new_examples(kit, kit.population.pool).items():
            kit.emit(
                ExampleGenerated(
                    step=self.step.number,
                    candidate=position,
                    container_path=path[:-1],
                    key=path[-1],
                    objective=objective,
                )
            )
        pool = kit.population.pool
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

    def _new_examples(self, kit: Kit, pool: Pool) -> Mapping[tuple[str, ...], str]:
        """Return its examples that neither parent has, with their objectives, by path."""
        parents = [self.step.candidate, *map(pool.candidates.__getitem__, self.candidate.parents)]
        old = {path for parent in parents for path in kit.target.additions(parent)}
        added = kit.target.additions(self.candidate)
        return {path: objective for path, objective in added.items() if path not in old}
