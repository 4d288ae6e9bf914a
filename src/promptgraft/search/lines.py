"""Lines of a run: a search and its branches, on their way through the driver."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Generic, TypeAlias, TypeVar

import attrs

from promptgraft.search.batches import Books
from promptgraft.search.faults import FaultyStretch
from promptgraft.targets.types import RolloutRecord

T = TypeVar("T")

Waits: TypeAlias = Generator[Callable[[], bool], None, T]
"""Work of the driver for one line; yields what must hold before it continues."""


@attrs.frozen
class Made:
    """A rollout as a line has made it; its number in the run is known once the line is joined."""

    position: str
    record: RolloutRecord


class Line(Generic[T]):
    """A search, or one of its branches, on its way.

    Attributes:
        number: where it was started: the search itself is (), its third branch (3,), and that
            one's first (3, 1).
        books: what it keeps for itself until it is joined.
        most_questions: questions that it can ask; None where that is not known.
        stretch: the latest rollouts of the run when it was started.
        earlier: for each line under way then, its batches as they grow.
        batches: for each rollout of each batch, whether the provider failed it.
        emitted: its events, in order.
        started: branches that it has started.
        error: what it ended with.
        held: its work, until it is released.
        is_given_up: whether it does not continue any more.
    """

    def __init__(
        self,
        number: tuple[int, ...],
        books: Books,
        *,
        stretch: FaultyStretch,
        earlier: Sequence[list[tuple[bool, ...]]] = (),
        most_questions: int | None = None,
    ) -> None:
        self.number = number
        self.books = books
        self.most_questions = most_questions
        self.stretch = stretch
        self.earlier = earlier
        self.batches: list[tuple[bool, ...]] = []
        self.emitted: list[object] = []
        self.started = 0
        self.error: Exception | None = None
        self.held: Waits[None] | None = None
        self.is_given_up = False
        self._values: list[T] = []

    @property
    def has_ended(self) -> bool:
        """Whether it has come to its end."""
        return self.error is not None or bool(self._values)

    @property
    def rollouts(self) -> int:
        """Rollouts that it has used so far."""
        return self.books.ledger.rollouts

    def end(self, value: T) -> None:
        """Keep what it has come to."""
        self._values.append(value)

    def result(self) -> T:
        """Return what it has come to, or raise what it has ended with."""
        if self.error is not None:
            raise self.error
        return self._values[0]
