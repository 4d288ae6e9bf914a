"""What an optimizer may mutate, as algorithms see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar


class Module(ABC):
    """A part that may be mutated: hashable, and opaque but for what stands here.

    Attributes:
        is_example: whether it is an example; a rate of its own is kept for these.
        is_new: whether mutating it adds a part rather than changing one.
    """

    __slots__ = ()

    is_example: ClassVar[bool] = False
    is_new: ClassVar[bool] = False

    @property
    @abstractmethod
    def kind(self) -> str:
        """What it is: ``section``, ``tool example``."""

    @property
    @abstractmethod
    def name(self) -> str:
        """How messages and meta-prompts name it."""

    @property
    @abstractmethod
    def owner(self) -> str | None:
        """The section or tool that shows it to a model; None for the answer's fields."""


def names_of(modules: Iterable[Module]) -> str:
    """Return the names of modules as one text."""
    return ", ".join(module.name for module in modules)


def is_example(module: Module) -> bool:
    """Tell whether a module is an example, which a rate of its own is kept for."""
    return module.is_example


def owner_of(module: Module) -> str | None:
    """Return the section or tool that shows a module to a model; None for the answer's fields."""
    return module.owner
