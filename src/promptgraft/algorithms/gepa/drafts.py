"""Proposed texts on their way."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.search.proposals import Change
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.types import Module, ModuleDescription, RolloutRecord


@attrs.define
class Draft:
    """A text on its way: one question, or its repair, about some of the failures.

    Attributes:
        module: what is to be changed.
        description: the module as the parent has it.
        records: the rollouts that the question shows.
        number: tells the questions of a proposal apart.
        found: the usable text.
        refusals: why replies were refused, with the replies.
        failed: whether there is no reply that could be repaired.
    """

    module: Module
    description: ModuleDescription
    records: Sequence[RolloutRecord]
    number: int
    found: Change | None = None
    refusals: list[tuple[InvalidProposalError, str]] = attrs.field(factory=list)
    failed: bool = False
