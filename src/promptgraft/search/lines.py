"""Lines of a run: a search and its branches, on their way through the driver.

With each go the latest unscored rollouts, because too many of them end the run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

import attrs

from promptgraft.search.batches import Books
from promptgraft.targets.types import RolloutRecord

T = TypeVar("T")

Waits: TypeAlias = Generator[Callable[[], bool], None, T]
"""Work of the driver for one line; yields what must hold before it continues."""


@attrs.frozen
class Made:
    """A rollout as a line has made it; its number in the run is known once the line is joined."""

    position: str
    record: RolloutRecord


@attrs.define(eq=False)
class Line(Generic[T]):
    """A search, or one of its branches, on its way.

    Attributes:
        number: where it was started: the search itself is (), its third branch (3,), and that
            one's first (3, 1).
        books: what it keeps for itself until it is joined.
        stretch: the latest rollouts of the run when it was started.
        earlier: for each line under way then, its batches as they grow.
        most_questions: questions that it can ask; None where that is not known.
        batches: for each rollout of each batch, whether the provider failed it.
        emitted: its events, in order.
        started: branches that it has started.
        held: its work, until it is released.
        is_given_up: whether it does not continue any more.
        has_ended: whether it has come to its end.
        error: what it ended with.
        value: what it has come to, once it has ended without an error.
    """

    number: tuple[int, ...]
    books: Books
    stretch: FaultyStretch
    earlier: Sequence[list[tuple[bool, ...]]] = ()
    most_questions: int | None = None
    batches: list[tuple[bool, ...]] = attrs.field(factory=list)
    emitted: list[object] = attrs.field(factory=list)
    started: int = 0
    held: Waits[None] | None = None
    is_given_up: bool = False
    has_ended: bool = False
    error: Exception | None = None
    value: T = attrs.field(init=False)

    @property
    def rollouts(self) -> int:
        """Rollouts that it has used so far."""
        return self.books.ledger.rollouts


UNSCORED_ALLOWANCE = 4
"""Rollouts that may stay unscored on top of the share, in any stretch of a run."""


@attrs.define
class FaultyStretch:
    """The latest rollouts of a run, from where its unscored ones began to exceed their share.

    A run continues while, in every stretch of it, at most ``share`` of the rollouts and
    ``UNSCORED_ALLOWANCE`` more are unscored. So one fault says nothing in a small batch, and a
    provider that dies after a thousand good rollouts is noticed as soon as one that never lived.
    It is enough to watch one stretch: no other one that ends here is worse. A share of 0 has no
    allowance: the first fault is too many.

    Attributes:
        share: share of the rollouts that may stay unscored, 0 to 1.
        unscored: unscored rollouts of the stretch.
        rollouts: rollouts of the stretch.
    """

    share: float
    unscored: int = 0
    rollouts: int = 0

    def add(self, batches: Iterable[Sequence[bool]]) -> None:
        """Add rollouts in the order in which the run asked for them; True is unscored."""
        for faults in batches:
            for fault in faults if self.unscored or True in faults else ():
                self.rollouts += 1
                self.unscored += fault
                if self.unscored <= self.share * self.rollouts:
                    self.unscored = self.rollouts = 0

    @property
    def is_too_faulty(self) -> bool:
        """Whether more rollouts of the stretch are unscored than share and allowance permit."""
        allowance = UNSCORED_ALLOWANCE if self.share else 0
        return self.unscored > self.share * self.rollouts + allowance
