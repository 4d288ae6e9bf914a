"""Searches on worlds whose shape is drawn by a seed, beside gepa: ``make bench-shapes``.

Every shape has its own worlds, one for each number below ``--seeds``; a search is judged as in
``search_bench.py``. Shapes of even seeds are for development, claims are made on odd ones, and a
release draws others by ``--offset``. The exit code is 1 when a search of ours used more calls
than it had.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import get_args

import attrs

from search.methods import BEST, DEFAULTS, LEAN, METHODS, PAPER, Run, Search
from search.readers import ReadingModel
from search.results import REFLECTION
from search.seeds import Difference, difference
from search.shapes import HEADS, Naming, ShapedWorld, Traits, drawn
from search_bench import header, machine

OURS: Mapping[str, Search] = {
    "lean": METHODS[LEAN],
    "lean-long": partial(METHODS[LEAN], additions=("lines", "whole_prompt", "blame")),
    "lean-same-size": partial(METHODS[LEAN], minibatch_growth=1),
    "lean-single": partial(METHODS[LEAN], additions=("blame", "shorten")),
    "lean-8x4": partial(METHODS[LEAN], proposals_per_step=8, steps_at_once=4),
    "paper": METHODS[PAPER],
}
PEERS: Mapping[str, Search] = {"gepa": METHODS[DEFAULTS], "gepa-best": METHODS[BEST]}
EARLY = 800
"""Calls after which lean is compared with gepa's best final score."""


def search_one(task: tuple[Traits, int, str, int]) -> Run:
    """Search one world; for worker processes."""
    traits, budget, search, number = task
    world = ShapedWorld(traits, number)
    reader = ReadingModel(traits.reading, world.wrong_actions, world.seed)
    begun = time.process_time()
    if search in OURS:
        curve = OURS[search](world, reader, budget=budget, titles=world.titles)
    else:
        curve = PEERS[search](world, reader, budget=budget)
    return Run(curve=curve, seconds=time.process_time() - begun)


@attrs.frozen
class Results:
    """What every search found in the worlds of every shape.

    Attributes:
        shapes: their traits by seed.
        budgets: calls, the fewest first.
        searches: their names.
        found: of each shape, budget and search, a world each.
    """

    shapes: Mapping[int, Traits]
    budgets: Sequence[int]
    searches: Sequence[str]
    found: Mapping[tuple[int, int, str], Sequence[Run]]

    def finals(self, shape: int, search: str, budget: int | None = None) -> list[float]:
        """Return the final scores in the worlds of a shape, with most calls or so many."""
        return [run.curve.final for run in self.found[shape, budget or self.budgets[-1], search]]

    def lead(self, shape: int, budget: int) -> tuple[str, Difference]:
        """Return the best of the others, and how much more the first search reaches."""
        first, *others = self.searches
        best = max(others, key=lambda one: fmean(self.finals(shape, one, budget)))
        before = self.finals(shape, best, budget)
        return best, difference(before, self.finals(shape, first, budget))

    def lines(self) -> Iterator[str]:
        """Yield the table, and what is to be seen in it."""
        columns = list(product(self.budgets, self.searches))
        yield f"shape: {HEADS}"
        for heads in zip(*((f"{budget:,}", name) for budget, name in columns), strict=True):
            yield _row("", heads)
        for shape, traits in self.shapes.items():
            means = [fmean(self.finals(shape, name, budget)) for budget, name in columns]
            yield _row(f"{shape:>3}: {traits}", [f"{mean:.3f}" for mean in means])
        runs = [
            [run for shape in self.shapes for run in self.found[shape, *column]]
            for column in columns
        ]
        yield _row("mean", [f"{fmean(run.curve.final for run in cell):.3f}" for cell in runs])
        asked = (fmean(run.curve.reflections for run in cell) for cell in runs)
        yield _row("reflections", [f"{mean:.0f}" for mean in asked])
        lengths = (fmean(run.curve.length for run in cell) for cell in runs)
        yield _row("characters of the winner", [f"{mean:.0f}" for mean in lengths])
        seconds = (fmean(run.seconds for run in cell) for cell in runs)
        yield _row("processor seconds of a search", [f"{mean:.2f}" for mean in seconds])
        if len(self.searches) > 1:
            yield from self._comparison()

    def _comparison(self) -> Iterator[str]:
        first, *others = self.searches
        for budget, name in product(self.budgets, others):
            before, after = (
                [fmean(self.finals(shape, one, budget)) for shape in self.shapes]
                for one in (name, first)
            )
            gain = difference(before, after)
            yield f"{first} - {name} at {budget:,}, shape by shape: {gain}"
        for budget in self.budgets:
            leads = {shape: self.lead(shape, budget) for shape in self.shapes}
            highest = sum(gain.mean >= 0 for _, gain in leads.values())
            near = sum(gain.word != "worse" for _, gain in leads.values())
            yield f"{first} at {budget:,}: highest in {highest}, highest or within noise in {near}"
            worst = min(leads, key=lambda shape: leads[shape][1].mean)
            best, gain = leads[worst]
            yield f"  worst: {gain} against {best} in {worst}: {self.shapes[worst]}"
        peers = [name for name in others if name in PEERS]
        if peers and EARLY in self.budgets:
            early = sum(
                fmean(self.finals(shape, first, EARLY))
                >= max(fmean(self.finals(shape, name)) for name in peers)
                for shape in self.shapes
            )
            yield f"{first} at {EARLY}: has the best final score of {', '.join(peers)} in {early}"
        if peers:
            cheap = sum(self._is_no_dearer(shape, first, peers) for shape in self.shapes)
            yield (
                f"{first}: has the best final score of {', '.join(peers)} at no higher cost, a "
                f"reflection at {REFLECTION} calls, in {cheap}"
            )
        yield f"of {len(self.shapes)} shapes"

    def _is_no_dearer(self, shape: int, search: str, peers: Sequence[str]) -> bool:
        """Return whether a search has what the best of the peers ends with, for no more."""
        target = max(peers, key=lambda one: fmean(self.finals(shape, one)))

        def cost(name: str, budget: int) -> float:
            curves = [run.curve for run in self.found[shape, budget, name]]
            return fmean(curve.calls + REFLECTION * curve.reflections for curve in curves)

        return any(
            fmean(self.finals(shape, search, budget)) >= fmean(self.finals(shape, target))
            and cost(search, budget) <= cost(target, self.budgets[-1])
            for budget in self.budgets
        )

    def plain(self) -> list[dict[str, object]]:
        """Return everything for machines."""
        return [
            {
                "shape": shape,
                "traits": attrs.asdict(self.shapes[shape]),
                "budget": budget,
                "search": search,
                "runs": [attrs.asdict(run) for run in runs],
            }
            for (shape, budget, search), runs in self.found.items()
        ]


