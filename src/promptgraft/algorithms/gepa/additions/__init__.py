"""What a search may do beyond the published algorithm."""

from __future__ import annotations

from promptgraft.algorithms.gepa.additions.base import Addition, Tools
from promptgraft.algorithms.gepa.attempt import Attempt, Changes, Proposer

__all__ = ["Addition", "Attempt", "Changes", "Proposer", "Tools"]
