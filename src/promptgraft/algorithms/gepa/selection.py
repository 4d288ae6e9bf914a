"""All random choices of a run, each kind from its own stream of random numbers."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TypeVar

import attrs

from promptgraft.algorithms.gepa.policies import MOST_AT_ONCE
from promptgraft.targets.types import GepaExample, Module

T = TypeVar("T")

_TOGETHER_SHARE = 0.5
"""Share of the steps that change all blamed instructions together."""
_BLAMED_SHARE = 0.75
"""Share of the steps that heed blame in one way or the other; in the rest modules take turns."""
_NO_BLAME: Mapping[str, int] = MappingProxyType({})
_FAILED_SHARE = 0.7
"""How likely each place of a minibatch but the last goes to an earlier failure."""
_TURNS_IN_A_ROW = 2
"""How often one failure is learned from before others of the same candidate have their turn."""


class Choices:
    """Choices of parents, modules and minibatches, determined by the seed.

    Each kind of choice has its own stream, so that one kind does not disturb the others.

    Attributes:
        parents: the stream for choosing parents.
    """

    def __init__(
        self,
        seed: int,
        modules: Sequence[Module],
        *,
        example_rate: float,
        draws_modules: bool = False,
        whole_share: float = 0.0,
    ) -> None:
        self.parents = random.Random(f"{seed}/parents")
        self._minibatches = random.Random(f"{seed}/minibatches")
        self._classes = _Draws(random.Random(f"{seed}/modules"))
        self._merges = random.Random(f"{seed}/merges")
        self._blame = _Draws(random.Random(f"{seed}/blame"))
        self._whole = _Draws(random.Random(f"{seed}/whole"))
        self._order = random.Random(f"{seed}/order")
        self._races = random.Random(f"{seed}/races")
        self._example_rate = example_rate
        self._draws_modules = draws_modules
        self._whole_share = whole_share
        self._whole_failed = self._whole_rests = 0
        self._epoch: list[str] = []
        self._examples_named: tuple[Sequence[GepaExample], Mapping[str, GepaExample]] = ((), {})
        # Least recently changed first, so that no module starves behind one that is always blamed.
        self._instructions = [module for module in modules if not module.is_example]
        self._examples = [module for module in modules if module.is_example]

    def turn(self, ahead: int = 0) -> Turn:
        """Return the turn of a proposal that begins while ``ahead`` others are under way."""
        # As if each of those under way changed one module, which is not known before they end.
        first, second = (
            (*turns[ahead % len(turns or "-") :], *turns[: ahead % len(turns or "-")])
            for turns in (self._instructions, self._examples)
        )
        if first and second and self._classes.at(ahead) < self._example_rate:
            first, second = second, first
        on_all = self._whole.at(ahead) < self._whole_share and not self._whole_rests
        return Turn(first, second, draw=self._blame.at(ahead), on_all=on_all)

    def took(
        self,
        turn: Turn,
        modules: Sequence[Module],
        *,
        blamed: bool = False,
        on_all: bool | None = None,
    ) -> None:
        """Record a completed turn. Call in step order.

        Args:
            turn: the turn.
            modules: the modules it chose to change; empty if none was worth a change.
            blamed: whether any module was blamed.
            on_all: whether a question about all parts led to a change; None if it was not asked.
        """
        if turn.first and turn.second:
            self._classes.popleft()
        if blamed or self._draws_modules:
            self._blame.popleft()
        self._whole.popleft()
        if on_all is None:
            self._whole_rests = max(0, self._whole_rests - 1)
        else:
            # Back off linearly: a model that cannot answer this question is asked others instead.
            self._whole_failed = 0 if on_all else self._whole_failed + 1
            self._whole_rests = self._whole_failed
        for module in modules:
            turns = self._examples if module.is_example else self._instructions
            turns.remove(module)
            turns.append(module)

    def minibatch(self, examples: Sequence[GepaExample], size: int) -> tuple[GepaExample, ...]:
        """Draw ``size`` distinct examples."""
        return tuple(self._minibatches.sample(examples, size))

    def teaching(
        self, examples: Sequence[GepaExample], size: int, *, failed: Mapping[str, int]
    ) -> tuple[GepaExample, ...]:
        """Draw ``size`` distinct examples: earlier failures, the rest in epochs.

        Args:
            examples: the training set.
            size: how many examples to draw.
            failed: how often each earlier failure was drawn before, by id. The last place is never
                reserved for a failure.
        """
        places = sum(self._minibatches.random() < _FAILED_SHARE for _ in range(size - 1))
        mixed = self._minibatches.sample(list(failed), len(failed))
        again = sorted(mixed, key=lambda one: failed[one] // _TURNS_IN_A_ROW)[:places]
        return self.epochs(examples, size, again=again)

    def epochs(
        self, examples: Sequence[GepaExample], size: int, *, again: Sequence[str] = ()
    ) -> tuple[GepaExample, ...]:
        """Draw ``size`` distinct examples in epochs: none again before all others were drawn.

        Args:
            examples: the training set.
            size: how many examples to draw.
            again: ids of examples to include whether or not it is their turn.
        """
        # Cached, since all steps draw from the same, possibly thousands of, examples.
        if self._examples_named[0] is not examples:
            self._examples_named = examples, {example.id: example for example in examples}
        by_id, chosen = self._examples_named[1], list(again)
        while len(chosen) < size:
            if not self._epoch:
                self._epoch = list(by_id)
                self._minibatches.shuffle(self._epoch)
            # An example that is already in this minibatch is left for the next one.
            place = next(
                (at for at, one in enumerate(reversed(self._epoch), 1) if one not in chosen), 0
            )
            if place:
                chosen.append(self._epoch.pop(-place))
            else:
                self._epoch = []
        return tuple(by_id[one] for one in chosen)

    def order(self, count: int) -> list[int]:
        """Return the positions below ``count`` in random order."""
        return self._order.sample(range(count), count)

    def race_order(self, places: Sequence[int]) -> list[int]:
        """Return the positions of examples in a random order for one race."""
        return self._races.sample(places, len(places))

    def merge_order(self, pairs: Sequence[T]) -> list[T]:
        """Return the pairs in a random order to try them in."""
        return self._merges.sample(pairs, len(pairs))

    def subsample(self, positions: Sequence[int], size: int) -> list[int]:
        """Draw up to ``size`` distinct positions, in ascending order."""
        return sorted(self._merges.sample(positions, min(size, len(positions))))


@attrs.frozen
class Turn:
    """Which modules a proposal may change, fixed when its step begins.

    Attributes:
        first: the modules of the class whose turn it is, least recently changed first.
        second: the modules of the other class.
        draw: a random number, 0 to 1, that decides whether blame counts or which module is drawn.
        on_all: whether one question may be about all instructions.
    """

    first: tuple[Module, ...]
    second: tuple[Module, ...]
    draw: float = attrs.field(kw_only=True)
    on_all: bool = attrs.field(kw_only=True)

    def instructions(self, worth: Callable[[Module], bool]) -> tuple[Module, ...]:
        """Return the instructions that one question may be about, if it is their turn.

        Modules of kinds with their own question, whose replies have another form, are left out.

        Args:
            worth: returns whether a module is worth a mutation.
        """
        own = (one.is_example or one.question is not None or not worth(one) for one in self.first)
        return tuple(
            one for one, is_left_out in zip(self.first, own, strict=True) if not is_left_out
        )

    def modules(
        self, worth: Callable[[Module], bool], blame: Mapping[str, int] = _NO_BLAME
    ) -> tuple[Module, ...]:
        """Return the modules to change; empty if none is worth a mutation.

        The class was decided by ``example_mutation_rate``; within it modules take turns. In half
        of the steps the blamed instructions are changed together, at most the four most blamed; in
        a quarter, one of the most blamed modules is changed.

        Args:
            worth: returns whether a module is worth a mutation.
            blame: how often modules are blamed, by name.
        """
        blamed = [one for one in self.first if one.name in blame and worth(one)]
        if self.draw < _TOGETHER_SHARE and any(not one.is_example for one in blamed):
            return tuple(sorted(blamed, key=lambda one: -blame[one.name])[:MOST_AT_ONCE])
        most = max((blame[one.name] for one in blamed), default=0)
        strict = self.draw < _BLAMED_SHARE
        preferred = [one for one in blamed if strict and blame[one.name] == most]
        order = (*preferred, *self.first, *self.second)
        return tuple(islice(filter(worth, order), 1))

    def all(self, worth: Callable[[Module], bool]) -> tuple[Module, ...]:
        """Return every module that is ``worth`` a mutation, least recently changed first."""
        return tuple(filter(worth, (*self.first, *self.second)))

    def drawn(self, worth: Callable[[Module], bool]) -> tuple[Module, ...]:
        """Return one of these modules, drawn uniformly; empty if there is none."""
        # By name: the order of turns depends on what was changed so far.
        found = sorted(self.all(worth), key=lambda module: module.name)
        return (found[int(self.draw * len(found))],) if found else ()


class _Draws(deque[float]):
    """A queue of random numbers; steps that begin early look ahead in it."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    def at(self, ahead: int) -> float:
        while len(self) <= ahead:
            self.append(self._chance.random())
        return self[ahead]
