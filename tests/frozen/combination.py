"""How a frozen search is written: a world, a seed and settings, all plain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frozen.world import World

SMALL: Mapping[str, Any] = {
    "preset": "paper",
    "rollout_budget": 120,
    "minibatch_size": 3,
    "pareto_set_size": 6,
    "seed": 1,
}
"""What is set where a combination says nothing else."""

RACE: Mapping[str, Any] = {
    "preset": "lean",
    "rollout_budget": 160,
    "pareto_set_size": 10,
    "validation": {"first": 3, "every": 2, "finalists": 2},
}
"""A race that is short enough to be lost, won and deepened within a small search."""

WIDE = World(parts=("rules", "notes"), words=10, needs=2, validation=10, learning=10)


@dataclass(frozen=True)
class Combination:
    """One search; ``settings`` leave out what is as in ``SMALL``."""

    name: str
    world: World = field(default_factory=World)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def whole(self) -> dict[str, Any]:
        """All settings."""
        targets = [key for key in dict.fromkeys(self.world.parts) if key != "nothing"]
        return {**SMALL, "targets": targets, **self.settings}
