"""A setting that changes nothing is a promise that is not kept: each one changes some run."""

from __future__ import annotations

import functools
import re
from typing import Any

import attrs
import pytest

from optimizers.worlds import (
    NOTES,
    RULES,
    Run,
    asked,
    config,
    current_text,
    examples,
    missing,
    section,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import GepaConfig, GepaExample, MinGain, RolloutFeedback
from promptgraft.errors import TransientProviderError
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import Session, SessionProtocol
from promptgraft.search import MaxProposals
from promptgraft.search.settings import PersistenceScope, groups_of
from promptgraft.search.validation import Full

LEAN: dict[str, Any] = {"preset": "lean", "additions": ("whole_prompt",), "rollout_budget": 120}
PAPER: dict[str, Any] = {"rollout_budget": 80}
MERGING: dict[str, Any] = {"enable_merge": True, "rollout_budget": 300, "minibatch_size": 2}

# The settings with which each leaf matters, and another value of it.
ROWS: dict[str, tuple[dict[str, Any], Any]] = {
    "rollout_budget": (PAPER, 60),
    "minibatch_size": (PAPER, 2),
    "pareto_set_size": (PAPER, 4),
    "target_section_paths": (PAPER, (NOTES,)),
    "seed": (PAPER, 5),
    "enable_merge": (MERGING, False),
    "max_example_chars": ({"example_formatter": lambda example, response: ("x" * 200, "y")}, 100),
    "max_trace_chars": ({"trace_formatter": lambda session: "x" * 200}, 100),
    "example_formatter": (PAPER, lambda example, response: ("x", "y")),
    "trace_formatter": (PAPER, lambda session: "traced"),
    "persist": (PAPER, False),
    "keep_anyway": (PAPER, False),
    "persist_scope": (PAPER, PersistenceScope.SESSION),
    "acceptance": (PAPER, MinGain(0.5)),
    "additions": (LEAN, []),
    "preset": (PAPER, "lean"),
    "held_out": (PAPER, examples(3, first=50)),
    "shuffle": (PAPER, True),
    "max_reflections": (PAPER, 1),
    "timeout": (PAPER, 1e-9),
    "max_idle_steps": ({**PAPER, "minibatch_size": 1}, 1),
    "max_failed_reflections": ({**PAPER, "max_copied_words": 1}, 1),
    "max_unscored_share": (PAPER, 0.0),
    "stoppers": (PAPER, [MaxProposals(1)]),
    "weights": (PAPER, {"half": 1.0, "other": 1.0}),
    "pick": (PAPER, {"other": 1.0}),
    "required": (PAPER, {"other": 0.99}),
    "frontier_type": (PAPER, "objective"),
    "perfect_score": ({"rollout_budget": 300}, 2.0),
    "num_runs": (PAPER, 2),
    "on_error": (PAPER, "zero"),
    "max_part_chars": (PAPER, 30),
    "max_prompt_chars": ({"rollout_budget": 300}, 90),
    "max_copied_words": ({"max_copied_words": None}, 1),
    "validation": (LEAN, Full()),
    "frontier_pruning": ({"frontier_pruning": "redundant"}, "dominated"),
    "exploration": (LEAN, 1.0),
    "explored": ({**LEAN, "exploration": 1.0}, "pool"),
    "minibatches": (PAPER, "random"),
    "minibatch_growth": (LEAN, 1),
    "reuse_rollouts": (LEAN, False),
    "module_choice": (PAPER, "all"),
    "learn_from_perfect": ({**PAPER, "minibatch_size": 1}, True),
    "published_question": ({"published_question": False}, True),
    "proposals_per_step": (PAPER, 2),
    "steps_at_once": (LEAN, 3),
    "max_merge_invocations": (MERGING, 0),
    "merge_overlap": (MERGING, 7),
}
ELSEWHERE = {
    *("training_examples", "feedback_fn", "shown_images", "shown_image_kb"),
    *("max_rollout_cost", "max_cost", "max_tokens"),
    *("target_tool_examples", "target_task_examples", "enable_example_generation"),
    *("max_task_examples_per_section", "example_mutation_rate"),
    *("tools", "summaries", "output_fields", "visibility"),
}
"""Leaves that need images, tools, examples or prices; other tests have such worlds."""


def graded(rendered: RenderedPrompt[object]) -> str:
    """Each text helps with half of the words, and its length harms the others."""
    texts = [section(rendered, path).text.split() for path in (RULES, NOTES)]
    word = asked(rendered)
    if word in texts[int(word[1:]) % 2]:
        return "1.0"
    return str(0.5 - 0.02 * sum(map(len, texts)))


def judge(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    score = float(response.text)
    reason = f"missing {example.label}" if score < 1 else "fine"
    return RolloutFeedback(
        score=score, feedback=reason, objectives={"half": score / 2, "other": 1 - score / 2}
    )


def propose(rendered: RenderedPrompt[object]) -> str:
    if rendered.key == "reflect-prompt":
        return "not today"
    words = dict.fromkeys(missing(rendered))
    return f"```instruction\n{current_text(rendered)}\n{' '.join([*words][:1])}\n```"


def outcome(leaves: dict[str, Any]) -> tuple[object, ...]:
    """Return what models and store saw of a run, and where it ended."""
    calls = 0

    def task(rendered: RenderedPrompt[object]) -> str:
        nonlocal calls
        calls += 1
        if calls % 9 == 0:
            raise TransientProviderError("429")
        return graded(rendered)

    store = InMemoryPromptOverridesStore()
    run = Run(
        config(feedback_fn=judge, **leaves),
        task=task,
        reflection=propose,
        overrides_store=store,
        session=Session(),
    )
    result = run.start()
    texts = [[request.text for request in side.requests] for side in (run.task, run.reflection)]
    return (
        *texts,
        result.stop_reason,
        result.best_index,
        result.scores_matrix,
        result.persisted,
        [re.sub(r"\d+", "", event) for event in result.rejected_by_reason],
    )


@functools.cache
def usual(leaves: tuple[tuple[str, Any], ...]) -> tuple[object, ...]:
    """Return the outcome of settings that rows have in common."""
    return outcome(dict(leaves))


@pytest.mark.parametrize("name", ROWS)
def test_another_value_of_a_setting_changes_a_run(name: str) -> None:
    common, value = ROWS[name]
    assert outcome({**common, name: value}) != usual(tuple(common.items()))


def test_every_setting_is_tried() -> None:
    groups = groups_of(GepaConfig)
    leaves = {field.name for field in attrs.fields(GepaConfig)} - set(groups)
    leaves |= {field.name for kind in groups.values() for field in attrs.fields(kind)}
    assert leaves == {*ROWS, *ELSEWHERE}
