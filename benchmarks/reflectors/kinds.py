"""The kinds of reflection models that searches are compared with, each with its world."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from reflectors.graphs import GraphHabits, GraphOfRules, GraphShape, GraphWriter
from reflectors.slots import SHAPES, SlotShape, SlotWorld
from reflectors.writers import LineWriter, SlotHabits, SlotWriter
from search.interfaces import World, Writer
from search.reflecting import Habits
from search.worlds import RuleWorld, Shape

_RULES = Shape(rules=32, modules=3, needed=(1, 2), interference=0.02, noise=0.05)
_STRONG = Habits(lessons=20, wrong=0.02, forgets=0, rubbish=0.1, repeats=0, truncates=0, nonsense=0)
_MISTAKEN = SlotHabits(misplaces=0.2, drops=0.02)


@attrs.frozen(kw_only=True)
class Kind:
    """A kind of reflection model with its world.

    Attributes:
        says: what is special about it.
        make: returns the world and the model of a seed.
    """

    says: str
    make: Callable[[int], tuple[World, Writer]]


def _of_lines(habits: Habits) -> Callable[[int], tuple[World, Writer]]:
    def make(seed: int) -> tuple[World, Writer]:
        world = RuleWorld(_RULES, seed)
        # A question of gepa does not name the text that it shows, so the text does.
        world.first = {name: f"Rules of {name}:" for name in world.first}
        return world, LineWriter(habits, world.wrong_actions, seed)

    return make


def _of_slots(shape: SlotShape, habits: SlotHabits) -> Callable[[int], tuple[World, Writer]]:
    def make(seed: int) -> tuple[World, Writer]:
        return SlotWorld(shape, seed), SlotWriter(habits, seed)

    return make


def _knowing(seed: int) -> tuple[World, Writer]:
    world = SlotWorld(SHAPES["slots"], seed)
    subjects = {
        label: [word for word in words if word[:1] == label[:1]]
        for label, words in world.telling.items()
    }
    return world, SlotWriter(SlotHabits(), seed, subjects)


KINDS: Mapping[str, Kind] = {
    "weak lines": Kind(
        says="one rule a line, two lessons at a time, a fifth of them wrong",
        make=_of_lines(Habits()),
    ),
    "strong lines": Kind(
        says="one rule a line, every lesson it is shown, nearly all of them right",
        make=_of_lines(_STRONG),
    ),
    "slots": Kind(
        says="definition lists that are right on every failure shown, and grow",
        make=_of_slots(SHAPES["slots"], SlotHabits()),
    ),
    "mistakes": Kind(
        says="the same, with a fifth of the lessons in wrong definitions, and some left out",
        make=_of_slots(SHAPES["slots"], _MISTAKEN),
    ),
    "one text": Kind(
        says="definition lists with mistakes, in a prompt that is a single text",
        make=_of_slots(attrs.evolve(SHAPES["slots"], sections=1), _MISTAKEN),
    ),
    "knowing": Kind(
        says="definition lists by a model that knows the subjects: its first replies say it all",
        make=_knowing,
    ),
    "graph": Kind(
        says="rules of a router, two specialists and a formatter; feedback names no prompt",
        make=lambda seed: (GraphOfRules(GraphShape(), seed), GraphWriter(GraphHabits(), seed)),
    ),
    "defective": Kind(
        says="definition lists below a sentence of the source that forbids to heed them",
        make=_of_slots(SHAPES["defective"], SlotHabits(defines=True)),
    ),
    "defective part": Kind(
        says="the same in two texts, of which the first forbids to heed both",
        make=_of_slots(attrs.evolve(SHAPES["defective"], sections=2), SlotHabits(defines=True)),
    ),
}
"""The four kinds, a prompt of one text, an early plateau, and a defective source text."""
