"""What steps tell of children: rejected, accepted, generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from promptgraft.algorithms.gepa.comparing import Compared
from promptgraft.algorithms.gepa.events import (
    GepaCandidateAdded,
    GepaCandidateScored,
    GepaMutationRejected,
)
from promptgraft.algorithms.gepa.pool import Pool
from promptgraft.algorithms.gepa.steps import Proposed, Step
from promptgraft.algorithms.gepa.trials import Emit
from promptgraft.frozenmap import FrozenMap
from promptgraft.search.ledger import Ledger
from promptgraft.targets.base import RejectionReason, Target
from promptgraft.targets.modules import GenerationModule, names_of
from promptgraft.targets.types import Candidate


class Rejections:
    """Every rejected proposal of a run, kept and told of."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.all: list[GepaMutationRejected] = []

    def add(
        self,
        step: Step,
        reason: RejectionReason,
        detail: str,
        *,
        text: str,
        tried: Compared | None = None,
        final: bool = True,
    ) -> None:
        """Keep a refusal; it is not ``final`` when more of the same step follows."""
        rejection = GepaMutationRejected(
            step=step.number,
            parent=step.parent,
            module=step.module.name,
            reason=reason,
            detail=detail,
            text=text,
            before=step.description.text,
            parent_score=tried.before if tried is not None else None,
            child_score=tried.after if tried is not None else None,
            final=final,
        )
        self.all.append(rejection)
        self._emit(rejection)

    def add_all(
        self,
        changes: Sequence[Proposed],
        reason: RejectionReason,
        detail: str,
        *,
        tried: Compared,
    ) -> None:
        """Keep the refusal of a child, with every change that it was made by."""
        for change in changes:
            others = names_of(one.step.module for one in changes if one is not change)
            self.add(
                change.step,
                reason,
                f"{detail}; changed together with {others}" if others else detail,
                text=change.text,
                tried=tried,
                final=change is changes[-1],
            )

    def take_over(self, step: Rejections) -> None:
        """Keep what a step has rejected and told of."""
        self.all += step.all


class Newcomers:
    """Tells of candidates that have joined the pool.

    Args:
        target: shows their texts.
        ledger: what the run has used.
        emit: is told.
    """

    def __init__(self, target: Target, *, ledger: Ledger, emit: Emit) -> None:
        self._target = target
        self._ledger = ledger
        self._emit = emit

    def scored(self, step: int, position: int, pool: Pool) -> None:
        """Tell of new scores of the candidate at ``position``."""
        self._emit(
            GepaCandidateScored(
                step=step,
                candidate=position,
                scores=pool.scores_of(position),
                objectives=pool.objectives_of(position),
                mean=pool.estimate(position),
                best=pool.best,
            )
        )

    def joined(self, step: int, position: int, pool: Pool) -> None:
        """Tell of the candidate at ``position``."""
        candidate = pool.candidate(position)
        self._emit(
            GepaCandidateAdded(
                step=step,
                candidate=position,
                value=candidate,
                texts=texts_of(self._target, candidate),
                scores=pool.scores_of(position),
                objectives=pool.objectives_of(position),
                mean=pool.estimate(position),
                best=pool.best,
                rollouts=self._ledger.rollouts,
                reflections=self._ledger.reflections,
                tokens=self._ledger.charge.tokens,
                cost=self._ledger.known_cost,
            )
        )


def texts_of(target: Target, candidate: Candidate) -> Mapping[str, str]:
    """Return a candidate's text of each module by name; a new example has no text before it."""
    return FrozenMap(
        (module.name, target.text(module, candidate))
        for module in target.modules
        if not isinstance(module, GenerationModule)
    )
