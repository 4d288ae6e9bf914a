"""What an optimizer may mutate, as algorithms see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from promptgraft.prompt.template import PromptTemplate


class Module(ABC):
    """A part that may be mutated: hashable, with a name and a kind.

    A module of one's own is an attrs class (``@attrs.frozen``) or a frozen dataclass.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def kind(self) -> str:
        """What it is: ``section``, ``tool example``."""

    @property
    @abstractmethod
    def name(self) -> str:
        """How messages and meta-prompts name it; unique in its target."""

    @property
    def owner(self) -> str | None:
        """What shows it to a model, as ``RolloutRecord.hidden`` names it; None for all of it."""
        return None

    @property
    def is_example(self) -> bool:
        """Whether it is an example; a rate of its own is kept for these."""
        return False

    @property
    def is_new(self) -> bool:
        """Whether mutating it adds a part rather than changing one."""
        return False

    @property
    def question(self) -> PromptTemplate[object] | None:
        """The meta-prompt of its kind; None for one that the algorithm has.

        Its description names it by its key.
        """
        return None


def names_of(modules: Iterable[Module]) -> str:
    """Return the names of modules as one text."""
    return ", ".join(module.name for module in modules)
