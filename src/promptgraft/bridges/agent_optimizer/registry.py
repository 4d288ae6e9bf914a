"""Algorithms of the user for ``AgentOptimizer``, found by the ``algorithm.name`` of the file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from promptgraft.bridges.agent_optimizer.configuration import PUBLISHED
from promptgraft.bridges.agent_optimizer.result import OptimizeResult
from promptgraft.bridges.agent_optimizer.target import TargetPrompt
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json, shown


@attrs.frozen(kw_only=True)
class BaseOptimizer(ABC):
    """Base class of algorithms that users register.

    Attributes:
        config: the configuration file as plain data, with its own spelling of the keys.
        call_agent: answers a query with a text.
        target_prompt: the texts; restored after the run, whatever is written meanwhile.
        train_dataset_path: the training set.
        validation_dataset_path: the validation set.
        callbacks: always None.
        output_dir: the folder of the result.
        extra_stop_callbacks: functions that end the run by returning true.
        extra_gepa_callbacks: objects that are told what happens.
    """

    config: Mapping[str, Json] = attrs.field(hash=False)
    call_agent: Callable[..., Any]
    target_prompt: TargetPrompt
    train_dataset_path: str
    validation_dataset_path: str
    callbacks: object = attrs.field(default=None, hash=False)
    output_dir: str
    extra_stop_callbacks: Sequence[Callable[..., bool]] = ()
    extra_gepa_callbacks: Sequence[object] = attrs.field(default=(), hash=False)

    @abstractmethod
    async def run(self, *, reporter: object = None) -> OptimizeResult:
        """Search for better texts and return the result.

        Args:
            reporter: always None; what is printed is printed after the run.
        """


class OptimizerRegistry:
    """Algorithms by the name that a configuration file gives as ``algorithm.name``."""

    def __init__(self) -> None:
        self._classes: dict[str, type[BaseOptimizer]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a file may give, the built-in one first."""
        return PUBLISHED, *self._classes

    def register(self, name: str, optimizer: type[BaseOptimizer]) -> None:
        """Register an algorithm under a name; registering the same class again is harmless.

        Raises:
            TypeError: it is not a subclass of :class:`BaseOptimizer`.
            ConfigError: the name is taken.
        """
        optimizer_object: object = (
            optimizer  # users may pass anything, whatever the annotation says
        )
        if not isinstance(optimizer_object, type) or not issubclass(
            optimizer_object, BaseOptimizer
        ):
            raise TypeError(
                f"expected a subclass of BaseOptimizer, found {shown(optimizer_object)}"
            )
        if name == PUBLISHED or self._classes.get(name, optimizer) is not optimizer:
            raise ConfigError(f"there already is an algorithm `{name}`; choose another name")
        self._classes[name] = optimizer

    def get(self, name: str) -> type[BaseOptimizer] | None:
        """Return the class of a registered algorithm; None for the built-in one.

        Raises:
            ConfigError: there is no such algorithm; lists those that exist.
        """
        if name not in self.names:
            raise ConfigError(f"expected one of {', '.join(self.names)}, found {shown(name)}")
        return self._classes.get(name)


OPTIMIZER_REGISTRY = OptimizerRegistry()
"""The algorithms that ``AgentOptimizer`` finds."""
