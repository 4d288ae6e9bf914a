"""Every random choice of a run, each from a stream of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeVar

from promptgraft.optimizers.modules import Module, is_example
from promptgraft.optimizers.types import GepaExample

T = TypeVar("T")


class Choices:
    """Parents, modules and minibatches, as the seed decides.

    A stream for each kind of choice keeps one kind from disturbing the others.
    """

    def __init__(self, seed: int, modules: Sequence[Module], *, example_rate: float) -> None:
        self._parents = random.Random(f"{seed}/parents")
        self._minibatches = random.Random(f"{seed}/minibatches")
        self._classes = random.Random(f"{seed}/modules")
        self._merges = random.Random(f"{seed}/merges")
        self._example_rate = example_rate
        self._instructions = _Turns([module for module in modules if not is_example(module)])
        self._examples = _Turns([module for module in modules if is_example(module)])

    def parent(self, frontier: Sequence[tuple[int, int]]) -> int:
        """Choose a member of the frontier with a probability proportional to its weight."""
        bounds = list(accumulate(weight for _, weight in frontier))
        point = self._parents.random() * bounds[-1]
        position = next(i for i, bound in enumerate(bounds) if point < bound)
        return frontier[position][0]

    def module(self, worth: Callable[[Module], bool]) -> Module | None:
        """Return the module whose turn it is among those that are ``worth`` a mutation.

        The rate decides between instructions and examples, the turn inside each of them.
        None when no module is worth one.
        """
        first, second = self._instructions, self._examples
        if first and second and self._classes.random() < self._example_rate:
            first, second = second, first
        return first.take(worth) or second.take(worth)

    def minibatch(self, examples: Sequence[GepaExample], size: int) -> tuple[GepaExample, ...]:
        """Choose ``size`` different examples."""
        return tuple(self._minibatches.sample(examples, size))

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
