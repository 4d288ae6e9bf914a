"""Which of the expected things was found: the best assignment, never the first that fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

Fits = Callable[[T, T], bool]


def pair(expected: Sequence[T], found: Sequence[T], fits: Fits[T]) -> Mapping[int, int]:
    """Return a largest possible assignment: for an index of ``expected`` the one of ``found``."""
    edges = [[j for j, b in enumerate(found) if fits(a, b)] for a in expected]
    partner: dict[int, int] = {}
    for start in range(len(edges)):
        _give_partner(edges, partner, start)
    return dict(sorted(partner.items()))


def _give_partner(edges: Sequence[Sequence[int]], partner: dict[int, int], start: int) -> None:
    """Give ``start`` a partner, if need be by giving others another one (breadth first)."""
    owner = {b: a for a, b in partner.items()}
    reached: dict[int, int] = {}
    waiting = [start]
    for a in waiting:
        for b in edges[a]:
            if b in reached:
                continue
            reached[b] = a
            if b not in owner:
                _pass_on(partner, reached, b)
                return
            waiting.append(owner[b])


def _pass_on(partner: dict[int, int], reached: Mapping[int, int], free: int) -> None:
    b: int | None = free
    while b is not None:
        a = reached[b]
        given_up = partner.get(a)
        partner[a] = b
        b = given_up


def chain(expected: Sequence[T], found: Sequence[T], fits: Fits[T]) -> Mapping[int, int]:
    """Return a longest assignment that keeps the order of both sides."""
    rows, columns = len(expected), len(found)
    fit = [[fits(a, b) for b in found] for a in expected]
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for a in reversed(range(rows)):
        for b in reversed(range(columns)):
            skip = max(best[a + 1][b], best[a][b + 1])
            best[a][b] = max(skip, 1 + best[a + 1][b + 1]) if fit[a][b] else skip
    pairs: dict[int, int] = {}
    a = b = 0
    while a < rows and b < columns:
        if fit[a][b] and best[a][b] == 1 + best[a + 1][b + 1]:
            pairs[a] = b
            a, b = a + 1, b + 1
        elif best[a + 1][b] >= best[a][b + 1]:
            a += 1
        else:
            b += 1
    return pairs
