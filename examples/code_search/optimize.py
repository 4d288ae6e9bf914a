"""Improve every part of the agent's prompt: ``python .../optimize.py [SEED [BUDGET]]``."""

from __future__ import annotations

import sys

from code_questions import HERE, TEMPLATE, load_questions, score
from code_settings import KINDS, config_for, context_with

from promptgraft import LocalPromptOverridesStore, OptimizationJob, Prompt

TAG = "code-search-v1"


def job(seed: int = 0, budget: int = 2000) -> OptimizationJob:
    """Return what the run needs; ``promptgraft plan`` and ``promptgraft optimize`` take it."""
    return OptimizationJob(
        Prompt(TEMPLATE),
        context_with(LocalPromptOverridesStore(), TAG),
        config_for(KINDS, seed, rollout_budget=budget),
    )


def main(seed: int, budget: int) -> None:
    """Search, compare on questions that the search never saw, and say where the winner is."""
    search = job(seed, budget)
    adapter, store = search.context.task_adapter, LocalPromptOverridesStore()
    result = search.run()

    print(f"embedded offline model, seed {seed}, {result.total_rollouts} rollouts,", end=" ")
    print(f"{result.total_reflections} reflections; stopped: {result.stop_reason}")
    print(f"validation: {result.baseline_pareto_mean:.3f} -> {result.best_pareto_mean:.3f}")
    for kind, gain in result.gains.items():
        print(f"  {kind}: {gain:+.3f}")
    if not result.found_better:
        print("nothing beat the baseline; nothing was stored")
        return
    unseen = load_questions(HERE / "test.jsonl")
    winner = Prompt(TEMPLATE, overrides_store=store, overrides_tag=TAG)
    before, after = (score(prompt, unseen, adapter) for prompt in (Prompt(TEMPLATE), winner))
    print(f"held-out:   {before:.3f} -> {after:.3f} on {len(unseen)} questions")
    print(f"winner:     tag `{TAG}` in {store.root_path}")


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    main(*arguments, *(0, 2000)[len(arguments) :])
