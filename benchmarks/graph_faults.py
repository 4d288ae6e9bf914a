"""Gradient searches without a real difference, and with questions that fail for good.

``python benchmarks/graph_faults.py [--runs N] [--seeds N]``, on the worlds of ``graph_worlds.py``:
how often a search that accepts by ``Paired`` believes in a gain where no text changes anything, and
how much of its gain a search loses when one question in ten fails for good.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from typing import Any

import attrs

from figures import Figure, shown
from graph_worlds import TRAINING, VALIDATION, Reader, Target, World
from promptgraft import (
    Data,
    GepaExample,
    GradientConfig,
    GradientOptimizer,
    OptimizationContext,
    Paired,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.algorithms.gradient import GradientResult
from promptgraft.errors import TransientProviderError
from promptgraft.prompt import RenderedPrompt
from promptgraft.targets import RolloutRecord

TITLE = "Gradient searches with noise and faults"
RUNS, SEEDS = 20, 4
BUDGET = 600
FAILING = 0.1
_OVERLOADED = TransientProviderError("529: overloaded")


class Noise(Target):
    """A world whose answers are right by chance, whatever the texts are."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = random.Random(f"noise {world.seed}")

    def rollout(self, candidate: Any, example: GepaExample, deadline: object) -> RolloutRecord:
        found = super().rollout(candidate, example, deadline)
        score = float(self._chance.random() < 0.5)
        # The reasons stay: there is always something to blame, and to write.
        said = RolloutFeedback(
            score=score, feedback=found.feedback.feedback if found.feedback else ""
        )
        return RolloutRecord(
            example_id=example.id,
            inputs_repr=found.inputs_repr,
            output_repr=found.output_repr,
            tool_trace_repr="",
            feedback=said,
            steps=found.steps,
        )


def search(
    target: Target,
    reply: Callable[[RenderedPrompt[object]], str],
    *,
    held_out: int = 0,
    **more: Any,
) -> GradientResult:
    """Return what a search has come to."""
    logging.disable(logging.WARNING)
    cases = [*(f"v{at}" for at in range(VALIDATION)), *(f"t{at}" for at in range(TRAINING))]
    config = GradientConfig(
        rollout_budget=BUDGET + 4 * held_out,
        pareto_set_size=VALIDATION,
        training_examples=[GepaExample(id=name, params=()) for name in cases],
        data=Data(held_out=[GepaExample(id=f"h{at}", params=()) for at in range(held_out)]),
        seed=target.world.seed,
        max_rounds=100,
        patience=100,
        **more,
    )
    return GradientOptimizer(OptimizationContext(ScriptedAdapter(reply)), config).optimize(target)


def false_win(seed: int) -> tuple[bool, bool]:
    """Tell whether a search has accepted a candidate, and called one better, where none is."""
    target = Noise(World.of(seed))
    result = search(target, Reader(seed), held_out=VALIDATION, acceptance=Paired())
    return result.found_better, result.improved


@attrs.frozen
class Overloaded:
    """A reflection model that some of all questions fail at, however often they are asked."""

    reader: Reader
    failing: float

    def __call__(self, rendered: RenderedPrompt[object]) -> str:
        if random.Random(rendered.text).random() < self.failing:
            raise _OVERLOADED
        return self.reader(rendered)


def kept(seed: int) -> float:
    """Return the share of its gain that a search keeps when questions fail for good."""
    world, gains = World.of(seed), []
    for failing in (0.0, FAILING):
        best = search(Target(world), Overloaded(Reader(seed), failing)).best
        texts = {name: str(best.changes[name]) for name in world.names}
        gains.append(world.quality(texts) - world.quality(world.first))
    return gains[1] / gains[0]


def percent(found: Iterable[bool]) -> float:
    """Return how many are true, in hundredths."""
    given = list(found)
    return 100 * sum(given) / len(given)


def measure(*, runs: int = RUNS, seeds: int = SEEDS) -> list[Figure]:
    """Return the figures of this page."""
    with ProcessPoolExecutor() as executor:
        told = list(executor.map(false_win, range(runs)))
        shares = list(executor.map(kept, range(seeds)))
    return [
        Figure(f"no difference, {runs} runs: accepted", percent(one[0] for one in told), "%", None),
        Figure(f"no difference, {runs} runs: improved", percent(one[1] for one in told), "%", 5),
        Figure(
            f"gain lost, a tenth of questions fails, {seeds} runs",
            100 * (1 - median(shares)),
            "%",
            20,
        ),
    ]


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args()
    return shown(measure(runs=options.runs, seeds=options.seeds))


if __name__ == "__main__":
    sys.exit(main())
