"""Runs an overlapping search with async adapters, and dies at the N-th append: ``FILE N``.

Prints a digest of what came of it; with 0 it never dies.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dying_journal import DyingJournal
from optimizers.async_world import AsyncAdapter, AsyncJudge
from optimizers.worlds import PROMPT, answer, config, propose
from promptgraft.algorithms.gepa import GepaOptimizer
from promptgraft.ground.serde import digest
from promptgraft.search import OptimizationContext


def main(path: Path, fatal: int) -> None:
    settings = config(
        preset="lean",
        rollout_budget=160,
        proposals_per_step=4,
        steps_at_once=2,
        enable_merge=True,
        feedback_fn=AsyncJudge(),
    )
    with DyingJournal(path) as journal, ThreadPoolExecutor(4) as executor:
        journal.lives = fatal
        context = OptimizationContext(
            AsyncAdapter(answer, "task"),
            reflection_adapter=AsyncAdapter(propose, "reflection"),
            journal=journal,
            executor=executor,
        )
        result = GepaOptimizer(context, settings).optimize(PROMPT)
        answers = sorted((record.key, record.digest) for record in journal.records())
    candidates = [(one.digest, list(one.parents)) for one in result.candidates]
    scores = [list(scores) for scores in result.scores_matrix]
    used = [result.total_rollouts, result.total_reflections, str(result.stop_reason)]
    print(digest([str(candidates), scores, used, answers]), len(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
