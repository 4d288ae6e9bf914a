"""A winner tried once more: the best of many candidates looks better than it is."""

from __future__ import annotations

from collections.abc import Sequence

from promptgraft.evals.statistics import paired_test
from promptgraft.search.acceptance import AcceptancePolicy
from promptgraft.search.asks import Asking, Rollouts, Together
from promptgraft.search.objectives import Scorer
from promptgraft.search.outcomes import Confirmation
from promptgraft.search.pool import Pool
from promptgraft.search.scores import Score, mean_score
from promptgraft.targets.types import GepaExample, RolloutRecord


def confirm(
    pool: Pool, examples: Sequence[GepaExample], *, policy: AcceptancePolicy, scorer: Scorer
) -> Asking[Confirmation]:
    """Ask for fresh answers of baseline and winner, and test one against the other."""
    best, rounds = pool.best, range(policy.confirmations)
    made = yield from Together(
        *(
            Rollouts(
                position=f"confirm/{best}/{name}/{number}",
                candidate=pool.candidate(position),
                examples=examples,
            )
            for name, position in (("baseline", 0), ("winner", best))
            for number in rounds
        )
    )
    before, after = (_means(made[side:][: len(rounds)], scorer) for side in (0, len(rounds)))
    found = paired_test(before, after)
    return Confirmation(
        candidate=best,
        baseline_mean=mean_score(before),
        winner_mean=mean_score(after),
        p_value=found.p_value,
        confirmed=found.mean_gain > 0 and found.p_value <= policy.level,
    )


def _means(rounds: Sequence[Sequence[RolloutRecord]], scorer: Scorer) -> list[Score]:
    """Return the mean score of each example over the rounds."""
    answers = zip(*rounds, strict=True)
    return [mean_score([scorer.score(one) for one in again]) for again in answers]
