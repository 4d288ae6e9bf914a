"""Searches with reflection models of several kinds, beside gepa: ``make bench-reflectors``.

Every kind has worlds of its own, and every search the same calls of the task model. A model is
given the text of a question and nothing else, by either package. A reflection is counted as ten
calls where costs are compared.

    python benchmarks/reflectors_bench.py [--seeds N] [--calls N] [--kind NAME] [--method NAME]

``--plateau`` compares runs that stop when another +0.02 has become improbable with whole runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import mean, stdev
from typing import Any

import attrs
from gepa.strategies.proposal_sampling import IndependentSampling

from promptgraft.algorithms.gepa import Racing
from promptgraft.search import Plateau
from reflectors.kinds import KINDS
from reflectors.slots import FORBIDS, SlotWorld
from search import ours, peer
from search.methods import BEST_SETTINGS, Search
from search_bench import header

REFLECTION = 10
"""Calls of the task model that a reflection costs as much as."""

_BEST = {name: value for name, value in BEST_SETTINGS.items() if name != "cache_evaluation"}

METHODS: Mapping[str, Search] = {
    "default": partial(ours.search, preset="lean", minibatch_size=6),
    "without restart": partial(
        ours.search,
        preset="lean",
        minibatch_size=6,
        additions=["lines", "whole_prompt", "blame", "shorten"],
    ),
    "same size": partial(ours.search, preset="lean", minibatch_size=6, minibatch_growth=1),
    "deeper races": partial(
        ours.search, preset="lean", minibatch_size=6, validation=Racing(first=8, every=4)
    ),
    "paper": partial(ours.search, preset="paper", minibatch_size=3),
    "gepa defaults": peer.search,
    "gepa best settings": partial(peer.search, **_BEST),
    "gepa three at once": partial(peer.search, **_BEST, sampling_strategy=IndependentSampling(3)),
}


@attrs.frozen(kw_only=True)
class Outcome:
    """What came of a search.

    Attributes:
        final: score of the winner on test items.
        first: score of the source text.
        calls: calls of the task model.
        reflections: calls of the reflection model.
        length: characters of the winner.
        rank: of the winner among the pool, by the noise-free score on the validation set.
        regret: by how much the best of the pool is better on test items.
        selectable: by how much the best on the validation set is better on test items.
        lost: how far that one came, see ``Curve.stages``; empty if it won.
        damaged: candidates that define a label twice, or where it does not belong.
        escaped: whether the winner has lost a sentence that forbids what would help.
    """

    final: float
    first: float
    calls: int
    reflections: int
    length: int
    rank: int
    regret: float
    selectable: float
    lost: str
    damaged: int
    escaped: bool


def search_one(task: tuple[str, str, int, int]) -> Outcome:
    """Search one world; for worker processes."""
    kind, method, seed, calls = task
    world, writer = KINDS[kind].make(seed)
    curve = METHODS[method](world, writer, budget=calls)
    on_validation, on_test = (
        [world.expected(texts, items) for texts in curve.pool]
        for items in (world.validation, world.test)
    )
    best = on_validation.index(max(on_validation))
    rank = 1 + sum(mean > on_validation[curve.pool.index(curve.winner)] for mean in on_validation)
    damaged = 0
    if isinstance(world, SlotWorld):
        damaged = sum(bool(world.damage(texts)) for texts in curve.pool)
    return Outcome(
        final=curve.final,
        first=world.expected(world.first, world.test),
        calls=curve.calls,
        reflections=curve.reflections,
        length=curve.length,
        rank=rank,
        regret=max(on_test) - curve.final,
        selectable=on_test[best] - curve.final if rank > 1 else 0.0,
        lost="" if rank == 1 else curve.stages[best] if curve.stages else "finals",
        damaged=damaged,
        escaped=not any(FORBIDS in text for text in curve.winner.values()),
    )


def line_of(method: str, outcomes: Sequence[Outcome]) -> str:
    """Return a row of the table: means over the seeds."""

    def of(name: str) -> float:
        return mean(float(getattr(outcome, name)) for outcome in outcomes)

    cost = of("calls") + REFLECTION * of("reflections")
    finals = [outcome.final for outcome in outcomes]
    stages = Counter(outcome.lost for outcome in outcomes if outcome.lost)
    lost = ", ".join(f"{count} {stage}" for stage, count in sorted(stages.items()))
    error = (sum((one - of("final")) ** 2 for one in finals) / max(1, len(finals) - 1)) ** 0.5
    return (
        f"  {method:<20} {of('final'):.3f} ±{error / len(finals) ** 0.5:.3f} {of('calls'):6.0f} "
        f"{of('reflections'):6.1f} {cost:7.0f} {of('length'):7.0f} "
        f"{sum(one.damaged for one in outcomes):7} {of('escaped'):7.0%} "
        f"{mean(outcome.rank == 1 for outcome in outcomes):5.0%} {of('rank'):5.1f} "
        f"{of('regret'):7.3f} {of('selectable'):+11.3f} {lost}"
    )


@attrs.frozen(kw_only=True)
class Saving:
    """What came of stopping at a plateau.

    Attributes:
        calls: calls of the run that may stop, as a share of the budget.
        is_early: whether the whole run had found its last +0.02 by a third of the budget.
        loss: by how much the winner of the whole run is better.
        is_missed: whether the whole run found a candidate that is better by more than 0.02 than
            all that were found before the stop.
    """

    calls: float
    is_early: bool
    loss: float
    is_missed: bool


def stopped_and_whole(task: tuple[str, int, int]) -> Saving:
    """Search one world with and without the stopper; for worker processes."""
    kind, seed, calls = task
    curves = []
    for risk in (Plateau().risk, 0.0):
        world, writer = KINDS[kind].make(seed)
        stoppers = [Plateau(risk=risk)]
        curves.append(METHODS["default"](world, writer, budget=calls, stoppers=stoppers))
    stopped, whole = curves
    items = (*world.validation, *world.test)
    found = [world.expected(texts, items) for texts in whole.pool]
    before = max(world.expected(texts, items) for texts in stopped.pool)
    final = world.expected(whole.winner, world.test)
    return Saving(
        calls=stopped.calls / calls,
        is_early=whole.at(calls / 3) > final - Plateau().gain,
        loss=final - world.expected(stopped.winner, world.test),
        is_missed=max(found) - before > Plateau().gain,
    )


def _plateaus(kinds: Sequence[str], seeds: range, calls: int) -> None:
    """Print a row for each kind."""
    print("  kind            stopped   calls  early  calls then   loss          missed +0.02")
    with ProcessPoolExecutor(os.cpu_count()) as executor:
        for kind in kinds:
            tasks = [(kind, seed, calls) for seed in seeds]
            savings = list(executor.map(stopped_and_whole, tasks))
            early = [saving.calls for saving in savings if saving.is_early]
            losses = [saving.loss for saving in savings]
            error = stdev(losses) / len(losses) ** 0.5
            print(
                f"  {kind:<15} {mean(saving.calls < 0.85 for saving in savings):7.0%} "
                f"{mean(saving.calls for saving in savings):7.0%} {len(early):6} "
                f"{mean(early or [0]):11.0%} {mean(losses):+.3f} ±{error:.3f} "
                f"{mean(saving.is_missed for saving in savings):13.0%}"
            )


def main() -> int:
    """Measure, and print a table for each kind."""
    options = _options()
    kinds, methods = options.kind or list(KINDS), options.method or list(METHODS)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if options.plateau:
        print(f"{header()}; seeds {seeds[0]} to {seeds[-1]}; {options.calls} calls")
        _plateaus(kinds, seeds, options.calls)
        return 0
    tasks: list[Any] = [
        (kind, method, seed, options.calls)
        for kind in kinds
        for method in methods
        for seed in seeds
    ]
    begun = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count()) as executor:
        outcomes = iter(list(executor.map(search_one, tasks)))
    seconds = time.perf_counter() - begun
    print(f"{header()}; seeds {seeds[0]} to {seeds[-1]}; {options.calls} calls; {seconds:.0f} s")
    for kind in kinds:
        print(f"\n{kind}: {KINDS[kind].says}")
        print(
            f"  {'':<20} final         calls  asked    cost  length damaged escaped  "
            "best  rank  regret  selectable lost"
        )
        for method in methods:
            print(line_of(method, [next(outcomes) for _ in seeds]))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=8, help="worlds of each kind")
    parser.add_argument("--first-seed", type=int, default=0, help="the first seed")
    parser.add_argument("--calls", type=int, default=600, help="calls of a search")
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--plateau", action="store_true", help="compare runs that stop early")
    parser.add_argument("--method", action="append", choices=list(METHODS))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
