"""What a plan expects images to cost, against what a run is told."""

from __future__ import annotations

from typing import Any

import pytest

from image_files import png
from promptgraft import (
    Case,
    Data,
    GepaConfig,
    Image,
    MarkdownSection,
    OpenAIAdapter,
    OptimizationContext,
    OptimizationJob,
    Prompt,
    PromptTemplate,
    examples_from,
    feedback_from,
)
from promptgraft.evals.judges import LlmFinalResponse
from promptgraft.evals.metrics import Exact
from promptgraft.evals.spending import Role
from promptgraft.search import RunPlan

PROMPT = Prompt(
    PromptTemplate[object](
        ns="tests",
        key="look",
        sections=(
            MarkdownSection(title="Rules", key="rules", template="Look."),
            MarkdownSection(title="Photo", key="photo", template="$photo", overridable=False),
        ),
    )
)
MODEL = "gpt-4o"


def planned(size: int, model: str = MODEL, **data: Any) -> dict[Role, int]:
    """Return the tokens sent per call that a plan expects, by role."""
    plan = plan_of(size, OpenAIAdapter(model, api_key="unused", max_output_tokens=100), **data)
    return {row.role: row.expected.input_tokens or 0 for row in plan.roles}


def plan_of(size: int, adapter: OpenAIAdapter, **data: Any) -> RunPlan:
    metrics = [Exact(), LlmFinalResponse(judges=[adapter])]
    cases = [
        Case(
            id=f"c{number}",
            input={"photo": Image(data=png(size, size, colour=(number, 0, 0)), name="a.png")},
            expected="a cat",
        )
        for number in range(8)
    ]
    config = GepaConfig(
        rollout_budget=40,
        pareto_set_size=4,
        minibatch_size=3,
        training_examples=examples_from(PROMPT, cases, metrics),
        feedback_fn=feedback_from(metrics),
        data=Data(held_out=[], **data),
    )
    return OptimizationJob(PROMPT, OptimizationContext(adapter), config).plan()


@pytest.mark.parametrize(
    ("vision", "shown_images", "told"), [(None, 8, 1), (True, 8, 0), (None, 0, 0)]
)
def test_a_plan_says_that_a_reflection_model_is_shown_no_images(
    vision: bool | None, shown_images: int, told: int
) -> None:
    adapter = OpenAIAdapter("my-model", api_key="unused", vision=vision)
    warnings = plan_of(64, adapter, shown_images=shown_images).warnings
    assert len([text for text in warnings if "is told only their names; set" in text]) == told


def test_a_plan_counts_the_tokens_of_images_by_the_rule_of_the_model() -> None:
    # By OpenAI's rule for gpt-4o: 765 tokens for a square of 1,024 pixels, 255 for one of 64.
    small, large = planned(64), planned(1024)
    assert large[Role.TASK] - small[Role.TASK] == pytest.approx(510, abs=1)
    assert large[Role.JUDGE] - small[Role.JUDGE] == pytest.approx(510, abs=1)
    assert large[Role.REFLECTION] - small[Role.REFLECTION] == pytest.approx(3 * 510, rel=0.01)


def test_a_reflection_that_shows_no_images_costs_none() -> None:
    small, large = planned(64, shown_images=0), planned(1024, shown_images=0)
    assert large[Role.REFLECTION] == small[Role.REFLECTION]
    assert large[Role.TASK] > small[Role.TASK]
