"""Which kind of part contributes what: ``python examples/code_search/ablation.py [SEEDS]``.

One run with all kinds, one without each of them, and one with each of them alone, offline; the
table shows the mean score on questions that no run has seen.
"""

from __future__ import annotations

import sys
from typing import Any

from optimize import HERE, KINDS, run_settings
from task import TEMPLATE, load_questions, score

from promptgraft import (
    GepaConfig,
    GepaOptimizer,
    InMemoryPromptOverridesStore,
    OfflineAdapter,
    OptimizationContext,
    Prompt,
)


def held_out(kinds: dict[str, dict[str, Any]], seed: int, *, merge: bool = True) -> float:
    """Optimize the given kinds of parts and return the score on the held-out questions."""
    adapter, store = OfflineAdapter(), InMemoryPromptOverridesStore()
    settings: dict[str, Any] = {**run_settings(seed), "enable_merge": merge}
    for targets in kinds.values():
        settings.update(targets)
    context = OptimizationContext(adapter=adapter, overrides_store=store)
    GepaOptimizer(context, GepaConfig(**settings)).optimize(Prompt(TEMPLATE))
    unseen = load_questions(HERE / "test.jsonl")
    return score(Prompt(TEMPLATE, overrides_store=store), unseen, adapter)


def mean(kinds: dict[str, dict[str, Any]], seeds: int, *, merge: bool = True) -> str:
    """Return the mean over seeds, as text."""
    scores = [held_out(kinds, seed, merge=merge) for seed in range(seeds)]
    return f"{sum(scores) / len(scores):.3f}"


def main(seeds: int) -> None:
    """Print the table."""
    unseen = load_questions(HERE / "test.jsonl")
    baseline = score(Prompt(TEMPLATE), unseen, OfflineAdapter())
    print("| parts that may change | alone | all but these |")
    print("|---|---|---|")
    print(f"| none | {baseline:.3f} | {mean(KINDS, seeds)} |")
    for name, targets in KINDS.items():
        others = {other: found for other, found in KINDS.items() if other != name}
        print(f"| {name} | {mean({name: targets}, seeds)} | {mean(others, seeds)} |", flush=True)
    print(f"| (merge) | | {mean(KINDS, seeds, merge=False)} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