def _row(title: str, values: Sequence[str]) -> str:
    return f"{title:<68}" + "".join(f"{value:>10}" for value in values)


def measure(options: argparse.Namespace) -> Results:
    """Search every world with every method and every number of calls."""
    seeds = [2 * (options.offset + place) + options.odd for place in range(options.shapes)]
    shapes = {seed: drawn(seed) for seed in seeds}
    if options.names:
        shapes = {seed: attrs.evolve(one, naming=options.names) for seed, one in shapes.items()}
    cells = list(product(shapes, options.budget, options.searches))
    tasks = [
        (shapes[shape], budget, search, number)
        for shape, budget, search in cells
        for number in range(options.seeds)
    ]
    with ProcessPoolExecutor(options.jobs) as executor:
        found = list(executor.map(search_one, tasks, chunksize=4))
    parts = [found[start : start + options.seeds] for start in range(0, len(found), options.seeds)]
    by_cell = dict(zip(cells, parts, strict=True))
    return Results(shapes, options.budget, options.searches, by_cell)


def main(arguments: Sequence[str]) -> int:
    """Measure, print the table and what is to be seen in it."""
    options = _options(arguments)
    begun = time.perf_counter()
    results = measure(options)
    print(f"{header()}; {options.seeds} worlds of a shape; {time.perf_counter() - begun:.0f} s")
    for line in results.lines():
        print(line)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({**machine(), "found": results.plain()}) + "\n", "utf-8")
    exceeded = (
        search in OURS and any(run.curve.calls > budget for run in runs)
        for (_, budget, search), runs in results.found.items()
    )
    return 1 if any(exceeded) else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    def searches(given: str) -> list[str]:
        names = given.split(",")
        if strange := [name for name in names if name not in {**OURS, **PEERS}]:
            raise argparse.ArgumentTypeError(f"no such search: {', '.join(strange)}")
        return names

    given = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    given.add_argument("--shapes", type=int, default=20, help="how many")
    given.add_argument("--seeds", type=int, default=4, help="worlds of each shape")
    given.add_argument("--offset", type=int, default=0, help="shapes to leave out; for a release")
    parity = given.add_mutually_exclusive_group()
    parity.add_argument("--odd", action="store_true", help="shapes of odd seeds: for claims")
    parity.add_argument("--even", action="store_false", dest="odd", help="of even ones, as usual")
    given.add_argument("--names", choices=get_args(Naming), help="how feedback names parts, in all")
    given.add_argument(
        "--budget",
        type=lambda text: sorted(map(int, text.split(","))),
        default=[EARLY],
        help="calls, several separated by commas",
    )
    given.add_argument(
        "--searches",
        type=searches,
        default=["lean"],
        help=f"of {', '.join({**OURS, **PEERS})}; the first is compared with the others",
    )
    given.add_argument("--jobs", type=int, default=2, help="searches at once")
    given.add_argument("--json", type=Path, help="write everything to this file")
    return given.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
