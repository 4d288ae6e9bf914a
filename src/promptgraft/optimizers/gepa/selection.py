"""Every random choice of a run, each from a stream of its own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate

from promptgraft.optimizers.types import GepaExample, Module


class Choices:
    """Parents, modules and minibatches, as the seed decides.

    A stream for each kind of choice keeps one kind from disturbing the others.
    """

    def __init__(self, seed: int, modules: Sequence[Module]) -> None:
        self._parents = random.Random(f"{seed}/parents")
        self._minibatches = random.Random(f"{seed}/minibatches")
        self._modules = tuple(modules)
        self._turns = 0

    def parent(self, frontier: Sequence[tuple[int, int]]) -> int:
        """Choose a member of the frontier with a probability proportional to its weight."""
        bounds = list(accumulate(weight for _, weight in frontier))
        point = self._parents.random() * bounds[-1]
        position = next(i for i, bound in enumerate(bounds) if point < bound)
        return frontier[position][0]

    def module(self) -> Module:
        """Return the module whose turn it is."""
        module = self._modules[self._turns % len(self._modules)]
        self._turns += 1
        return module

    def minibatch(self, examples: Sequence[GepaExample], size: int) -> tuple[GepaExample, ...]:
        """Choose ``size`` different examples."""
        return tuple(self._minibatches.sample(examples, size))


def split_examples(
    examples: Sequence[GepaExample], pareto_size: int, *, shuffle_seed: int | None
) -> tuple[tuple[GepaExample, ...], tuple[GepaExample, ...]]:
    """Return D_pareto (the first ``pareto_size``) and D_feedback (the others)."""
    ordered = list(examples)
    if shuffle_seed is not None:
        random.Random(f"{shuffle_seed}/split").shuffle(ordered)
    return tuple(ordered[:pareto_size]), tuple(ordered[pareto_size:])
