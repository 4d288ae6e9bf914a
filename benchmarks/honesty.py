"""How often a run says *improved* where nothing is better, and where something is.

Runs alone: ``python benchmarks/honesty.py [--runs N]``.

A toy world whose scores are mostly noise, of seven kinds. The answers to every prompt are equally
good, or the reflection model finds, with three proposals of ten, a text that is worth more. Each
figure counts seeded runs of GEPA with its default settings, 30 validation examples, 30 to learn
from and 60 that are held out.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import attrs

from figures import Figure
from overhead import InstantAdapter
from promptgraft import (
    Data,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    InMemoryPromptOverridesStore,
    Limits,
    MarkdownSection,
    Objectives,
    OptimizationContext,
    Prompt,
    PromptTemplate,
    RolloutFeedback,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.evals.statistics import Outcome, gain
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import SessionProtocol

RUNS = 400
TITLE = "Honesty: seeded runs on scores with noise"
FINDS = 0.3
BUDGET = 900
HELD_OUT = 60
MOST_FALSE = 5.0
FOUND: Mapping[tuple[str, float], float] = {
    ("graded", 0.2): 80,
    ("graded", 0.3): 95,
    ("right or wrong", 0.2): 50,
    ("right or wrong", 0.3): 80,
}
"""The least share of runs that are to find a gain, in percent."""

TEMPLATE: PromptTemplate[object] = PromptTemplate(
    ns="benchmarks",
    key="honesty",
    sections=(MarkdownSection(title="Rules", key="rules", template="Answer."),),
)


@attrs.frozen
class Asked:
    """A rollout whose score is drawn.

    Attributes:
        mean: what answers to the example score on average.
        fresh: draws anew for each rollout.
        fixed: draws the same for the same prompt and example.
        done: share of the run's budget that is used.
    """

    mean: float
    fresh: random.Random
    fixed: random.Random
    done: float


def _graded(chance: random.Random, mean: float) -> float:
    return min(1.0, max(0.0, round(mean + chance.uniform(-0.3, 0.3), 1)))


def _passed(chance: random.Random, mean: float) -> float:
    return float(chance.random() < mean)


NOISES: Mapping[str, Callable[[Asked], float]] = {
    "graded": lambda asked: _graded(asked.fresh, asked.mean),
    "right or wrong": lambda asked: _passed(asked.fresh, asked.mean),
    "graded, fixed answers": lambda asked: _graded(asked.fixed, asked.mean),
    "right or wrong, fixed answers": lambda asked: _passed(asked.fixed, asked.mean),
    "graded, the provider drifts": lambda asked: _graded(
        asked.fresh, asked.mean - 0.3 * asked.done
    ),
    "right or wrong, the provider drifts": lambda asked: _passed(
        asked.fresh, asked.mean - 0.4 * asked.done
    ),
    "heavy tails": lambda asked: asked.mean + asked.fresh.paretovariate(2.5) - 5 / 3,
}
"""How scores are drawn."""


def run(noise: str, worth: float, seed: int) -> tuple[bool, bool]:
    """Make one run; return whether it says *improved*, and whether a winner is in the store."""
    chance, calls = random.Random(f"{noise}/{worth}/{seed}"), 0

    def judge(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        nonlocal calls
        del session
        calls += 1
        hardness = int(example.id[1:]) % 3 * 0.05
        asked = Asked(
            mean=0.5 - hardness + (worth if "better" in response.text else 0.0),
            fresh=chance,
            fixed=random.Random(f"{seed}/{example.id}/{response.text}"),
            done=calls / BUDGET,
        )
        return RolloutFeedback(score=NOISES[noise](asked), feedback="expected more")

    def propose(rendered: RenderedPrompt[object]) -> str:
        del rendered
        kind = "better" if worth and chance.random() < FINDS else "other"
        return f"```instruction\nAnswer in the {kind} way, number {chance.random()}.\n```"

    store = InMemoryPromptOverridesStore()
    context = OptimizationContext(
        InstantAdapter(lambda rendered: rendered.text),
        reflection_adapter=InstantAdapter(propose),
        overrides_store=store,
    )
    examples = [GepaExample(id=f"e{number}", params=()) for number in range(60 + HELD_OUT)]
    config = GepaConfig(
        rollout_budget=BUDGET,
        pareto_set_size=30,
        target_section_paths=(("rules",),),
        training_examples=examples[:60],
        data=Data(held_out=examples[60:]),
        feedback_fn=judge,
        seed=seed,
        limits=Limits(max_reflections=30),
        objectives=Objectives(perfect_score=1_000),
    )
    result = GepaOptimizer(context, config).optimize(Prompt(TEMPLATE))
    return result.improved, store.resolve(TEMPLATE.descriptor) is not None


def attainable(noise: str, worth: float, trials: int = 1_000) -> float:
    """Return the percentage of fixed sets of held-out cases that show a gain at all."""
    chance, shown = random.Random(f"{noise}/{worth}"), 0
    for _ in range(trials):
        before, after = (
            {
                str(case): [NOISES[noise](Asked(0.45 + better, chance, chance, 0.0))]
                for case in range(HELD_OUT)
            }
            for better in (0.0, worth)
        )
        shown += gain(before, after).verdict is Outcome.IMPROVED
    return 100 * shown / trials


def measure(runs: int = RUNS) -> Iterator[Figure]:
    """Yield how often runs say *improved* without a gain, and how often they miss one."""
    with ProcessPoolExecutor() as pool:

        def made(noise: str, worth: float) -> list[tuple[bool, bool]]:
            return list(pool.map(partial(run, noise, worth), range(runs), chunksize=5))

        for noise in NOISES:
            found = made(noise, 0.0)
            said = 100 * sum(improved for improved, _ in found) / runs
            stored = 100 * sum(kept for _, kept in found) / runs
            yield Figure(f"{noise}: improved without a gain", said, "%", MOST_FALSE)
            if stored != said:
                yield Figure(f"{noise}: stored without a gain", stored, "%", said)
        for (noise, worth), least in FOUND.items():
            missed = 100 - 100 * sum(improved for improved, _ in made(noise, worth)) / runs
            yield Figure(f"{noise}: gain of {worth} missed", missed, "%", 100 - least)
            least_missed = 100 - attainable(noise, worth)
            yield Figure(f"  by {HELD_OUT} cases at the least", least_missed, "%", None)


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="runs for each figure")
    runs, started, kept = parser.parse_args().runs, time.perf_counter(), True
    print(f"{TITLE}, {runs} for each figure")
    for figure in measure(runs):
        print(figure.line(), flush=True)
        kept = kept and figure.kept
    print(f"  {time.perf_counter() - started:.0f} s")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
