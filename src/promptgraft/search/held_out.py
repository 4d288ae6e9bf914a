"""What a search is worth: baseline and winner on examples that no part of it has seen."""

from __future__ import annotations

from collections.abc import Sequence

from promptgraft.search.asks import Asking, Rollouts, Together
from promptgraft.search.objectives import Scorer
from promptgraft.search.outcomes import HeldOut
from promptgraft.search.pool import Pool
from promptgraft.targets.types import GepaExample


def measure(
    pool: Pool, winner: int, examples: Sequence[GepaExample], *, scorer: Scorer
) -> Asking[HeldOut]:
    """Evaluate baseline and winner once on each held-out example.

    Examples that a resumed run does not have any more are not counted, others are evaluated then.
    """
    made = yield from Together(
        *(
            Rollouts(
                position=f"held-out/{position}",
                candidate=pool.candidate(position),
                examples=examples,
                by_example=True,
            )
            for position in (0, winner)
        )
    )
    before, after = (tuple(scorer.score(record) for record in records) for records in made)
    return HeldOut(
        ids=tuple(example.id for example in examples),
        baseline_scores=before,
        winner_scores=after,
    )
