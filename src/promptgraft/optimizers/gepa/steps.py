"""What one step of a run is about."""

from __future__ import annotations

import attrs

from promptgraft.optimizers.modules import Module
from promptgraft.optimizers.types import (
    Candidate,
    GepaExample,
    ModuleDescription,
    RolloutRecord,
)


@attrs.frozen(kw_only=True)
class Step:
    """What a step has settled on before anything is proposed.

    Attributes:
        number: counts the steps from 1.
        parent: position of the parent.
        candidate: the parent.
        module: what is mutated.
        description: what the reflector may know of it.
        minibatch: examples that a child is tried on.
        records: the parent's rollouts on them.
    """

    number: int
    parent: int
    candidate: Candidate
    module: Module
    description: ModuleDescription
    minibatch: tuple[GepaExample, ...]
    records: tuple[RolloutRecord, ...]


@attrs.frozen
class Proposed:
    """A child that may be tried, and the text that it was made from."""

    candidate: Candidate
    text: str
