"""Improve every part of the agent's prompt: ``python examples/code_search/optimize.py [SEED]``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from task import feedback, load_questions

from promptgraft.optimizers.gepa.config import ToolExampleTarget

HERE = Path(__file__).parent
TAG = "code-search-v1"

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
        "rollout_budget": 3000,
        "minibatch_size": 20,
        "pareto_set_size": 25,
        "training_examples": load_questions(HERE / "train.jsonl"),
        "feedback_fn": feedback,
        "seed": seed,
        "example_mutation_rate": 0.5,
        "max_task_examples_per_section": 5,
        "enable_merge": True,
        "max_failed_reflections": 20,
    }
