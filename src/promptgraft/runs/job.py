"""What can be run and kept, whichever algorithm carries it out."""

from __future__ import annotations

from typing import Protocol, Self

import attrs

from promptgraft.parts.descriptors import PromptLike
from promptgraft.search.context import OptimizationContext
from promptgraft.serde import Json


class Plan(Protocol):
    """What a run can use, said before it uses anything."""

    def as_json(self) -> dict[str, Json]:
        """Return the plan for machines."""
        ...


class Job(Protocol):
    """A prompt, the surroundings of its run, and the settings of an algorithm."""

    @property
    def prompt(self) -> PromptLike:
        """What is improved."""
        ...

    @property
    def context(self) -> OptimizationContext:
        """Who answers, where the winner goes, who is told."""
        ...

    @property
    def config(self) -> attrs.AttrsInstance:
        """The settings."""
        ...

    def within(self, context: OptimizationContext) -> Self:
        """Return the same job in other surroundings."""
        ...

    def plan(self) -> Plan:
        """Say what the run can use."""
        ...
