"""Every random choice of a run, each from a stream of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence, Set
from typing import TypeVar

from promptgraft.optimizers.gepa.frontier import drawn
from promptgraft.optimizers.modules import Module, is_example
from promptgraft.optimizers.types import GepaExample

T = TypeVar("T")

_BLAMED_SHARE = 0.75
_FAILED_SHARE = 0.7


class Choices:
    """Parents, modules and minibatches, as the seed decides.

    A stream for each kind of choice keeps one kind from disturbing the others.
    """

    def __init__(self, seed: int, modules: Sequence[Module], *, example_rate: float) -> None:
        self._parents = random.Random(f"{seed}/parents")
        self._minibatches = random.Random(f"{seed}/minibatches")
        self._classes = random.Random(f"{seed}/modules")
        self._merges = random.Random(f"{seed}/merges")
        self._blame = random.Random(f"{seed}/blame")
        self._order = random.Random(f"{seed}/order")
        self._example_rate = example_rate
        self._epoch: list[str] = []
        self._instructions = _Turns([module for module in modules if not is_example(module)])
        self._examples = _Turns([module for module in modules if is_example(module)])

    def explores(self, share: float) -> bool:
        """Tell whether the parent comes from the frontier; else it is the best candidate."""
        return share >= 1 or self._parents.random() < share

    def parent(self, frontier: Sequence[tuple[int, int]]) -> int:
        """Choose a member of the frontier with a probability proportional to its weight."""
        return drawn(frontier, self._parents.random())

    def module(
        self, worth: Callable[[Module], bool], blamed: Set[str] = frozenset()
    ) -> Module | None:
        """Return the module whose turn it is among those that are ``worth`` a mutation.

        The rate decides between instructions and examples, the turn inside each of them. In
        three of four steps only the ``blamed`` have their turn, if there are any in the class.
        None when no module is worth one.
        """
        first, second = self._instructions, self._examples
        if first and second and self._classes.random() < self._example_rate:
            first, second = second, first
        if blamed and self._blame.random() < _BLAMED_SHARE:
            found = first.take(lambda module: module.name in blamed and worth(module))
            if found is not None:
                return found
        return first.take(worth) or second.take(worth)

    def minibatch(self, examples: Sequence[GepaExample], size: int) -> tuple[GepaExample, ...]:
        """Choose ``size`` different examples."""
        return tuple(self._minibatches.sample(examples, size))

    def teaching(
        self, examples: Sequence[GepaExample], size: int, *, failed: Sequence[str]
    ) -> tuple[GepaExample, ...]:
        """Choose ``size`` different examples: some that failed before, the others in epochs.

        Args:
            examples: what may be chosen.
            size: how many.
            failed: ids of those that failed before; the last place never goes to one of them
                for that.
        """
        by_id = {example.id: example for example in examples}
        places = sum(self._minibatches.random() < _FAILED_SHARE for _ in range(size - 1))
        chosen = self._minibatches.sample(list(failed), min(places, len(failed)))
        while len(chosen) < size:
            if not self._epoch:
                self._epoch = list(by_id)
                self._minibatches.shuffle(self._epoch)
            # One that was chosen already is left for the next minibatch.
            place = next(
                (at for at, one in enumerate(reversed(self._epoch), 1) if one not in chosen), 0
            )
            if place:
                chosen.append(self._epoch.pop(-place))
            else:
                self._epoch = []
        return tuple(by_id[one] for one in chosen)

    def order(self, count: int) -> list[int]:
        """Return the positions of so many examples in random order."""
        return self._order.sample(range(count), count)

    def merge_order(self, pairs: Sequence[T]) -> list[T]:
        """Return the pairs in the order in which they are tried."""
        return self._merges.sample(pairs, len(pairs))

    def subsample(self, positions: Sequence[int], size: int) -> list[int]:
        """Choose up to ``size`` different positions, in their order."""
        return sorted(self._merges.sample(positions, min(size, len(positions))))


class _Turns:
    """Modules that take turns, beginning with the first."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self._modules = tuple(modules)
        self._next = 0

    def __bool__(self) -> bool:
        return bool(self._modules)

    def take(self, worth: Callable[[Module], bool]) -> Module | None:
        for offset in range(len(self._modules)):
            position = (self._next + offset) % len(self._modules)
            if worth(self._modules[position]):
                self._next = position + 1
                return self._modules[position]
        return None


def split_examples(
    examples: Sequence[GepaExample], pareto_size: int, *, shuffle_seed: int | None
) -> tuple[tuple[GepaExample, ...], tuple[GepaExample, ...]]:
    """Return D_pareto (the first ``pareto_size``) and D_feedback (the others)."""
    ordered = list(examples)
    if shuffle_seed is not None:
        random.Random(f"{shuffle_seed}/split").shuffle(ordered)
    return tuple(ordered[:pareto_size]), tuple(ordered[pareto_size:])
