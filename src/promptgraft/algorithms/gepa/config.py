"""GEPA as an algorithm: its settings, its questions and its search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from promptgraft.algorithms.gepa.prompts import META_PROMPTS
from promptgraft.algorithms.gepa.questions import questions_of, reflection_params
from promptgraft.algorithms.gepa.search import GepaSearch
from promptgraft.algorithms.gepa.settings import GepaSettings
from promptgraft.prompt.template import PromptTemplate
from promptgraft.search.algorithm import Kit, Questions
from promptgraft.search.optimizer import Optimizer
from promptgraft.search.plan import CHARS_PER_TOKEN, FEEDBACK_CHARS, room_of
from promptgraft.targets.base import Target
from promptgraft.targets.formatting import default_example_formatter
from promptgraft.targets.types import GepaExample, RolloutFeedback, RolloutRecord
from promptgraft.text import clip


@attrs.frozen(kw_only=True)
class GepaConfig(GepaSettings):
    """What a GEPA run does.

    Its settings are those of every run (:class:`promptgraft.search.config.RunConfig`) and those of
    :class:`promptgraft.algorithms.gepa.settings.GepaSettings`.

    Raises:
        ConfigError: naming the field, what was expected and what was found.
    """

    algorithm: ClassVar[str] = "gepa"
    questions: ClassVar[Mapping[str, PromptTemplate[object]]] = {**META_PROMPTS}

    def search(self, kit: Kit) -> GepaSearch:
        return GepaSearch(self, kit)

    def longest_question(self, target: Target, questions: Questions, *, answer: int | None) -> int:
        baseline = target.baseline()
        record = _longest_record(target, self, answer)
        # Longer than what is shown of a refused reply and of the reason, which are clipped.
        refused = "x" * (self.guards.max_part_chars + 10_000)
        longest, asked = 0, questions_of(questions, self.strategy)
        for module in target.modules:
            description = target.describe(module, baseline)
            params = reflection_params(
                description, [record] * self.batch_size, problem=refused, previous=refused
            )
            question = asked[description.meta_prompt].bind(params).render()
            longest = max(longest, len(question.text))
        return longest + room_of(target, self)


class GepaOptimizer(Optimizer):
    """Improves a prompt with GEPA, whose settings are a ``GepaConfig``."""


def _longest_record(target: Target, config: GepaSettings, answer: int | None) -> RolloutRecord:
    shown = config.max_example_chars
    output = shown if answer is None else min(shown, answer * CHARS_PER_TOKEN)
    traced = config.trace_formatter is not None
    traced = traced or target.estimate(config.training_examples).leaves_traces
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
