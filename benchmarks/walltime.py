"""How long searches take on the clock, beside gepa: part of ``make bench-search``.

Both sides have 16 workers in one process and a task model that takes 50 ms, sometimes ten times
that; the reflection model takes as long. gepa runs what it hands over at once side by side: a
batch of items, and with several proposals an iteration also these. Only ratios mean something.

A second table says how busy promptgraft keeps the workers in a longer search that never finds a
perfect prompt.

Two searches run at the same time, in processes of their own; both sides wait nearly all the time.

    python benchmarks/walltime.py [--seeds N] [--calls N] [--proposals K] [--steps G] [--family F]
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import attrs
from gepa.strategies.proposal_sampling import IndependentSampling

from search import peer
from search.curves import Curve, median
from search.interfaces import World
from search.methods import BEST, BEST_SETTINGS, DEFAULTS, LEAN, METHODS, Search
from search.reflecting import Reflector
from search.tasks import TASKS
from search.worlds import Item, Texts, Trial
from search_bench import header

AT_ONCE = 2
"""Searches at the same time."""
WORKERS = 16
MEAN = 0.05
"""Seconds that a call takes on average."""
TAIL, SLOWER = 0.02, (5.0, 10.0)
"""Share of the calls that take longer, and how many times as long."""
SPREAD = 0.35
PROPOSALS = 4
"""Of gepa in an iteration, where it makes them side by side."""
ONE_STEP = 16
"""Proposals of promptgraft in a step, where it makes one step after the other."""
LONG, NEVER_PERFECT = 4_800, "attention"
"""Calls and family of the longer search."""
BUSY, FASTER = 0.85, 4.0
"""What is claimed: share of the ideal, and times as soon as gepa."""


class Latency:
    """Seconds that calls take, drawn by a seed, and how many there were.

    The body is lognormal; the mean, tail included, is ``MEAN``.
    """

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(f"latency/{seed}")
        self._lock = threading.Lock()
        self._scale = MEAN / (1 + TAIL * (sum(SLOWER) / 2 - 1))
        self.seconds: list[float] = []

    def wait(self) -> None:
        """Take as long as a call takes."""
        with self._lock:
            seconds = self._scale * self._draw.lognormvariate(-(SPREAD**2) / 2, SPREAD)
            if self._draw.random() < TAIL:
                seconds *= self._draw.uniform(*SLOWER)
            self.seconds.append(seconds)
        time.sleep(seconds)


class SlowWorld:
    """A world whose answers take their time, and do not depend on which come first.

    So its noise is not another when the same is asked again.
    """

    def __init__(self, world: World, latency: Latency) -> None:
        self._world = world
        self._latency = latency
        self._lock = threading.Lock()
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], Trial] = {}
        self.calls = 0
        self.seed, self.tools, self.first = world.seed, world.tools, world.first
        self.train, self.validation, self.test = world.train, world.validation, world.test

    def answer(self, texts: Texts, item: Item) -> Trial:
        """Try the texts on an item; safe to call from several threads."""
        self._latency.wait()
        question = (item.id, tuple(sorted(texts.items())))
        with self._lock:
            self.calls += 1
            if question not in self._known:
                self._known[question] = self._world.answer(texts, item)
            return self._known[question]

    def expected(self, texts: Texts, items: Sequence[Item]) -> float:
        """Return the mean score of the texts without noise, at once."""
        return self._world.expected(texts, items)


class SlowReflector:
    """A reflection model whose replies take their time.

    They depend on which come first only where the same is asked again.
    """

    def __init__(self, reflector: Reflector, latency: Latency) -> None:
        self._reflector = reflector
        self._latency = latency
        self._lock = threading.Lock()
        self._asked: Counter[str] = Counter()

    @property
    def calls(self) -> int:
        return self._reflector.calls

    def improve(self, module: str, text: str, feedback: Sequence[str]) -> str:
        """Return what it takes for a better text; safe to call from several threads."""
        with self._asked_for(module, text, *feedback):
            return self._reflector.improve(module, text, feedback)

    def improve_any(self, texts: Texts, feedback: Sequence[str]) -> Texts:
        """Return what it takes for better texts; safe to call from several threads."""
        with self._asked_for(*texts, *texts.values(), *feedback):
            return self._reflector.improve_any(texts, feedback)

    @contextmanager
    def _asked_for(self, *parts: str) -> Iterator[None]:
        self._latency.wait()
        question = "\x00".join(parts)
        with self._lock:
            self._asked[question] += 1
            self._reflector.draw = random.Random(f"{self._asked[question]}/{question}")
            yield


@attrs.frozen(kw_only=True)
class Timed:
    """One search on the clock.

    Attributes:
        curve: what it found; seconds since it began.
        share: its calls a second, of those of workers that are always busy.
        processor: seconds of a processor.
    """

    curve: Curve
    share: float
    processor: float


@attrs.frozen
class Task:
    """One search of one world.

    Attributes:
        method: its name.
        proposals: promptgraft's ``proposals_per_step`` and ``steps_at_once``, where asked for.
        family: of the world.
        seed: of the world, and of the times that calls take.
        calls: of the task model.
    """

    method: str
    proposals: tuple[int, int]
    family: str
    seed: int
    calls: int


def timed(task: Task) -> Timed:
    """Search the world of a seed with slow models and 16 workers; for worker processes."""
    search = methods(*task.proposals)[task.method]
    world, reflector = TASKS[task.family].make(task.seed)
    answers, replies = Latency(task.seed), Latency(task.seed + 1_000)
    with ThreadPoolExecutor(WORKERS) as executor:
        begun, used = time.perf_counter(), time.process_time()
        curve = search(
            SlowWorld(world, answers),
            SlowReflector(reflector, replies),
            budget=task.calls,
            executor=executor,
            used=lambda: time.perf_counter() - begun,
        )
        processor = time.process_time() - used
    ideal = sum(answers.seconds) / WORKERS
    return Timed(curve=curve, share=ideal / curve.used, processor=processor)


def methods(proposals: int, steps: int) -> Mapping[str, Search]:
    """Return the searches that are compared."""
    lean = METHODS[LEAN]
    side_by_side = {**BEST_SETTINGS, "sampling_strategy": IndependentSampling(PROPOSALS)}
    return {
        LEAN: lean,
        named(ONE_STEP, 1): partial(lean, proposals_per_step=ONE_STEP),
        named(proposals, steps): partial(lean, proposals_per_step=proposals, steps_at_once=steps),
        DEFAULTS: METHODS[DEFAULTS],
        BEST: METHODS[BEST],
        f"{BEST}, {PROPOSALS} at once": partial(peer.search, **side_by_side),
    }


def named(proposals: int, steps: int) -> str:
    """Return the name of a search with so many proposals a step and steps at once."""
    return f"{LEAN}, {proposals} x {steps}"


def reached(found: Mapping[str, Sequence[Timed]]) -> tuple[float, Mapping[str, float]]:
    """Return the score to reach, and by method the seconds until it was there for good."""
    theirs = [runs for method, runs in found.items() if method.startswith("gepa")]
    target = max(_median_final(runs) for runs in theirs)
    return target, {method: _until(runs, target) for method, runs in found.items()}


def table(found: Mapping[str, Sequence[Timed]]) -> list[str]:
    """Return a row for each method; the target is the highest of gepa's median final scores."""
    target, until = reached(found)
    fastest = min(seconds for method, seconds in until.items() if method.startswith("gepa"))
    lines = [
        f"  {'':<30} share of ideal  seconds  calls  final  to {target:.3f}  beside gepa  cpu s"
    ]
    for method, runs in found.items():
        seconds = until[method]
        never = math.isinf(seconds)
        lines.append(
            f"  {method:<30} {median([run.share for run in runs]):>13.0%}  "
            f"{median([run.curve.used for run in runs]):>7.1f}  "
            f"{median([run.curve.calls for run in runs]):>5.0f}  {_median_final(runs):.3f}  "
            f"{'never' if never else f'{seconds:.1f} s':>8}  "
            f"{'' if never else f'{seconds / fastest:.2f} x':>11}  "
            f"{median([run.processor for run in runs]):>5.1f}"
        )
    return lines


