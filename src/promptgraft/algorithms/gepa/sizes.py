"""How long the questions of a run can get: an estimate from what is known before the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptgraft.algorithms.gepa.prompts import reflection_params
from promptgraft.search.algorithm import Questions
from promptgraft.search.plan import CHARS_PER_TOKEN, FEEDBACK_CHARS, room_of
from promptgraft.targets.base import Target
from promptgraft.targets.formatting import clip, default_example_formatter
from promptgraft.targets.types import GepaExample, RolloutFeedback, RolloutRecord

if TYPE_CHECKING:
    from promptgraft.algorithms.gepa.settings import GepaSettings


def longest_question(
    target: Target,
    config: GepaSettings,
    questions: Questions,
    *,
    answer: int | None,
) -> int:
    """Return the characters of the longest question that a reflection can ask.

    Args:
        target: what is improved.
        config: the settings.
        questions: the questions.
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
        question = questions[description.meta_prompt].bind(params).render()
        longest = max(longest, len(question.text))
    return longest + room_of(target, config)


def _longest_record(target: Target, config: GepaSettings, answer: int | None) -> RolloutRecord:
    shown = config.max_example_chars
    output = shown if answer is None else min(shown, answer * CHARS_PER_TOKEN)
    traced = target.leaves_traces or config.trace_formatter is not None
    inputs = max((_input(example, config) for example in config.training_examples), key=len)
    return RolloutRecord(
        example_id=max((example.id for example in config.training_examples), key=len),
        inputs_repr=inputs,
        output_repr="x" * output,
        tool_trace_repr="x" * config.max_trace_chars if traced else "",
        feedback=RolloutFeedback(score=1 / 3, feedback="x" * FEEDBACK_CHARS),
    )


def _input(example: GepaExample, config: GepaSettings) -> str:
    """Return the input as a reflector sees it; a formatter of the user's is not called."""
    if config.example_formatter is not None:
        return "x" * config.max_example_chars
    return clip(default_example_formatter(example, None)[0], config.max_example_chars)
