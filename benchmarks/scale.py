"""Selection and bookkeeping of a large run: 10,000 candidates, 2,000 validation examples.

Scores are drawn beforehand. What is timed, in seconds of the processor, is what a step does
besides rollouts: a candidate joins, the frontier is asked for, a parent is chosen, and in every
tenth step the pairs that may be merged are listed.
"""

from __future__ import annotations

import multiprocessing
import platform
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from figures import Figure, shown, unit_seconds
from promptgraft.algorithms.gepa.merge import triples
from promptgraft.ground.serde import HexDigest
from promptgraft.overrides.types import PromptOverride
from promptgraft.search.frontier import drawn
from promptgraft.search.population import Pool
from promptgraft.targets.types import Candidate

TITLE = "Scale: 10,000 candidates, 2,000 validation examples"
CANDIDATES = 10_000
EXAMPLES = 2_000
MERGE_EVERY = 10
SEED = 7
MOST_UNITS = 150
"""2 ms on a machine whose unit takes 13.3 µs."""

_EMPTY = PromptOverride(ns="benchmarks", prompt_key="scale", tag="latest")


@attrs.frozen
class Taken:
    """Processor seconds of each step of a run, those of the unit meanwhile, and memory in MB."""

    steps: list[float]
    unit: float
    megabytes: float


def continuous(draw: random.Random, number: int) -> list[float | None]:
    """Scores between 0 and 1 that grow slowly from candidate to candidate."""
    skill = number / CANDIDATES
    return [0.5 * draw.random() + 0.5 * skill * draw.random() for _ in range(EXAMPLES)]


def binary(draw: random.Random, number: int) -> list[float | None]:
    """Scores of 0 and 1; later candidates solve more."""
    skill = 0.2 + 0.7 * number / CANDIDATES
    return [float(draw.random() < skill) for _ in range(EXAMPLES)]


def with_gaps(draw: random.Random, number: int) -> list[float | None]:
    """Scores on a quarter of the examples only, as racing leaves them."""
    if not number:
        return continuous(draw, number)
    tried = EXAMPLES // 4
    return [*continuous(draw, number)[:tried], *[None] * (EXAMPLES - tried)]


WORLDS: dict[str, Callable[[random.Random, int], list[float | None]]] = {
    "continuous": continuous,
    "binary": binary,
    "with gaps": with_gaps,
}


def take(world: str, candidates: int) -> Taken:
    """Let so many candidates join a pool."""
    draw, chance, pool = random.Random(SEED), random.Random(SEED + 1), Pool()
    before = _megabytes()
    steps, units = [], []
    for number in range(candidates):
        if number >= candidates * 0.9 and number % 250 == 0:
            units.append(unit_seconds(time.process_time))
        scores = WORLDS[world](draw, number)
        started = time.process_time()
        _step(pool, chance, number, scores)
        steps.append(time.process_time() - started)
    return Taken(steps, statistics.fmean(units), _megabytes() - before)


def _step(pool: Pool, chance: random.Random, number: int, scores: Sequence[float | None]) -> None:
    parents = (drawn(pool.frontier(), chance.random()),) if number else ()
    digest = HexDigest(f"{number:064x}")
    pool.add(
        Candidate(changes={"bench/scale": _EMPTY}, parents=parents, digest=digest),
        scores,
        [{}] * len(scores),
    )
    if pool.means[pool.best] is None:
        raise SystemExit("the best candidate has no scores")
    if number % MERGE_EVERY == 0:
        places = list(triples(pool.candidates, pool.frontier()))
        chance.sample(places, len(places))


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(folder: Path) -> list[Figure]:
    """Return the figures of this page; every world has a process of its own."""
    del folder
    figures = []
    for world in WORLDS:
        with multiprocessing.get_context("spawn").Pool(1) as process:
            taken = process.apply(take, (world, CANDIDATES))
        last = statistics.fmean(taken.steps[-CANDIDATES // 10 :])
        figures += [
            Figure(f"{world}: a step, mean", statistics.fmean(taken.steps) * 1e3, "ms", None),
            Figure(f"{world}: a step, last tenth", last * 1e3, "ms", None),
            Figure(f"{world}: the same in units", last / taken.unit, "x", MOST_UNITS),
            Figure(f"{world}: memory", taken.megabytes, "MB", 500),
        ]
    return figures


def main() -> int:
    """Measure, print, and return the exit code."""
    print(f"Python {platform.python_version()}, {platform.machine()}; {TITLE}; seed {SEED}")
    return shown(measure(Path()))


if __name__ == "__main__":
    sys.exit(main())
