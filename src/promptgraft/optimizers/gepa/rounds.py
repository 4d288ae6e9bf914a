"""One step of a search: proposals that are made from the same parent, and what came of them."""

from __future__ import annotations

import attrs

from promptgraft.optimizers.gepa.validation import Entry
from promptgraft.optimizers.gepa.work import Work


@attrs.define(kw_only=True)
class Round:
    """A step that has begun.

    Attributes:
        number: counts the steps from 1.
        parent: position of the parent of all its proposals.
        leads: whether that was the best candidate when the step began.
        entry: the way into the pool of what comes of it.
        works: its proposals, in order.
        accepted: those whose children are better than the parent, of the proposals that are
            committed.
        tried: whether a child was tried that nobody had tried before.
    """

    number: int
    parent: int
    leads: bool
    entry: Entry
    works: list[Work] = attrs.field(factory=list)
    accepted: list[Work] = attrs.field(factory=list)
    tried: bool = False

    @property
    def largest(self) -> int:
        """Rollouts that it can use."""
        return sum(work.largest for work in self.works) + self.entry.largest

    @property
    def taught(self) -> list[Work]:
        """The proposals that could learn something."""
        return [work for work in self.works if work.taught]
