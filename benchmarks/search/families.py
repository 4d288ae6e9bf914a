"""The families of worlds that searches are compared on."""

from __future__ import annotations

import random
from collections.abc import Mapping

import attrs

from search.reflecting import Habits
from search.worlds import Shape


@attrs.frozen(kw_only=True)
class Family:
    """A kind of world with a reflection model.

    Attributes:
        shape: of the worlds.
        habits: of the reflection model.
        says: what is hard about it.
    """

    shape: Shape
    habits: Habits = attrs.field(factory=Habits)
    says: str


FAMILIES: Mapping[str, Family] = {
    "attention": Family(
        shape=Shape(rules=30, attention=24, noise=0.1),
        says="graded scores with noise; more lines than are attended to dilute each other",
    ),
    "modules": Family(
        shape=Shape(rules=32, modules=4, interference=0.04, clarity=0.8),
        says="four texts; a rule in the wrong one does harm",
    ),
    "binary": Family(
        shape=Shape(rules=20, needed=(1, 2), binary=True, noise=0.08),
        says="right or wrong as a whole, and one answer in twelve is judged wrongly",
    ),
    "long tail": Family(
        shape=Shape(rules=40, needed=(1, 1), tail=0.5, known=0.25, binary=True, attention=60),
        says="most items are easy, what is missing is rare",
    ),
    "vague": Family(
        shape=Shape(rules=20, clarity=0.35, noise=0.05),
        habits=Habits(wrong=0.35, rubbish=0.4, nonsense=0.12),
        says="feedback seldom says what was wrong, and the reflection model is poor",
    ),
}


def drawn(seed: int) -> Family:
    """Return a family that the seed draws: nobody can tune a search to its shape."""
    draw = random.Random(f"family/{seed}")
    modules = draw.randint(1, 4)
    binary = draw.random() < 0.5
    shape = Shape(
        rules=draw.randint(16, 40),
        modules=modules,
        needed=(1, draw.randint(1, 3)),
        tail=draw.choice((0.0, 0.0, 0.3, 0.6)),
        known=draw.choice((0.0, 0.0, 0.15, 0.3)),
        binary=binary,
        noise=draw.uniform(0.0, 0.1 if binary else 0.15),
        attention=draw.randint(18, 60),
        clarity=draw.uniform(0.3, 0.95),
        interference=draw.uniform(0.0, 0.05) if modules > 1 else 0.0,
        train=draw.randint(50, 150),
        validation=draw.randint(30, 80),
    )
    habits = Habits(
        lessons=draw.randint(1, 3),
        wrong=draw.uniform(0.05, 0.35),
        forgets=draw.uniform(0.0, 0.05),
        rubbish=draw.uniform(0.1, 0.4),
        repeats=draw.uniform(0.02, 0.15),
        truncates=draw.uniform(0.0, 0.1),
        nonsense=draw.uniform(0.0, 0.12),
    )
    return Family(shape=shape, habits=habits, says="everything is drawn by the seed")
