"""Combining what two candidates are good at (GEPA, algorithms 3 and 4), as pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from operator import itemgetter

import attrs

from promptgraft.search.scores import Score
from promptgraft.targets.types import Candidate

_MAX_PARTNERS = 20


@attrs.frozen
class Triple:
    """Two candidates and the ancestor that they share.

    Attributes:
        ancestor: position of the ancestor; neither of the two.
        first: position of the elder.
        second: position of the younger.
    """

    ancestor: int
    first: int
    second: int


def ancestors_of(candidates: Sequence[Candidate], position: int) -> frozenset[int]:
    """Return the positions of all ancestors, without the candidate itself."""
    found: set[int] = set()
    waiting = list(candidates[position].parents)
    while waiting:
        ancestor = waiting.pop()
        if ancestor not in found:
            found.add(ancestor)
            waiting.extend(candidates[ancestor].parents)
    return frozenset(found)


def triples(candidates: Sequence[Candidate], frontier: Mapping[int, int]) -> Iterator[Triple]:
    """Yield the pairs of the frontier that may be merged, each with its youngest common ancestor.

    Neither of a pair descends from the other. Of a large frontier, the members with the
    greatest weights take part, the elder first.
    """
    heaviest = sorted(frontier.items(), key=itemgetter(1), reverse=True)[:_MAX_PARTNERS]
    lines = {position: ancestors_of(candidates, position) for position, _ in heaviest}
    for first, second in combinations(sorted(lines), 2):
        common = lines[first] & lines[second]
        if common and first not in lines[second]:
            yield Triple(max(common), first, second)


def disputed(first: Sequence[Score], second: Sequence[Score]) -> list[int]:
    """Return the positions of the examples on which two candidates differ."""
    return [
        position
        for position, (one, other) in enumerate(zip(first, second, strict=True))
        if one != other
    ]
