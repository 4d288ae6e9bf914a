"""Samples of combinations in which each pair of values of two factors occurs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence

Pair = tuple[tuple[str, str], tuple[str, str]]
_TRIES = 12


def pairs_in(combination: Mapping[str, str]) -> set[Pair]:
    """Return each pair of a combination: two factors with their values."""
    return set(itertools.combinations(combination.items(), 2))


def pairwise(factors: Mapping[str, Sequence[str]], *, seed: int = 0) -> list[dict[str, str]]:
    """Return combinations in which each pair of values occurs; the same for the same seed."""
    chance = random.Random(seed)
    left = {
        ((one, a), (two, b))
        for one, two in itertools.combinations(factors, 2)
        for a in factors[one]
        for b in factors[two]
    }
    chosen: list[dict[str, str]] = []
    while left:
        # Sorted, because the order of a set differs from process to process.
        start = dict(min(left))
        tries = [_completed(start, factors, left, chance) for _ in range(_TRIES)]
        best = max(tries, key=lambda combination: len(pairs_in(combination) & left))
        chosen.append(best)
        left -= pairs_in(best)
    return chosen


def _completed(
    start: Mapping[str, str],
    factors: Mapping[str, Sequence[str]],
    left: set[Pair],
    chance: random.Random,
) -> dict[str, str]:
    combination = dict(start)
    for name in chance.sample(list(factors), len(factors)):
        if name in combination:
            continue
        values = chance.sample(list(factors[name]), len(factors[name]))
        combination[name] = max(
            values, key=lambda value: _gain({**combination, name: value}, name, factors, left)
        )
    return {name: combination[name] for name in factors}


def _gain(
    combination: Mapping[str, str],
    name: str,
    factors: Mapping[str, Sequence[str]],
    left: set[Pair],
) -> int:
    ordered = {factor: combination[factor] for factor in factors if factor in combination}
    return sum(pair in left for pair in pairs_in(ordered) if name in (pair[0][0], pair[1][0]))
