"""What a search is worth: baseline and winner on examples that no part of it has seen."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.search.asks import Asking, Rollouts, Together
from promptgraft.search.objectives import Scorer
from promptgraft.search.pool import Pool
from promptgraft.search.scores import Score, paired_means
from promptgraft.targets.types import GepaExample


@attrs.frozen(kw_only=True)
class HeldOut:
    """Baseline and winner on the held-out examples.

    Attributes:
        ids: the examples.
        baseline_scores: the baseline's scores, by example; None for unscored. Empty when
            nothing was measured.
        winner_scores: the winner's.
        why_not: why nothing was measured; empty when it was.
    """

    ids: tuple[str, ...]
    baseline_scores: tuple[Score, ...] = ()
    winner_scores: tuple[Score, ...] = ()
    why_not: str = ""

    @property
    def baseline_mean(self) -> float | None:
        """The baseline's mean over the examples that both have a score for."""
        return paired_means(self.baseline_scores, self.winner_scores)[0]

    @property
    def winner_mean(self) -> float | None:
        """The winner's mean over the same."""
        return paired_means(self.baseline_scores, self.winner_scores)[1]


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
