"""The embedded offline model answers the questions of a gradient search from what they show."""

from __future__ import annotations

import re
from enum import Enum

import pytest

from promptgraft import (
    Case,
    Data,
    MarkdownSection,
    OfflineAdapter,
    OptimizationContext,
    Prompt,
    PromptTemplate,
    examples_from,
    feedback_from,
)
from promptgraft.algorithms.gradient import GradientConfig, GradientOptimizer
from promptgraft.algorithms.gradient.settings import Attribution
from promptgraft.evals.metrics import Exact


class Kind(Enum):
    """What a thing is."""

    FRUIT = "fruit"
    TOOL = "tool"


KINDS = {
    "fruit": "ripe pear; sour lemon; sweet cherry; pear juice; lemon peel; cherry cake",
    "tool": "heavy hammer; bent nail; rusty saw; hammer grip; nail file; saw blade",
}
PROMPT = Prompt(
    PromptTemplate[object](
        ns="tests",
        key="things",
        output_type=Kind,
        sections=(
            MarkdownSection(title="Kinds", key="kinds", template="- fruit: food\n- tool: work"),
            MarkdownSection(title="Thing", key="thing", template="$thing", overridable=False),
        ),
    )
)
# Half of each kind, then the other half: the words of one half tell the other one apart.
NAMES = [(kind, one) for kind, names in KINDS.items() for one in names.split("; ")]
CASES = [
    Case(id=name, input={"thing": name}, expected=kind)
    for kind, name in [*NAMES[3:6], *NAMES[9:], *NAMES[:3], *NAMES[6:9]]
]


@pytest.mark.parametrize("attribution", ["steps", "trace"])
def test_it_learns_words_of_failures_and_says_why(attribution: Attribution) -> None:
    config = GradientConfig(
        rollout_budget=200,
        pareto_set_size=6,
        target_section_paths=(("kinds",),),
        training_examples=examples_from(PROMPT, CASES, [Exact()]),
        feedback_fn=feedback_from([Exact()]),
        data=Data(held_out=()),
        attribution=attribution,
    )
    result = GradientOptimizer(OptimizationContext(OfflineAdapter()), config).optimize(PROMPT)
    assert result.baseline_pareto_mean == 0.5
    assert result.best_pareto_mean == pytest.approx(5 / 6)
    patch = result.rounds[0].patches[0]
    assert patch.why == "what points to tool was not said"
    assert set(patch.cases) == {"heavy hammer", "bent nail", "rusty saw"}
    assert {"hammer", "nail"} <= set(re.findall(r"\w+", patch.text))
