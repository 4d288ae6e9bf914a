"""What steps tell of children: refused, accepted, generated."""

from __future__ import annotations

from promptgraft.optimizers.gepa.comparing import Compared
from promptgraft.optimizers.gepa.events import (
    GepaExampleGenerated,
    GepaMutationAccepted,
    GepaMutationRejected,
)
from promptgraft.optimizers.gepa.pool import Pool
from promptgraft.optimizers.gepa.steps import Step
from promptgraft.optimizers.gepa.trials import Emit
from promptgraft.optimizers.modules import GenerationModule
from promptgraft.optimizers.target import RejectionReason
from promptgraft.optimizers.types import Candidate


class Rejections:
    """Every refused proposal of a run, kept and told of."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.all: list[GepaMutationRejected] = []

    def add(
        self, step: Step, reason: RejectionReason, detail: str, *, text: str, final: bool = True
    ) -> None:
        """Keep a refusal; it is not ``final`` when one more reply is asked for."""
        rejection = GepaMutationRejected(
            step=step.number,
            parent=step.parent,
            module=step.module.name,
            reason=reason,
            detail=detail,
            text=text,
            final=final,
        )
        self.all.append(rejection)
        self._emit(rejection)


def tell_accepted(
    emit: Emit, step: Step, child: Candidate, *, position: int, compared: Compared, pool: Pool
) -> None:
    """Tell of a child that has joined the pool at ``position``."""
    if isinstance(step.module, GenerationModule):
        _tell_generated(emit, step, child, position)
    emit(
        GepaMutationAccepted(
            step=step.number,
            candidate=position,
            parent=step.parent,
            module=step.module.name,
            parent_score=compared.before,
            child_score=compared.after,
            pareto_mean=pool.mean(position),
            best_pareto_mean=pool.mean(pool.best),
        )
    )


def _tell_generated(emit: Emit, step: Step, child: Candidate, position: int) -> None:
    before = step.candidate.override.added_task_examples
    for path, added in child.override.added_task_examples.items():
        if path not in before:
            emit(
                GepaExampleGenerated(
                    step=step.number,
                    candidate=position,
                    container_path=added.container_path,
                    key=added.example_key,
                    objective=added.objective,
                )
            )
