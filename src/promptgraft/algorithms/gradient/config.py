"""Textual gradients as users begin them: the configuration and the optimizer.

Apart from the settings, because the search imports these.
"""

from __future__ import annotations

import attrs

from promptgraft.algorithms.gradient.search import GradientResult, GradientSearch
from promptgraft.algorithms.gradient.settings import GradientSettings
from promptgraft.runtime.session import SessionProtocol
from promptgraft.search.algorithm import Kit
from promptgraft.search.context import OptimizationContext
from promptgraft.search.job import Optimizer
from promptgraft.targets.prompts import Improvable


@attrs.frozen(kw_only=True)
class GradientConfig(GradientSettings):
    """What a gradient run does.

    Raises:
        ConfigError: naming the setting by its path, what was expected and what was found.
    """

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
