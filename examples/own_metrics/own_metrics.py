"""The whole path with metrics of one's own: ``python own_metrics.py [ROLLOUTS [MESSAGES]]``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from promptgraft import (
    Case,
    Data,
    Dataset,
    GepaConfig,
    GepaOptimizer,
    InMemoryPromptOverridesStore,
    MarkdownSection,
    OfflineAdapter,
    OptimizationContext,
    Prompt,
    PromptTemplate,
    Splits,
    evaluate,
    feedback_from,
)
from promptgraft.algorithms.gepa import GepaResult
from promptgraft.evals import metrics
from promptgraft.evals.aggregate import WeightedMean
from promptgraft.evals.gains import gain
from promptgraft.evals.types import Answer
from promptgraft.search import Objectives
from promptgraft.targets import examples_from

MESSAGES = Path(__file__).with_name("messages.csv")


class Desk(Enum):
    """Who answers a guest of the hotel."""

    HOUSEKEEPING = "housekeeping"
    MAINTENANCE = "maintenance"
    KITCHEN = "kitchen"
    RECEPTION = "reception"


FLOORS = {"housekeeping": 2, "maintenance": 3, "kitchen": 0, "reception": 1}

TEMPLATE = PromptTemplate[Desk](
    ns="examples/hotel",
    key="desks",
    output_type=Desk,
    sections=(
        MarkdownSection(
            title="Desks",
            key="desks",
            template=(
                "- housekeeping: clean rooms\n- maintenance: repairs\n"
                "- kitchen: food and drinks\n- reception: all the others"
            ),
        ),
        MarkdownSection(title="Message", key="message", template="$message", overridable=False),
    ),
)


def near(case: Case, answer: Answer) -> tuple[float, str]:
    """Score how few floors a message has to be carried: 1 for none, 0 for three."""
    found, right = str(answer.output), str(case.expected)
    floors = abs(FLOORS[right] - FLOORS[found])
    return 1 - floors / 3, f"{found} is {floors} floors from {right}"


METRICS = (
    metrics.classification(name="desk", labels=tuple(FLOORS)),
    metrics.python(function=near, required=False),
)
SCORE = WeightedMean({"desk": 3, "near": 1})


def search(splits: Splits, context: OptimizationContext, rollouts: int) -> GepaResult:
    """Compare candidates on validation, learn from train, and keep what is better."""
    cases = (*splits.validation, *splits.train)
    config = GepaConfig(
        rollout_budget=rollouts,
        minibatch_size=16,
        training_examples=examples_from(Prompt(TEMPLATE), cases, METRICS),
        pareto_set_size=len(splits.validation),
        target_section_paths=(("desks",),),
        feedback_fn=feedback_from(METRICS, aggregation=SCORE),
        objectives=Objectives(frontier_type="cartesian"),
        data=Data(held_out=()),
        keep_anyway=True,  # whether it is better is told below, on messages of the test split
    )
    return GepaOptimizer(context, config).optimize(Prompt(TEMPLATE))


def scores(prompt: Prompt[Desk], cases: Sequence[Case]) -> dict[str, tuple[float | None]]:
    """Return the score of each case, and print what the cases come to."""
    found = evaluate(prompt, cases, METRICS, adapter=OfflineAdapter(), aggregation=SCORE).report
    means = ", ".join(f"{one.name} {one.mean_score:.3f}" for one in found.metrics)
    print(f"  mean score {found.mean_score:.3f} ({means}), {found.passed} of {len(cases)} pass")
    return {case.case_id: (case.score,) for case in found.cases}


def main(rollouts: int = 400, most: int = 40) -> None:
    """Search, then compare source and winner on messages that the search never saw."""
    messages = Dataset.load(
        MESSAGES, fields={"input": "message", "expected": "desk"}, keep=["split"]
    )
    splits, store = Splits.by_field(messages, "split"), InMemoryPromptOverridesStore()
    result = search(splits, OptimizationContext(OfflineAdapter(), overrides_store=store), rollouts)
    print(f"validation: {result.baseline_pareto_mean:.3f} -> {result.best_pareto_mean:.3f}")
    if not result.found_better or splits.test is None:
        print("not improved: nothing better was found")
        return
    unseen = splits.test.cases[:most]
    print("test, source and winner:")
    before = scores(Prompt(TEMPLATE), unseen)
    found = gain(before, scores(Prompt(TEMPLATE, overrides_store=store), unseen))
    print(f"{found.verdict}: {found.line()}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
