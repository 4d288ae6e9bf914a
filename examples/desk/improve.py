"""Improve the help desk by textual gradients: ``python examples/desk/improve.py [SEED]``."""

from __future__ import annotations

import random
import sys

from desk import GRAPH, METRICS, load_examples
from promptgraft import Data, OfflineAdapter, OptimizationContext, feedback_from
from promptgraft.algorithms.gradient import GradientConfig, GradientOptimizer, GradientResult

VALIDATION, TRAINING = 60, 120  # the other cases are held out


def config(seed: int) -> GradientConfig:
    """Return the settings of a run; the seed also deals out the cases."""
    cases = load_examples()
    random.Random(seed).shuffle(cases)
    known = VALIDATION + TRAINING
    return GradientConfig(
        rollout_budget=2000,
        pareto_set_size=VALIDATION,
        training_examples=cases[:known],
        data=Data(held_out=cases[known:]),
        feedback_fn=feedback_from(METRICS),
        train_batch=60,
        seed=seed,
    )


def improve(seed: int = 0) -> GradientResult:
    """Make a run."""
    context = OptimizationContext(OfflineAdapter(words_per_rule=24))
    return GradientOptimizer(context, config(seed)).optimize(GRAPH)


def main(seed: int) -> None:
    """Make a run, and say which failures each patch came from and what came of it."""
    result = improve(seed)
    for one in result.rounds:
        for patch in one.patches:
            print(f"round {one.number}: {patch.module}, for {', '.join(patch.cases[:4])}, ...")
    print(f"embedded offline model, seed {seed}, {result.total_rollouts} rollouts,", end=" ")
    print(f"{result.total_reflections} questions; stopped: {result.stop_reason}")
    print(f"validation: {result.baseline_pareto_mean:.3f} -> {result.best_pareto_mean:.3f}")
    found = result.held_out.gain if result.held_out else None
    if found is not None:
        print(f"held-out:   {found.mean_before:.3f} -> {found.mean_after:.3f}", end=" ")
        print(f"on {found.cases} cases; {found.interval}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
