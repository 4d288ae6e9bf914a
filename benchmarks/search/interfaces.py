"""What a search is given: a task with texts that may be changed, and a reflection model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from search.worlds import Item, Texts, Trial


class World(Protocol):
    """A task that a search is tried on.

    Attributes:
        seed: what made it.
        tools: the texts that are descriptions of tools; the others are sections.
        first: the texts that a search begins with.
        train: items to learn from.
        validation: items to compare on.
        test: items that no search sees.
        calls: how often it has answered.
    """

    @property
    def seed(self) -> int: ...

    @property
    def tools(self) -> tuple[str, ...]: ...

    @property
    def first(self) -> Mapping[str, str]: ...

    @property
    def train(self) -> Sequence[Item]: ...

    @property
    def validation(self) -> Sequence[Item]: ...

    @property
    def test(self) -> Sequence[Item]: ...

    @property
    def calls(self) -> int: ...

    def answer(self, texts: Texts, item: Item) -> Trial:
        """Try the texts on an item: one call."""
        ...

    def expected(self, texts: Texts, items: Sequence[Item]) -> float:
        """Return the mean score of the texts without noise; no call."""
        ...


@runtime_checkable
class GraphWorld(World, Protocol):
    """A task for a graph, each of whose nodes has one of the texts.

    Attributes:
        calls: how often it has answered.
    """

    calls: int

    def step(self, node: str, text: str, given: str) -> str:
        """Return what a node answers with its text."""
        ...

    def flow(self, ask: Callable[[str, str], str], case: str) -> str:
        """Return the answer to a case by asking nodes; no call."""
        ...

    def judge(self, item: Item, answer: str) -> tuple[float, str]:
        """Return the score of an answer, and the feedback on it."""
        ...


class ReflectionModel(Protocol):
    """Writes new texts.

    Attributes:
        calls: how often it was asked.
    """

    @property
    def calls(self) -> int: ...

    def improve(self, module: str, text: str, feedback: Sequence[str]) -> str:
        """Return what it takes for a better text of ``module``."""
        ...

    def improve_any(self, texts: Mapping[str, str], feedback: Sequence[str]) -> Mapping[str, str]:
        """Return what it takes for better texts of the modules that it finds at fault."""
        ...


@runtime_checkable
class Writer(Protocol):
    """A reflection model that is given the text of a question, and nothing else.

    Attributes:
        calls: how often it was asked.
    """

    @property
    def calls(self) -> int: ...

    def reply(self, question: str) -> str:
        """Return the reply to a question."""
        ...
