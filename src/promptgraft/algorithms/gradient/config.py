"""Textual gradients as users begin them: the configuration and the optimizer."""

from __future__ import annotations

import attrs

from promptgraft.algorithms.gradient.search import GradientResult, GradientSearch, with_initial
from promptgraft.algorithms.gradient.settings import GradientSettings
from promptgraft.runtime.session import SessionProtocol
from promptgraft.search.algorithm import Kit
from promptgraft.search.context import OptimizationContext
from promptgraft.search.job import Optimizer
from promptgraft.targets.base import Target
from promptgraft.targets.prompts import Improvable


@attrs.frozen(kw_only=True)
class GradientConfig(GradientSettings):
    """The settings of a gradient search, in addition to those of every run.

    Attributes:
        max_rounds: rounds that the run may make, 1 to 100.
        patience: rounds in a row without an accepted candidate, after which the run ends.
        target_score: mean of the current candidate on the validation set at which the run ends;
            None for no target.
        train_batch: training cases of a round: up to three quarters that the current candidate
            is known to fail, and others, each of which is used once before any is used again.
            ``all`` for all of them in every round.
        initial: texts to begin with, by name of the part, in place of those in force.
        max_gradients: gradients of a part in a round, at most; the most severe come first.
        attribution: how failures are traced back: ``trace`` asks once for each case and shows
            all of its steps; ``steps`` asks about each step, from the last to the first, as
            published.
        first_try: whether, after a refused candidate, the next ones are evaluated on the failures
            that led to them before the validation set, and refused if they are no better there;
            the published search does not do this.
        backward: blames parts for a failed answer, in place of the questions.
        aggregate: merges the problems of a part, in place of the question.
        rewrite: writes the new text of a part, in place of the question.

    Raises:
        ConfigError: naming the field, what was expected and what was found.
    """

    def check_target(self, target: Target) -> None:
        with_initial(target, self.initial, self.split[1])

    def search(self, kit: Kit) -> GradientSearch:
        return GradientSearch(self, kit)


class GradientOptimizer(Optimizer):
    """Improves a prompt or a graph by textual gradients.

    Args:
        context: the context of the run.
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
