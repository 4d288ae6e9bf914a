"""Improve the triage prompt: ``python examples/triage/optimize.py [SEED]``."""

from __future__ import annotations

import sys
from pathlib import Path

from task import TEMPLATE, feedback, load_tickets, score

from promptgraft import (
    Data,
    GepaConfig,
    LocalPromptOverridesStore,
    OfflineAdapter,
    OptimizationContext,
    OptimizationJob,
    Prompt,
)

HERE = Path(__file__).parent
TAG = "triage-v1"


def job(seed: int = 0) -> OptimizationJob:
    """Return what the run needs; ``promptgraft plan`` and ``promptgraft optimize`` take it."""
    config = GepaConfig(
        rollout_budget=1500,
        minibatch_size=10,
        pareto_set_size=60,
        target_section_paths=(("queues",), ("conventions",)),
        training_examples=load_tickets(HERE / "train.jsonl"),
        feedback_fn=feedback,
        seed=seed,
        data=Data(shuffle=True),
    )
    context = OptimizationContext(
        adapter=OfflineAdapter(), overrides_store=LocalPromptOverridesStore(), overrides_tag=TAG
    )
    return OptimizationJob(Prompt(TEMPLATE), context, config)


def main(seed: int) -> None:
    """Search, compare on tickets that the search never saw, and say where the winner is."""
    search = job(seed)
    adapter, store = search.context.task_adapter, LocalPromptOverridesStore()
    result = search.run()

    print(f"embedded offline model, seed {seed}, {result.total_rollouts} rollouts,", end=" ")
    print(f"{result.total_reflections} reflections; stopped: {result.stop_reason}")
    print(f"validation: {result.baseline_pareto_mean:.3f} -> {result.best_pareto_mean:.3f}")
    if not result.improved:
        print("nothing beat the baseline; nothing was stored")
        return
    unseen = load_tickets(HERE / "test.jsonl")
    winner = Prompt(TEMPLATE, overrides_store=store, overrides_tag=TAG)
    before, after = (score(prompt, unseen, adapter) for prompt in (Prompt(TEMPLATE), winner))
    print(f"held-out:   {before:.3f} -> {after:.3f} on {len(unseen)} tickets")
    print(f"winner:     tag `{TAG}` in {store.root_path}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
