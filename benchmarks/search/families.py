"""The families of worlds that searches are compared on."""

from __future__ import annotations

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
