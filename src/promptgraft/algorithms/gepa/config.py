"""GEPA as an algorithm: its settings, its questions and its search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import attrs

from promptgraft.algorithms.gepa.plan import GepaSettings
from promptgraft.algorithms.gepa.prompts import META_PROMPTS
from promptgraft.algorithms.gepa.reflect import questions_of
from promptgraft.prompt.template import PromptTemplate
from promptgraft.search.algorithm import BaseSearch, Kit, Questions
from promptgraft.search.reflection import reflection_params
from promptgraft.targets.base import Target
from promptgraft.targets.estimating import Sizes, sent_chars
from promptgraft.targets.types import RolloutFeedback, RolloutRecord


@attrs.frozen(kw_only=True)
class GepaConfig(GepaSettings):
    """What a GEPA run does.

    Its settings are those of every run (:class:`promptgraft.search.config.RunConfig`) and those of
    :class:`promptgraft.algorithms.gepa.plan.GepaSettings`.

    Raises:
        ConfigError: naming the field, what was expected and what was found.
    """

    algorithm: ClassVar[str] = "gepa"
    questions: ClassVar[Mapping[str, PromptTemplate[object]]] = {**META_PROMPTS}

    def search(self, kit: Kit) -> BaseSearch:
        # Settings are read, checked and planned with by many who do not search.
        from promptgraft.algorithms.gepa.search import GepaSearch

        return GepaSearch(self, kit)

    def question_chars(self, target: Target, questions: Questions, sizes: Sizes) -> Sequence[int]:
        baseline, refused = target.baseline(), "x" * sizes.refused
        record = RolloutRecord(
            example_id="example",
            inputs_repr="x" * sizes.input,
            output_repr="x" * sizes.answer,
            tool_trace_repr="x" * sizes.trace,
            feedback=RolloutFeedback(score=1 / 3, feedback="x" * sizes.feedback),
        )
        all_questions = questions_of(questions, as_published=self.strategy.published_question)
        described = [target.describe(module, baseline) for module in target.modules]
        # Only the longest question repeats a refused reply, and minibatches that have grown.
        count = self.largest_batch if sizes.refused else self.batch_size
        rendered_prompts = (
            all_questions[module.meta_prompt].bind(
                reflection_params(module, [record] * count, refused=(refused, refused))
            )
            for module in described
        )
        return [sent_chars(question.render()) for question in rendered_prompts]
