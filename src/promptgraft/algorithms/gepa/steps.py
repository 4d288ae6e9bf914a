"""What one step of a run is about: a module that it changes, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.targets.modules import Module
from promptgraft.targets.types import (
    Candidate,
    GepaExample,
    ModuleDescription,
    RolloutRecord,
)

ATTEMPTS = 2
"""Reflections that a proposal can use: one, and a repair."""

MOST_AT_ONCE = 4
"""Modules that a step can change."""

_FAILURES_EACH = 3


def parts_of(failures: int, reflections: int) -> int:
    """Return among how many of so many reflections failures are shared; one for each three."""
    return max(1, min(reflections, -(-failures // _FAILURES_EACH)))


@attrs.frozen(kw_only=True)
class Step:
    """What a step has settled on before anything is proposed, for one module that it changes.

    Attributes:
        number: counts the steps from 1.
        place: where in the run; the keys of its answers begin with it.
        turn: counts the modules of the step from 0, and from :data:`MOST_AT_ONCE` on the further
            parts that they are reflected on in.
        parent: position of the parent.
        candidate: the parent.
        module: what is mutated.
        description: what the reflector may know of it.
        minibatch: examples that a child is tried on.
        records: the parent's rollouts on them.
    """

    number: int
    place: str
    turn: int = 0
    parent: int
    candidate: Candidate
    module: Module
    description: ModuleDescription
    minibatch: tuple[GepaExample, ...]
    records: tuple[RolloutRecord, ...]

    def shared(self, failures: Sequence[RolloutRecord], reflections: int) -> tuple[Step, ...]:
        """Return the step in parts that are reflected on apart, each with some of the failures.

        Args:
            failures: rollouts that something can be learned from.
            reflections: parts at most; see :func:`parts_of`.
        """
        parts = parts_of(len(failures), reflections)
        return tuple(
            attrs.evolve(
                self, turn=self.turn + MOST_AT_ONCE * part, records=tuple(failures[part::parts])
            )
            for part in range(parts)
        )


@attrs.frozen
class Proposed:
    """A child that may be tried, and the text of a module that it was made from.

    Attributes:
        step: the step, and the module.
        candidate: the child, with what the step has changed before.
        text: the module's text, as it was proposed.
    """

    step: Step
    candidate: Candidate
    text: str
