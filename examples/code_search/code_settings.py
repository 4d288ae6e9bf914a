"""What may change in the agent's prompt, and how a run is set up; shared by the scripts."""

from __future__ import annotations

from collections.abc import Collection

from code_questions import HERE, feedback, load_questions

from promptgraft import Data, GepaConfig, OfflineAdapter, OptimizationContext
from promptgraft.algorithms.gepa import Strategy, ToolExampleTarget
from promptgraft.overrides import PromptOverridesStore
from promptgraft.search import Targets

KINDS = (
    "instructions",
    "tool descriptions",
    "output fields",
    "tool examples",
    "task examples",
    "generated examples",
)
TOOLS = ("search_code", "read_file")
OUTPUT_FIELDS = ("Finding.category", "Finding.severity", "Finding.file")
TOOL_EXAMPLES = (
    ToolExampleTarget(tool_name="search_code", example_index=0),
    ToolExampleTarget(tool_name="search_code", example_index=1),
)
TASK_EXAMPLES = (
    ("security", "attacker"),
    ("performance", "hold-up"),
    ("performance", "slows-down"),
)


def config_for(
    kinds: Collection[str], seed: int, *, rollout_budget: int = 2000, enable_merge: bool = True
) -> GepaConfig:
    """Return the settings of a run that may change parts of the given kinds."""
    return GepaConfig(
        rollout_budget=rollout_budget,
        minibatch_size=20,  # with a model that costs money, begin with 3 to 8
        pareto_set_size=25,  # the first 25 ask about files that the others do not ask about
        target_section_paths=(("guidelines",),) if "instructions" in kinds else (),
        targets=Targets(
            tools=TOOLS if "tool descriptions" in kinds else (),
            output_fields=OUTPUT_FIELDS if "output fields" in kinds else (),
        ),
        target_tool_examples=TOOL_EXAMPLES if "tool examples" in kinds else (),
        target_task_examples=TASK_EXAMPLES if "task examples" in kinds else (),
        enable_example_generation="generated examples" in kinds,
        training_examples=load_questions(HERE / "train.jsonl"),
        feedback_fn=feedback,
        seed=seed,
        example_mutation_rate=0.5,
        data=Data(held_out=()),  # `ablation.py` tells what is gained on other files
        keep_anyway=True,
        enable_merge=enable_merge,
        strategy=Strategy(preset="paper"),  # what the table in README.md was measured with
    )


def context_with(store: PromptOverridesStore, tag: str = "latest") -> OptimizationContext:
    """Return the surroundings of a run: who answers, who reflects, where the winner goes."""
    return OptimizationContext(
        adapter=OfflineAdapter(),
        reflection_adapter=OfflineAdapter(words_per_failure=4),
        overrides_store=store,
        overrides_tag=tag,
    )
