"""Everything that searches are compared on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import attrs

from search.families import FAMILIES, Family, drawn
from search.interfaces import World
from search.reflecting import Habits, Reflector
from search.tickets import TicketReflector, TicketWorld
from search.tool_worlds import ToolShape, ToolWorld
from search.worlds import RuleWorld

BUDGET = 2_400
"""Calls of the task model."""


@attrs.frozen(kw_only=True)
class Task:
    """A family of worlds, each with a reflection model.

    Attributes:
        make: returns the world and the model of a seed.
        says: what is hard about it.
        budget: calls of the task model that a search may use.
    """

    make: Callable[[int], tuple[World, Reflector]]
    says: str
    budget: int = BUDGET


def _by_rules(family: Family, seed: int) -> tuple[World, Reflector]:
    world = RuleWorld(family.shape, seed)
    return world, Reflector(family.habits, world.wrong_actions, seed)


def _mixed(seed: int) -> tuple[World, Reflector]:
    return _by_rules(drawn(seed), seed)


def _tools(seed: int) -> tuple[World, Reflector]:
    world = ToolWorld(ToolShape(), seed)
    return world, Reflector(Habits(), world.wrong_actions, seed)


def _few_shot(seed: int) -> tuple[World, Reflector]:
    return TicketWorld(seed), TicketReflector(Habits(lessons=4, wrong=0.1), seed)


TASKS: Mapping[str, Task] = {
    **{
        name: Task(make=partial(_by_rules, family), says=family.says)
        for name, family in FAMILIES.items()
    },
    "tools": Task(
        make=_tools,
        says="descriptions of four tools and an instruction; a wrong one attracts others' items",
    ),
    "few-shot": Task(
        make=_few_shot,
        says="real tickets, rules and examples, read by the embedded offline model",
    ),
    "mixed": Task(
        make=_mixed,
        says="rules, modules, noise, scores, attention and the reflection model drawn by the seed",
    ),
}
