"""Textual gradients as an algorithm: its settings, its questions and its search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import attrs

from promptgraft.algorithms.gradient.patching import patch_params
from promptgraft.algorithms.gradient.prompts import QUESTIONS, Asked, BlameParams, MergeParams
from promptgraft.algorithms.gradient.replies import MAX_PROBLEM_CHARS
from promptgraft.algorithms.gradient.result import GradientResult
from promptgraft.algorithms.gradient.search import GradientSearch
from promptgraft.algorithms.gradient.settings import GradientSettings
from promptgraft.prompt.template import PromptTemplate
from promptgraft.runtime.session import SessionProtocol
from promptgraft.search.algorithm import Kit, Questions
from promptgraft.search.context import OptimizationContext
from promptgraft.search.optimizer import Optimizer
from promptgraft.search.round_events import Problem, Severity
from promptgraft.targets.base import Target
from promptgraft.targets.estimating import Sizes, sent_chars
from promptgraft.targets.prompts import Improvable


@attrs.frozen(kw_only=True)
class GradientConfig(GradientSettings):
    """What a gradient search does.

    Its settings are those of every run (:class:`promptgraft.search.config.RunConfig`) and those of
    :class:`promptgraft.algorithms.gradient.settings.GradientSettings`.

    Raises:
        ConfigError: naming the field, what was expected and what was found.
    """

    algorithm: ClassVar[str] = "gradient"
    questions: ClassVar[Mapping[str, PromptTemplate[object]]] = {**QUESTIONS}

    def search(self, kit: Kit) -> GradientSearch:
        return GradientSearch(self, kit)

    def question_chars(self, target: Target, questions: Questions, sizes: Sizes) -> Sequence[int]:
        baseline, refused = target.baseline(), "x" * sizes.refused
        shown = "x" * (sizes.input + sizes.answer + sizes.trace)
        chars = []
        for module in target.modules:
            described = target.describe(module, baseline)
            others = "".join(text for _, text in described.neighbours)
            said = "x" * min(MAX_PROBLEM_CHARS, sizes.feedback) * self.max_gradients
            key = Asked.TRACE if self.attribution == "trace" else Asked.STEP
            asked = {
                key: BlameParams(
                    steps=shown,
                    parts=described.text,
                    others=others,
                    losses="x" * sizes.feedback,
                    previous=refused,
                ),
                Asked.MERGE: MergeParams(
                    part=described.name, current=described.text, said=said, previous=refused
                ),
                Asked.PATCH: attrs.evolve(
                    patch_params(described, [Problem(severity=Severity.P1, text=said)]),
                    previous=refused,
                ),
            }
            chars += [
                sent_chars(questions[name].bind(params).render()) for name, params in asked.items()
            ]
        return chars


class GradientOptimizer(Optimizer):
    """Improves a prompt or a graph by textual gradients.

    Args:
        context: the surroundings of the run.
        config: its settings.
    """

    def __init__(self, context: OptimizationContext, config: GradientConfig) -> None:
        super().__init__(context, config)

    def optimize(
        self, prompt: Improvable, *, session: SessionProtocol | None = None
    ) -> GradientResult:
        """Improve ``prompt`` as :meth:`Optimizer.optimize` does; the result has the rounds."""
        result = super().optimize(prompt, session=session)
        assert isinstance(result, GradientResult)  # noqa: S101 - what its search returns
        return result
