"""Events about what joins the population."""

from __future__ import annotations

from collections.abc import Sequence

from promptgraft.algorithms.gepa.proposal import Proposal
from promptgraft.algorithms.gepa.under_way import Step
from promptgraft.search.events import Emit, GepaExampleGenerated, GepaMutationAccepted
from promptgraft.search.pool import Pool
from promptgraft.targets.types import Candidate


def tell_accepted(
    emit: Emit,
    step: Step,
    proposals: Sequence[Proposal],
    *,
    candidate: Candidate,
    position: int,
    pool: Pool,
) -> None:
    """Emit that proposals were accepted, and the new examples of the candidate that they make."""
    # Examples that neither the parent has nor what the changes were put onto.
    parents = (step.candidate, *map(pool.candidate, candidate.parents))
    known = {path for one in parents for path in one.override.added_task_examples}
    for path, added in candidate.override.added_task_examples.items():
        if path not in known:
            emit(
                GepaExampleGenerated(
                    step=step.number,
                    candidate=position,
                    container_path=added.container_path,
                    key=added.example_key,
                    objective=added.objective,
                )
            )
    for proposal in proposals:
        if proposal.compared is None:
            continue
        emit(
            GepaMutationAccepted(
                step=step.number,
                candidate=position,
                parent=step.parent,
                module=proposal.child.changed,
                parent_score=proposal.compared.before,
                child_score=proposal.compared.after,
                pareto_mean=pool.estimate(position),
                best_pareto_mean=pool.estimate(pool.best),
            )
        )
