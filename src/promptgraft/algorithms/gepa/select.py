"""Algorithm 2: which candidate is the parent of a step, and which module has its turn.

Each kind of random choice has its own stream of random numbers, so that one kind does not disturb
the others.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Literal

import attrs

from promptgraft.search.frontier import drawn
from promptgraft.search.population import Pool
from promptgraft.targets.types import Module

ModuleChoice = Literal["turns", "all", "random"]
Explored = Literal["frontier", "leaders", "pool"]

_LEADERS = 5
"""Members of the frontier that ``explored: leaders`` chooses from."""


class Draws(deque[float]):
    """A queue of random numbers; steps that begin early look ahead in it.

    Args:
        seed: the seed of the run.
        kind: the kind of choice, which has a stream of its own.
    """

    def __init__(self, seed: int, kind: str) -> None:
        super().__init__()
        self._random = random.Random(f"{seed}/{kind}")

    def at(self, ahead: int) -> float:
        """Return the number of the attempt that begins while ``ahead`` others are under way."""
        while len(self) <= ahead:
            self.append(self._random.random())
        return self[ahead]


class Parents:
    """Chooses the parents of steps.

    Args:
        seed: the seed of the run.
        exploration: share of the steps whose parent is drawn, 0 to 1; in the others it is the best
            candidate.
        explored: what it is drawn from.
    """

    def __init__(self, seed: int, *, exploration: float, explored: Explored) -> None:
        self._draws = random.Random(f"{seed}/parents")
        self._exploration = exploration
        self._explored = explored

    def choose(self, pool: Pool) -> int:
        """Return the position of the parent of the next step."""
        if self._exploration < 1 and self._draws.random() >= self._exploration:
            return pool.best
        members = pool.frontier()
        if self._explored == "pool":
            members = dict.fromkeys(range(len(pool)), 1)
        elif self._explored == "leaders":
            means = {member: pool.estimate(member) for member in members}
            # By descending mean, those without scores last; ties keep the elder first.
            ranked = sorted(members, key=lambda at: (means[at] is None, -(means[at] or 0.0)))
            members = {member: members[member] for member in sorted(ranked[:_LEADERS])}
        return drawn(members, self._draws.random())


@attrs.frozen
class Turn:
    """Which modules an attempt may change, fixed when it begins.

    Attributes:
        first: the modules of the class whose turn it is, least recently changed first.
        second: the modules of the other class.
        draw: a random number, 0 to 1, that decides which module is drawn.
    """

    first: tuple[Module, ...] = ()
    second: tuple[Module, ...] = ()
    draw: float = 0.0

    @property
    def all(self) -> tuple[Module, ...]:
        """All modules, in the order of their turns."""
        return (*self.first, *self.second)

    @property
    def drawn(self) -> tuple[Module, ...]:
        """One of the modules, drawn uniformly; empty if there is none."""
        # By name: the order of turns depends on what was changed so far.
        modules = sorted(self.all, key=lambda module: module.name)
        return (modules[int(self.draw * len(modules))],) if modules else ()


class Turns:
    """Whose turn it is: modules are changed one after the other, as published.

    Instructions and examples are two classes: ``example_rate`` decides whose turn it is, and within
    each the module that was changed least recently is the next.

    Args:
        seed: the seed of the run.
        modules: the modules that may change.
        example_rate: share of the steps that change an example, if there are both.
        are_drawn: whether modules are drawn instead.
    """

    def __init__(
        self, seed: int, modules: Sequence[Module], *, example_rate: float, are_drawn: bool = False
    ) -> None:
        self._classes = Draws(seed, "modules")
        self._draws = Draws(seed, "blame")
        self._are_drawn = are_drawn
        self._example_rate = example_rate
        # Least recently changed first, so that no module starves behind one that is often chosen.
        self._instructions = [module for module in modules if not module.is_example]
        self._examples = [module for module in modules if module.is_example]

    def at(self, ahead: int) -> Turn:
        """Return the turn of an attempt that begins while ``ahead`` others are under way."""
        # As if each of those under way changed one module, which is not known before they end.
        first, second = deque(self._instructions), deque(self._examples)
        for turns in (first, second):
            turns.rotate(-ahead)
        if first and second and self._classes.at(ahead) < self._example_rate:
            first, second = second, first
        return Turn(tuple(first), tuple(second), self._draws.at(ahead))

    def took(self, turn: Turn, modules: Sequence[Module]) -> None:
        """Record a completed turn. Call in step order.

        Args:
            turn: the turn.
            modules: the modules it chose to change; empty if none was worth a change.
        """
        if turn.first and turn.second:
            self._classes.popleft()
        if self._are_drawn:
            self._draws.popleft()
        for module in modules:
            turns = self._examples if module.is_example else self._instructions
            turns.remove(module)
            turns.append(module)
