"""Searches on worlds whose shape is drawn by a seed: ``make bench-shapes``."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor

from search import ours
from search.curves import Curve
from search.readers import ReadingModel
from search.shapes import ShapedWorld, drawn


def search_one(task: tuple[int, int, str, int]) -> tuple[Curve, float]:
    """Search one world; for worker processes."""
    shape, number, preset, budget = task
    world = ShapedWorld(drawn(shape), number)
    reader = ReadingModel(world.traits.reading, world.wrong_actions, world.seed)
    begun = time.process_time()
    curve = ours.search(
        world,
        reader,
        budget=budget,
        titles=world.titles,
        preset=preset,
        minibatch_size=6 if preset == "lean" else 3,
    )
    return curve, time.process_time() - begun


def main() -> None:
    """Search, and print a line for each shape."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--shapes", type=int, default=20)
    given.add_argument("--seeds", type=int, default=2, help="worlds of each shape")
    given.add_argument("--budget", type=int, default=800, help="calls of a search")
    given.add_argument("--jobs", type=int, default=2, help="searches at once")
    given.add_argument("--searches", default="lean", help="presets, separated by commas")
    options = given.parse_args()
    presets = options.searches.split(",")
    shapes = range(0, 2 * options.shapes, 2)
    tasks = [
        (shape, number, preset, options.budget)
        for shape in shapes
        for preset in presets
        for number in range(options.seeds)
    ]
    with ProcessPoolExecutor(options.jobs) as executor:
        found = executor.map(search_one, tasks)
        for shape in shapes:
            finals = []
            for preset in presets:
                runs = [next(found) for _ in range(options.seeds)]
                mean = sum(curve.final for curve, _ in runs) / len(runs)
                finals.append(f"{preset} {mean:.3f} {runs[0][1]:.1f} s")
            print(f"{shape:>3} {drawn(shape)}  {', '.join(finals)}", flush=True)


if __name__ == "__main__":
    main()
