"""How long the calls of a run can get: estimates from what is known before the first one."""

from __future__ import annotations

import json
from collections.abc import Mapping

from promptgraft.adapters.base import MeteredAdapter, ProviderAdapter
from promptgraft.algorithms.gepa.config import GepaConfig
from promptgraft.algorithms.gepa.prompts import reflection_params
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.targets.formatting import clip, default_example_formatter
from promptgraft.targets.prompt_target import PromptTarget
from promptgraft.targets.types import (
    GepaExample,
    MetaPrompt,
    RolloutFeedback,
    RolloutRecord,
)

CHARS_PER_TOKEN = 4
"""Characters of English text that make a token, about."""

FEEDBACK_CHARS = 1_000
"""Length that feedback is taken to have: nobody knows what a feedback function will write."""


def tokens_of(chars: int) -> int:
    """Return how many tokens a text of so many characters has, about."""
    return -(-chars // CHARS_PER_TOKEN)


def longest_answer(adapter: ProviderAdapter) -> int | None:
    """Return the tokens of the longest answer; None when the adapter does not know."""
    return adapter.longest_answer if isinstance(adapter, MeteredAdapter) else None


def longest_prompt(target: PromptTarget, config: GepaConfig) -> int:
    """Return the characters of the longest prompt that a rollout can send.

    It is the longest of today's with all that its parts may grow by. Tools and output type
    are counted as their JSON Schema.
    """
    prompt = target.rollout.prompt_of(target.baseline())
    rendered = [prompt.bind(*example.params).render() for example in config.training_examples]
    longest = max(rendered, key=lambda found: len(found.text))
    return len(longest.text) + _beside(longest) + _room(target, config)


def longest_question(
    target: PromptTarget,
    config: GepaConfig,
    meta_prompts: Mapping[MetaPrompt, Prompt[object]],
    *,
    answer: int | None,
) -> int:
    """Return the characters of the longest question that a reflection can ask.

    Args:
        target: what is improved.
        config: the settings.
        meta_prompts: the questions.
        answer: tokens of the longest answer of a rollout; None when that is not known.
    """
    baseline = target.baseline()
    record = _longest_record(target, config, answer)
    # Longer than what is shown of a refused reply and of the reason, which are clipped.
    refused = "x" * (config.max_part_chars + 10_000)
    longest = 0
    for module in target.modules:
        description = target.describe(module, baseline)
        params = reflection_params(
            description, [record] * config.batch_size, problem=refused, previous=refused
        )
        question = meta_prompts[description.meta_prompt].bind(params).render()
        longest = max(longest, len(question.text))
    return longest + _room(target, config)


def _longest_record(target: PromptTarget, config: GepaConfig, answer: int | None) -> RolloutRecord:
    shown = config.max_example_chars
    output = shown if answer is None else min(shown, answer * CHARS_PER_TOKEN)
    traced = bool(target.descriptor.tools) or config.trace_formatter is not None
    inputs = max((_input(example, config) for example in config.training_examples), key=len)
    return RolloutRecord(
        example_id=max((example.id for example in config.training_examples), key=len),
        inputs_repr=inputs,
        output_repr="x" * output,
        tool_trace_repr="x" * config.max_trace_chars if traced else "",
        feedback=RolloutFeedback(score=1 / 3, feedback="x" * FEEDBACK_CHARS),
    )


def _input(example: GepaExample, config: GepaConfig) -> str:
    """Return the input as a reflector sees it; a formatter of the user's is not called."""
    if config.example_formatter is not None:
        return "x" * config.max_example_chars
    return clip(default_example_formatter(example, None)[0], config.max_example_chars)


def _beside(rendered: RenderedPrompt[object]) -> int:
    """Return the characters of what is sent beside the text."""
    schemas = [(tool.description, tool.params_schema) for tool in rendered.tools]
    return len(json.dumps([schemas, rendered.output_schema]))


def _room(target: PromptTarget, config: GepaConfig) -> int:
    """Return the characters by which the parts that may change can grow."""
    baseline = target.baseline()
    room = 0
    for module in target.modules:
        if module.is_new:
            room += config.max_task_examples_per_section * config.max_part_chars
        else:
            room += config.max_part_chars - len(target.text(module, baseline))
    return room
