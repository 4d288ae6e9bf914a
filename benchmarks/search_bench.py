"""Searches on simulated worlds, beside gepa: ``make bench-search``.

Every family of worlds, every seed and every method gets the same number of calls of the same
task model, and the same reflection model. A candidate is judged by its score without noise on
test items that no search sees. Scores are medians over the seeds, with the quartiles behind them.

    python benchmarks/search_bench.py [--seeds N] [--family NAME] [--plot FILE] [--json FILE]
    python benchmarks/search_bench.py --tune-peer
    python benchmarks/search_bench.py --ablate
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

from search.claims import check, summary
from search.methods import METHODS, Run, run
from search.plot import plot
from search.results import Cell, Result
from search.tasks import TASKS
from search.tuning import SEEDS as TUNING_SEEDS
from search.tuning import ablate, tune


def search_one(task: tuple[str, str, int, int | None]) -> Run:
    """Search one world; for worker processes."""
    family, method, seed, budget = task
    return run(METHODS[method], family, seed, budget)


def measure(
    executor: Executor, families: Sequence[str], seeds: int, budget: int | None
) -> list[Result]:
    """Search every world with every method."""
    tasks = [
        (family, method, seed, budget)
        for family in families
        for method in METHODS
        for seed in range(seeds)
    ]
    found = iter(list(executor.map(search_one, tasks)))
    results = []
    for family in families:
        used = budget or TASKS[family].budget
        cells = {
            method: Cell(method=method, budget=used, runs=tuple(next(found) for _ in range(seeds)))
            for method in METHODS
        }
        results.append(Result(family=family, says=TASKS[family].says, budget=used, cells=cells))
    return results


def machine() -> dict[str, object]:
    """Return what measured: the machine and the versions."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "promptgraft": version("promptgraft"),
        "gepa": version("gepa"),
    }


def header() -> str:
    """Return the same in words."""
    found = machine()
    return (
        f"Python {found['python']}, {found['machine']}, {found['processors']} processors; "
        f"promptgraft {found['promptgraft']}, gepa {found['gepa']}"
    )


def main() -> int:
    """Measure, print tables and claims; 1 when a search of ours used more calls than it had."""
    options = _options()
    families = options.family or list(TASKS)
    begun = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count()) as executor:
        if options.tune_peer or options.ablate:
            print(f"{header()}; seeds {TUNING_SEEDS[0]} to {TUNING_SEEDS[-1]}")
            early = "" if options.tune_peer else "mean at 800; reflections; "
            print(f"mean final; {early}{', '.join(families)}; settings")
            for line in (tune if options.tune_peer else ablate)(executor, families):
                print(line, flush=True)
            return 0
        results = measure(executor, families, options.seeds, options.budget)
    seconds = time.perf_counter() - begun
    print(f"{header()}; seeds 0 to {options.seeds - 1}; {seconds:.0f} s")
    for result in results:
        print("", *result.lines(), sep="\n")
    print("", *summary(results), sep="\n")
    _write(options, results)
    return 0 if all(result.within_budget for result in results) else 1


def _options() -> argparse.Namespace:
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    given.add_argument("--seeds", type=int, default=20, help="worlds of each family")
    given.add_argument("--budget", type=int, help="calls of a search, instead of the family's own")
    given.add_argument("--family", action="append", choices=list(TASKS))
    given.add_argument("--plot", type=Path, help="write the curves to this SVG")
    given.add_argument("--json", type=Path, help="write everything to this file")
    given.add_argument(
        "--tune-peer", action="store_true", help="try settings of gepa on other seeds instead"
    )
    given.add_argument(
        "--ablate", action="store_true", help="change settings of ours on these seeds instead"
    )
    return given.parse_args()


def _write(options: argparse.Namespace, results: Sequence[Result]) -> None:
    if options.plot is not None:
        options.plot.parent.mkdir(parents=True, exist_ok=True)
        options.plot.write_text(plot(results, options.seeds), "utf-8")
    if options.json is not None:
        plain = {
            **machine(),
            "seeds": list(range(options.seeds)),
            "families": [result.plain() for result in results],
            "claims": [check(result).plain() for result in results],
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(plain) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
