"""How often a run finds a gain that is there, and keeps one that is not.

Runs alone: ``python benchmarks/honesty.py``.

A toy world whose scores are mostly noise. The answers to every prompt are equally good, or the
reflection model finds, with three proposals of ten, a text that is worth 0.2 more. Each figure
counts seeded runs of GEPA with 10 reflections.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import attrs

from figures import Figure
from overhead import InstantAdapter
from promptgraft import (
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    InMemoryPromptOverridesStore,
    Limits,
    MarkdownSection,
    OptimizationContext,
    Prompt,
    PromptTemplate,
    RolloutFeedback,
    Strategy,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import AcceptancePolicy, Paired, Strict
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import SessionProtocol

RUNS = 200
TITLE = "Honesty: seeded runs on scores with noise"
TRUE_GAIN = 0.2
REFLECTIONS = 10
FINDS = 0.3
BUDGET = 5_000

TEMPLATE: PromptTemplate[object] = PromptTemplate(
    ns="benchmarks",
    key="honesty",
    sections=(MarkdownSection(title="Rules", key="rules", template="Answer."),),
)

Noise = Callable[[random.Random, float], float]
"""Draws a score of a given mean."""


def graded(chance: random.Random, mean: float) -> float:
    """Draw a score like that of a judge with categories: tenths, 0.3 to either side."""
    return min(1.0, max(0.0, round(mean + chance.uniform(-0.3, 0.3), 1)))


def passed(chance: random.Random, mean: float) -> float:
    """Draw a score of 0 or 1."""
    return float(chance.random() < mean)


@attrs.frozen(kw_only=True)
class World:
    """One kind of run.

    Attributes:
        noise: draws the scores.
        gain: what the better text is worth; 0 when no text is better.
        policy: how children and the winner are accepted.
        pareto: examples in D_pareto; as many others are learned from.
        minibatch: examples that a child is tried on first.
    """

    noise: Noise
    gain: float = 0.0
    policy: AcceptancePolicy
    pareto: int
    minibatch: int


def run(world: World, seed: int) -> bool:
    """Make one run; return whether it kept a winner, the better one where there is one."""
    chance = random.Random(seed)

    def judge(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        del session
        hardness = int(example.id[1:]) % 3 * 0.05
        mean = 0.5 - hardness + (world.gain if "better" in response.text else 0.0)
        return RolloutFeedback(score=world.noise(chance, mean), feedback="expected more")

    def propose(rendered: RenderedPrompt[object]) -> str:
        del rendered
        kind = "better" if world.gain and chance.random() < FINDS else "other"
        return f"```instruction\nAnswer in the {kind} way, number {chance.random()}.\n```"

    context = OptimizationContext(
        InstantAdapter(lambda rendered: rendered.text),
        reflection_adapter=InstantAdapter(propose),
        overrides_store=InMemoryPromptOverridesStore(),
    )
    config = GepaConfig(
        rollout_budget=BUDGET,
        minibatch_size=world.minibatch,
        pareto_set_size=world.pareto,
        target_section_paths=(("rules",),),
        training_examples=[
            GepaExample(id=f"e{number}", params=()) for number in range(2 * world.pareto)
        ],
        feedback_fn=judge,
        acceptance=world.policy,
        seed=seed,
        strategy=Strategy(preset="paper"),
        limits=Limits(max_reflections=REFLECTIONS),
    )
    result = GepaOptimizer(context, config).optimize(Prompt(TEMPLATE))
    if not world.gain:
        return result.persisted
    return result.persisted and "better" in result.best_section_overrides[("rules",)]


def share(world: World, runs: int) -> float:
    """Return the percentage of runs that keep a winner."""
    with ProcessPoolExecutor() as pool:
        kept = pool.map(partial(run, world), range(runs), chunksize=5)
        return 100 * sum(kept) / runs


GRADED = World(noise=graded, policy=Paired(), pareto=30, minibatch=6)
PASSED = World(noise=passed, policy=Paired(confirmations=3), pareto=60, minibatch=12)


def measure(runs: int = RUNS) -> list[Figure]:
    """Return how often graded scores mislead; a missed gain counts, so that less is better."""
    return [*_figures("graded", GRADED, runs), _strict("graded", GRADED, runs // 4)]


def measure_passed(runs: int = RUNS // 2) -> list[Figure]:
    """Return the same for scores of 0 and 1, which tell much less and take longer."""
    return [*_figures("0 or 1", PASSED, runs), _strict("0 or 1", PASSED, runs // 4)]


def _figures(name: str, world: World, runs: int) -> list[Figure]:
    found = share(attrs.evolve(world, gain=TRUE_GAIN), runs)
    return [
        Figure(f"{name}: no gain, a winner is kept, {runs} runs", share(world, runs), "%", 5),
        Figure(f"{name}: gain of {TRUE_GAIN}, it is missed", 100 - found, "%", 20),
    ]


def _strict(name: str, world: World, runs: int) -> Figure:
    kept = share(attrs.evolve(world, policy=Strict()), runs)
    return Figure(f"{name}: no gain, strict, {runs} runs", kept, "%", None)


def main() -> int:
    """Measure, print, and return the exit code."""
    started = time.perf_counter()
    figures = [*measure(), *measure_passed()]
    print(TITLE)
    for figure in figures:
        print(figure.line())
    print(f"  {time.perf_counter() - started:.0f} s")
    return 0 if all(figure.kept for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
