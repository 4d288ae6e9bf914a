"""What one step of a run is about: a module that it changes, and what becomes of it."""

from __future__ import annotations

import attrs

from promptgraft.optimizers.modules import Module
from promptgraft.optimizers.types import (
    Candidate,
    GepaExample,
    ModuleDescription,
    RolloutRecord,
)

ATTEMPTS = 2
"""Reflections that a proposal can use: one, and a repair."""


@attrs.frozen(kw_only=True)
class Step:
    """What a step has settled on before anything is proposed, for one module that it changes.

    Attributes:
        number: counts the steps from 1.
        turn: counts the modules of the step from 0.
        parent: position of the parent.
        candidate: the parent.
        module: what is mutated.
        description: what the reflector may know of it.
        minibatch: examples that a child is tried on.
        records: the parent's rollouts on them.
    """

    number: int
    turn: int = 0
    parent: int
    candidate: Candidate
    module: Module
    description: ModuleDescription
    minibatch: tuple[GepaExample, ...]
    records: tuple[RolloutRecord, ...]


@attrs.frozen
class Proposed:
    """A child that may be tried, and the text of a module that it was made from.

    Attributes:
        step: the step, and the module.
        candidate: the child, with what the step has changed before.
        text: the module's text.
    """

    step: Step
    candidate: Candidate
    text: str