def _median_final(runs: Sequence[Timed]) -> float:
    return median([run.curve.final for run in runs])


def _until(runs: Sequence[Timed], target: float) -> float:
    reached = (run.curve.reaches(target) for run in runs)
    return median([math.inf if one is None else one for one in reached])


def claims(
    found: Mapping[str, Sequence[Timed]], name: str, longer: Sequence[Timed]
) -> Iterator[str]:
    """Yield what is claimed of a search, and whether it was so."""
    target, until = reached(found)
    fastest = min(seconds for method, seconds in until.items() if method.startswith("gepa"))
    factor, shares = fastest / until[name], [run.share for run in longer]
    share = median(shares)
    yield f"claims, of {name}"
    yield (
        f"  {'kept' if factor >= FASTER else 'missed':<6}  at {target:.3f} {factor:.1f} times as "
        f"soon as the fastest of gepa; {FASTER:.0f} wanted"
    )
    yield (
        f"  {'kept' if share >= BUSY else 'missed':<6}  {share:.0%} of the ideal in "
        f"{LONG:,} calls of {NEVER_PERFECT}, {min(shares):.0%} to {max(shares):.0%}; {BUSY:.0%} "
        "wanted"
    )


def main() -> int:
    """Measure and print the tables."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    given.add_argument("--seeds", type=int, default=7, help="worlds, an odd number")
    given.add_argument("--calls", type=int, default=1_200, help="calls of a search")
    given.add_argument("--proposals", type=int, default=8, help="promptgraft's proposals_per_step")
    given.add_argument("--steps", type=int, default=4, help="promptgraft's steps_at_once")
    given.add_argument("--family", choices=list(TASKS), default="modules")
    options = given.parse_args()
    begun = time.perf_counter()
    at_once = (options.proposals, options.steps)
    compared, seeds = list(methods(*at_once)), range(options.seeds)
    tasks = [
        Task(method, at_once, options.family, seed, options.calls)
        for method in compared
        for seed in seeds
    ]
    longer = [Task(named(*at_once), at_once, NEVER_PERFECT, seed, LONG) for seed in seeds]
    with ProcessPoolExecutor(AT_ONCE) as executor:
        runs = iter(list(executor.map(timed, [*tasks, *longer])))
    found = {method: [next(runs) for _ in seeds] for method in compared}
    print(
        f"{header()}; {options.family}, seeds 0 to {options.seeds - 1}, {WORKERS} workers, "
        f"{MEAN * 1000:.0f} ms a call; {time.perf_counter() - begun:.0f} s"
    )
    print("wall time: median over the seeds", *table(found), sep="\n")
    print(*claims(found, named(*at_once), list(runs)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
