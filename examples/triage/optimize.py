"""Improve the triage prompt: ``python examples/triage/optimize.py [SEED]``."""

from __future__ import annotations

import sys
from pathlib import Path

from task import TEMPLATE, feedback, load_tickets

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
        rollout_budget=1500 + 2 * 107,  # 107 tickets are held out; two prompts answer each
        # The embedded model counts words, so it learns more from eighty tickets in one question
        # than from eight times ten; a language model needs fewer.
        minibatch_size=80,
        pareto_set_size=60,
        target_section_paths=(("queues",),),
        training_examples=load_tickets(HERE / "train.jsonl"),
        feedback_fn=feedback,
        seed=seed,
        data=Data(held_out=load_tickets(HERE / "test.jsonl"), shuffle=True),
    )
    context = OptimizationContext(
        adapter=OfflineAdapter(words_per_rule=8),  # short rules, for people to read
        overrides_store=LocalPromptOverridesStore(),
        overrides_tag=TAG,
    )
    return OptimizationJob(Prompt(TEMPLATE), context, config)


def main(seed: int) -> None:
    """Search, and say what came of it and where the winner is."""
    search = job(seed)
    result = search.run()

    print(f"embedded offline model, seed {seed}, {result.total_rollouts} rollouts,", end=" ")
    print(f"{result.total_reflections} reflections; stopped: {result.stop_reason}")
    print(f"validation: {result.baseline_pareto_mean:.3f} -> {result.best_pareto_mean:.3f}")
    found = result.held_out.gain if result.held_out else None
    if found is not None:
        print(f"held-out:   {found.mean_before:.3f} -> {found.mean_after:.3f}", end=" ")
        print(f"on {found.cases} tickets; {found.interval}")
    print(f"verdict:    {result.verdict}")
    if result.persisted:
        print(f"winner:     tag `{TAG}` in {LocalPromptOverridesStore().root_path}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
