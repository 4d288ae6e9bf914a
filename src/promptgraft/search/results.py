"""From the state of a search to the result that users get."""

from __future__ import annotations

from collections.abc import Sequence

from promptgraft.search.algorithm import Search
from promptgraft.search.course import Course
from promptgraft.search.ledger import Ledger
from promptgraft.search.population import Pool
from promptgraft.search.result import RunResult
from promptgraft.search.stopping import StopReason
from promptgraft.targets.modules import is_example
from promptgraft.targets.types import GepaExample

_MERGE = "merge"


def build_result(
    search: Search,
    course: Course,
    *,
    run_id: str,
    name: str,
    tag: str,
    pareto: Sequence[GepaExample],
    ledger: Ledger,
    stopped: tuple[StopReason, str],
) -> RunResult:
    """Return the result of a run that has ended; nothing is persisted yet."""
    pool = search.population.pool
    candidates = tuple(pool.candidates)
    confirmation = course.confirmation
    best = course.winner
    return RunResult(
        run_id=run_id,
        name=name,
        tag=tag,
        best_index=best,
        best_pareto_mean=pool.estimate(best),
        baseline_pareto_mean=pool.means[0],
        improved=best != 0,
        persisted=False,
        candidates=candidates,
        scores_matrix=tuple(pool.scores),
        objectives=tuple(pool.objectives),
        frontier=tuple(pool.frontier()),
        confirmation=confirmation,
        held_out=course.held_out,
        pareto_ids=tuple(example.id for example in pareto),
        means=tuple(pool.estimate(position) for position in range(len(pool))),
        ancestry=tuple(found.parents[0] if found.parents else None for found in candidates),
        parents=tuple(found.parents for found in candidates),
        gains=_gains(pool, best),
        accepted_mutations=len(search.accepted),
        accepted_example_mutations=sum(is_example(modules[0]) for modules in search.accepted),
        accepted_merges=sum(len(found.parents) == 2 for found in candidates),
        rejections=tuple(search.rejections),
        total_rollouts=ledger.rollouts,
        unscored_rollouts=ledger.unscored,
        total_reflections=ledger.reflections,
        ledger=ledger.entries,
        steps=search.steps,
        stop_reason=stopped[0],
        stop_detail=stopped[1],
    )


def _gains(pool: Pool, best: int) -> dict[str, float]:
    """Add up along the winner's line what each kind of change did to the mean on D_pareto."""
    gains: dict[str, float] = {}
    position = best
    while candidate_parents := pool.candidates[position].parents:
        parent = candidate_parents[0]
        after, before = pool.estimate(position), pool.estimate(parent)
        kinds = {module.kind: None for module in pool.candidates[position].modules}
        kind = " + ".join(kinds) or _MERGE
        if after is not None and before is not None:
            gains[kind] = gains.get(kind, 0.0) + after - before
        position = parent
    return gains
