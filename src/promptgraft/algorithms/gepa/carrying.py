"""Carries lines that helped in a lost child into the next children.

A child with a good line is lost if another of its lines does harm, or if it loses its race by
chance. The line need not be discovered again: it is added to the following children, and tested
with them, until the parent contains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from promptgraft.algorithms.gepa.attribution import AddedLine
from promptgraft.algorithms.gepa.questions import Part
from promptgraft.algorithms.gepa.redundant import lines_of, replaced
from promptgraft.search.acceptance import Change
from promptgraft.search.algorithm import Kit
from promptgraft.targets.base import InvalidProposalError, Target
from promptgraft.targets.types import Candidate, Module

_MOST_RIDES = 12
"""How many children a line is carried into: it may help on one failure and harm elsewhere."""
_MOST_LINES = 1_000
_REASON = "lines that helped in an earlier child"


@attrs.frozen(kw_only=True)
class Rider:
    """A line that is added to a child.

    Attributes:
        module: the part in which it helped.
        text: the line, with its continuation lines.
        key: its normalized content; equal for repetitions.
    """

    module: Module
    text: str
    key: str


@attrs.define
class Carried:
    """The lines that helped in some child, with how often each was carried.

    Attributes:
        kit: what the search works with.
    """

    kit: Kit
    _rides: dict[Rider, int] = attrs.field(factory=dict, init=False)

    def note(self, riders: Iterable[Rider], lines: Iterable[AddedLine]) -> None:
        """Record the outcome of a child.

        Args:
            riders: the lines that were carried into it.
            lines: the lines that it has and its parent lacks.
        """
        for rider in riders:
            self._rides[rider] = self._rides.get(rider, 0) + 1
        for line in lines:
            if line.helped:
                rider = Rider(module=line.module, text=line.text, key=line.key)
                self._rides.setdefault(rider, 0)
        for rider in [*self._rides][:-_MOST_LINES]:
            del self._rides[rider]

    def riders(self, parent: Candidate) -> tuple[Rider, ...]:
        """Return the lines to carry into the next child of a parent that lacks them."""
        text = self.kit.target.text
        waiting = [rider for rider, rides in self._rides.items() if rides < _MOST_RIDES]
        held = {
            module: {line.key for line in lines_of(text(module, parent))}
            for module in {rider.module for rider in waiting}
        }
        return tuple(rider for rider in waiting if rider.key not in held[rider.module])


def with_riders(
    changes: Sequence[Change],
    riders: Iterable[Rider],
    *,
    lesson: tuple[Target, Candidate],
    graft: Callable[[Candidate, Part, str], Change],
) -> tuple[Change, ...]:
    """Return the changes of a child, with the carried lines added.

    Args:
        changes: at least one change, each grafted onto the one before it.
        riders: the lines to add.
        lesson: the target, and the parent of the child.
        graft: makes the change of a part, or raises ``InvalidProposalError``.
    """
    found, (target, parent) = tuple(changes), lesson
    for rider in riders:
        module, child = rider.module, found[-1].candidate
        before = target.text(module, child)
        text = f"{before}\n{rider.text}"
        # Skip lines that the child already paraphrases or contradicts.
        if len(replaced(lines_of(text))) > len(replaced(lines_of(before))):
            continue
        try:
            change = graft(child, (module, target.describe(module, parent)), text)
        except InvalidProposalError:
            continue
        own = [one.reason for one in found if one.module == module]
        others = (one for one in found if one.module != module)
        found = (*others, attrs.evolve(change, reason=own[0] if own else _REASON))
    return found
