"""Events about what joins the population."""

from __future__ import annotations

from promptgraft.algorithms.gepa.combining import Combined
from promptgraft.search.algorithm import Kit
from promptgraft.search.events import ExampleGenerated, MutationAccepted


def tell_accepted(kit: Kit, combined: Combined, position: int) -> None:
    """Emit that proposals were accepted, and the new examples of the candidate that they make."""
    pool, step, target = kit.population.pool, combined.step, kit.target
    # Examples that neither the parent has nor what the changes were put onto.
    parents = (step.candidate, *map(pool.candidate, combined.candidate.parents))
    known = {path for one in parents for path in target.additions(one)}
    for path, objective in target.additions(combined.candidate).items():
        if path not in known:
            kit.emit(
                ExampleGenerated(
                    step=step.number,
                    candidate=position,
                    container_path=path[:-1],
                    key=path[-1],
                    objective=objective,
                )
            )
    for proposal in combined.proposals:
        if proposal.compared is None:
            continue
        kit.emit(
            MutationAccepted(
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
