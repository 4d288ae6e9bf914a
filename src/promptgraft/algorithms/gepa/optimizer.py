"""GEPA as an optimizer."""

from __future__ import annotations

from promptgraft.algorithms.gepa.config import GepaConfig
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import shown
from promptgraft.search.context import OptimizationContext
from promptgraft.search.job import Optimizer


class GepaOptimizer(Optimizer):
    """Improves a prompt with GEPA, whose settings are a ``GepaConfig``.

    Args:
        context: the context of the run.
        config: its settings.
        optimizer_config: None, as the common specification of GEPA allows; ``config`` has every
            setting.

    Raises:
        ConfigError: ``optimizer_config`` is not None, or an argument has another type.
    """

    def __init__(
        self, context: OptimizationContext, config: GepaConfig, *, optimizer_config: None = None
    ) -> None:
        settings: object = optimizer_config  # users may pass anything
        if settings is not None:
            raise ConfigError(
                f"optimizer_config: expected None, found {shown(settings)}; GepaConfig has every "
                "setting"
            )
        super().__init__(context, config)
