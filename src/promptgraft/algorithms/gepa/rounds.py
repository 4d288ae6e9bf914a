"""One step of a search: proposals that are made from the same parent, and what came of them."""

from __future__ import annotations

import attrs

from promptgraft.algorithms.gepa.events import GepaExampleGenerated, GepaMutationAccepted
from promptgraft.algorithms.gepa.pool import Pool
from promptgraft.algorithms.gepa.trials import Emit
from promptgraft.algorithms.gepa.validation import Entry
from promptgraft.algorithms.gepa.work import Work
from promptgraft.targets.types import Candidate


@attrs.define(kw_only=True)
class Round:
    """A step that has begun.

    Attributes:
        number: counts the steps from 1.
        parent: position of the parent of all its proposals; until it has raced, of the best one.
        candidate: the parent.
        leads: whether that was the best candidate when the step began, or raced it.
        entry: the way into the pool of what comes of it.
        works: its proposals, in order.
        accepted: those whose children are better than the parent, of the proposals that are
            committed.
        tried: whether a child was tried that nobody had tried before.
    """

    number: int
    parent: int
    candidate: Candidate
    leads: bool
    entry: Entry
    works: list[Work] = attrs.field(factory=list)
    accepted: list[Work] = attrs.field(factory=list)
    tried: bool = False

    @property
    def largest(self) -> int:
        """Rollouts that its proposals can use."""
        return sum(work.largest for work in self.works)

    @property
    def taught(self) -> list[Work]:
        """The proposals that could learn something."""
        return [work for work in self.works if work.taught]


@attrs.frozen
class Racer:
    """What a step has come to, before it is tried on D_pareto.

    Attributes:
        step: the step.
        candidate: what its children make together.
        works: its proposals whose children are in it.
    """

    step: Round
    candidate: Candidate
    works: tuple[Work, ...]


def tell_accepted(emit: Emit, racer: Racer, *, position: int, pool: Pool) -> None:
    """Tell of the accepted proposals that are in the candidate at ``position``."""
    _tell_generated(emit, racer, position, pool)
    for work in racer.works:
        if work.compared is None:
            continue
        emit(
            GepaMutationAccepted(
                step=racer.step.number,
                candidate=position,
                parent=racer.step.parent,
                module=work.child.changed,
                parent_score=work.compared.before,
                child_score=work.compared.after,
                pareto_mean=pool.estimate(position),
                best_pareto_mean=pool.estimate(pool.best),
            )
        )


def _tell_generated(emit: Emit, racer: Racer, position: int, pool: Pool) -> None:
    """Tell of the examples that neither the parent has nor what the changes were put onto."""
    parents = (racer.step.candidate, *map(pool.candidate, racer.candidate.parents))
    known = {path for one in parents for path in one.override.added_task_examples}
    for path, added in racer.candidate.override.added_task_examples.items():
        if path not in known:
            emit(
                GepaExampleGenerated(
                    step=racer.step.number,
                    candidate=position,
                    container_path=added.container_path,
                    key=added.example_key,
                    objective=added.objective,
                )
            )
