"""Which kind of part contributes what: ``python examples/code_search/ablation.py [SEEDS]``.

Runs with all kinds of parts, with each kind alone, with all but one, and without merges, offline;
the table shows mean scores on questions that no run has seen.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor

from code_questions import HERE, TEMPLATE, load_questions, score
from code_settings import KINDS, config_for, context_with

from promptgraft import GepaOptimizer, InMemoryPromptOverridesStore, OfflineAdapter, Prompt

Run = tuple[tuple[str, ...], bool]
"""The kinds of parts that may change, and whether candidates are merged."""


def held_out(run: Run, seed: int) -> float:
    """Optimize once and return the score on the held-out questions."""
    kinds, merge = run
    store = InMemoryPromptOverridesStore()
    config = config_for(kinds, seed, enable_merge=merge)
    GepaOptimizer(context_with(store), config).optimize(Prompt(TEMPLATE))
    unseen = load_questions(HERE / "test.jsonl")
    return score(Prompt(TEMPLATE, overrides_store=store), unseen, OfflineAdapter())


def others(kind: str) -> tuple[str, ...]:
    """Return all kinds but one."""
    return tuple(other for other in KINDS if other != kind)


def main(seeds: int) -> None:
    """Make the runs and print the table."""
    runs: list[Run] = [(KINDS, True), (KINDS, False)]
    runs += [(kinds, True) for kind in KINDS for kinds in ((kind,), others(kind))]
    with ProcessPoolExecutor(2) as executor:
        jobs = {
            run: [executor.submit(held_out, run, seed) for seed in range(seeds)] for run in runs
        }
        mean = {run: sum(job.result() for job in waiting) / seeds for run, waiting in jobs.items()}
    unseen = load_questions(HERE / "test.jsonl")
    baseline = score(Prompt(TEMPLATE), unseen, OfflineAdapter())
    print(f"baseline {baseline:.3f}, everything {mean[KINDS, True]:.3f}; {seeds} seeds each\n")
    print("| kind of part | alone | everything else |")
    print("|---|---|---|")
    for kind in KINDS:
        print(f"| {kind} | {mean[(kind,), True]:.3f} | {mean[others(kind), True]:.3f} |")
    print(f"| merge | | {mean[KINDS, False]:.3f} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
