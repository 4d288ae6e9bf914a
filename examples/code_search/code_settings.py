"""What may change in the agent's prompt, and how a run is set up; shared by the scripts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from code_questions import HERE, feedback, load_questions

from promptgraft import GepaConfig, OfflineAdapter, OptimizationContext
from promptgraft.algorithms.gepa import ToolExampleTarget
from promptgraft.overrides import PromptOverridesStore

KINDS: dict[str, dict[str, Any]] = {
    "instructions": {"target_section_paths": (("guidelines",),)},
    "tool descriptions": {"target_tools": ("search_code", "read_file")},
    "output fields": {
        "target_output_fields": ("Finding.category", "Finding.severity", "Finding.file")
    },
    "tool examples": {
        "target_tool_examples": (
            ToolExampleTarget(tool_name="search_code", example_index=0),
            ToolExampleTarget(tool_name="search_code", example_index=1),
        )
    },
    "task examples": {
        "target_task_examples": (
            ("security", "attacker"),
            ("performance", "hold-up"),
            ("performance", "slows-down"),
        )
    },
    "generated examples": {"enable_example_generation": True},
}


def run_settings(seed: int) -> dict[str, Any]:
    """Return the settings that do not depend on what may change."""
    return {
        "rollout_budget": 2000,
        "preset": "paper",  # what the table in README.md was measured with
        "minibatch_size": 20,  # with a model that costs money, begin with 3 to 8
        "pareto_set_size": 25,  # the first 25 ask about files that the others do not ask about
        "training_examples": load_questions(HERE / "train.jsonl"),
        "feedback_fn": feedback,
        "seed": seed,
        "example_mutation_rate": 0.5,
        "max_task_examples_per_section": 5,
        "enable_merge": True,
    }


def config_for(kinds: Iterable[str], seed: int, **others: Any) -> GepaConfig:
    """Return the settings of a run that may change parts of the given kinds."""
    settings = {**run_settings(seed), **others}
    for kind in kinds:
        settings.update(KINDS[kind])
    return GepaConfig(**settings)


def context_with(store: PromptOverridesStore, tag: str = "latest") -> OptimizationContext:
    """Return the surroundings of a run: who answers, who reflects, where the winner goes."""
    return OptimizationContext(
        adapter=OfflineAdapter(),
        reflection_adapter=OfflineAdapter(words_per_failure=4),
        overrides_store=store,
        overrides_tag=tag,
    )
