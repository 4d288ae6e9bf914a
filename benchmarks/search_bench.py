"""Searches on simulated worlds, beside gepa: ``make bench-search``.

Every family of worlds, every seed and every method gets the same number of calls of the same
simulated task model, and the same simulated reflection model. A candidate is judged by its score
without noise on test items that no search sees. Scores are medians over the seeds, with the
quartiles behind them.

    python benchmarks/search_bench.py [--seeds N] [--budget CALLS] [--family NAME] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path

import attrs

from search import ours, peer
from search.curves import Curve, median, quartiles
from search.families import FAMILIES
from search.reflecting import Reflector
from search.worlds import RuleWorld

Search = Callable[[RuleWorld, Reflector, int, int], Curve]
"""Searches a world with a reflection model, a budget of calls, and a seed."""

EARLY = 800
"""Calls after which a search is looked at early."""


def _ours(
    world: RuleWorld,
    reflector: Reflector,
    budget: int,
    seed: int,
    *,
    preset: str,
    minibatch_size: int,
) -> Curve:
    return ours.search(
        world, reflector, budget=budget, seed=seed, preset=preset, minibatch_size=minibatch_size
    )


def _gepa(
    world: RuleWorld,
    reflector: Reflector,
    budget: int,
    seed: int,
    *,
    settings: Mapping[str, object],
) -> Curve:
    del seed  # the world's
    return peer.search(world, reflector, budget=budget, **settings)


METHODS: Mapping[str, Search] = {
    "promptgraft lean": partial(_ours, preset="lean", minibatch_size=6),
    "promptgraft paper": partial(_ours, preset="paper", minibatch_size=3),
    "gepa defaults": partial(_gepa, settings={}),
    "gepa best settings": partial(
        _gepa,
        settings={
            "candidate_selection_strategy": "current_best",
            "reflection_minibatch_size": 6,
            "cache_evaluation": True,
        },
    ),
}


@attrs.frozen(kw_only=True)
class Cell:
    """What a method found in a family of worlds, over all seeds."""

    family: str
    method: str
    curves: tuple[Curve, ...]

    def line(self, budget: int, target: float) -> str:
        """Return the row of the table; ``target`` is the peer's final score."""
        finals = [curve.final for curve in self.curves]
        low, high = quartiles(finals)
        early = median([curve.at(EARLY) for curve in self.curves])
        area = median([curve.area(budget) for curve in self.curves])
        reached = [curve.reaches(target) for curve in self.curves]
        calls = median([budget + 1 if one is None else one for one in reached])
        until = "never" if calls > budget else f"{calls:,.0f}"
        return (
            f"  {self.method:<19} {median(finals):.3f} ({low:.3f} to {high:.3f})  {early:.3f}  "
            f"{area:.3f}  {until:>7}  {max(curve.calls for curve in self.curves):>7,}  "
            f"{median([curve.reflections for curve in self.curves]):>6.0f}"
        )

    def plain(self, budget: int) -> dict[str, object]:
        """Return the same for machines, seed by seed."""
        return {
            "family": self.family,
            "method": self.method,
            "final": [curve.final for curve in self.curves],
            "early": [curve.at(EARLY) for curve in self.curves],
            "area": [curve.area(budget) for curve in self.curves],
            "calls": [curve.calls for curve in self.curves],
            "reflections": [curve.reflections for curve in self.curves],
        }


def search_one(task: tuple[str, str, int, int]) -> Curve:
    """Search one world; for worker processes."""
    family, method, seed, budget = task
    chosen = FAMILIES[family]
    world = RuleWorld(chosen.shape, seed)
    reflector = Reflector(chosen.habits, world.wrong_actions, seed)
    return METHODS[method](world, reflector, budget, seed)


def measure(families: Sequence[str], seeds: int, budget: int) -> list[Cell]:
    """Search every world with every method, as many at once as there are processors."""
    with ProcessPoolExecutor(os.cpu_count()) as executor:
        cells = []
        for family in families:
            for method in METHODS:
                tasks = [(family, method, seed, budget) for seed in range(seeds)]
                curves = tuple(executor.map(search_one, tasks))
                cells.append(Cell(family=family, method=method, curves=curves))
    return cells


def main() -> int:
    """Measure, print the table, and return 1 when a search used more calls than it had."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    given.add_argument("--seeds", type=int, default=20)
    given.add_argument("--budget", type=int, default=2_400)
    given.add_argument("--family", action="append", choices=list(FAMILIES))
    given.add_argument("--json", type=Path)
    options = given.parse_args()
    families = options.family or list(FAMILIES)
    begun = time.perf_counter()
    cells = measure(families, options.seeds, options.budget)
    print(
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} processors; "
        f"promptgraft {version('promptgraft')}, gepa {version('gepa')}; seeds 0 to "
        f"{options.seeds - 1}, {options.budget:,} calls; {time.perf_counter() - begun:.0f} s"
    )
    for family in families:
        _print_family(family, [cell for cell in cells if cell.family == family], options.budget)
    if options.json is not None:
        plain = [cell.plain(options.budget) for cell in cells]
        options.json.write_text(json.dumps(plain, indent=1) + "\n", "utf-8")
    mine = [cell for cell in cells if cell.method.startswith("promptgraft")]
    return int(any(one.calls > options.budget for cell in mine for one in cell.curves))


def _print_family(family: str, cells: Sequence[Cell], budget: int) -> None:
    target = max(
        median([curve.final for curve in cell.curves])
        for cell in cells
        if cell.method.startswith("gepa")
    )
    print(f"\n{family}: {FAMILIES[family].says}")
    print(
        f"  {'':<19} {'final (quartiles)':<23}  {f'@{EARLY}':<5}  {'area':<5}  to gepa's  calls "
        "made  asked"
    )
    for cell in cells:
        print(cell.line(budget, target))


if __name__ == "__main__":
    sys.exit(main())
