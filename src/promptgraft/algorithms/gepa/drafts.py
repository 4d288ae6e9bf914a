"""Proposed texts on their way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs

from promptgraft.search.proposals import Change
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.types import Module, ModuleDescription, RolloutRecord, names_of

Part: TypeAlias = tuple[Module, ModuleDescription]
"""A module, and what it is as the parent has it."""


@attrs.define
class Draft:
    """New texts on their way: one question, or its repair, about some of the failures.

    Attributes:
        parts: what may be changed; several where the question is which of them to change.
        records: the rollouts that the question shows.
        number: tells the questions of a proposal apart.
        found: the usable texts, each made onto the one before it.
        refusals: why replies were refused, with the replies.
        failed: whether there is no reply that could be repaired.
    """

    parts: tuple[Part, ...]
    records: Sequence[RolloutRecord]
    number: int
    found: tuple[Change, ...] = ()
    refusals: list[tuple[InvalidProposalError, str]] = attrs.field(factory=list)
    failed: bool = False

    @property
    def name(self) -> str:
        """The names of all parts."""
        return names_of(module for module, _ in self.parts)

    @property
    def before(self) -> str:
        """The present text of the only part; empty for several."""
        return self.parts[0][1].text if len(self.parts) == 1 else ""
