"""The leaders that are left when nobody leads in vain, kept as candidates arrive.

So the authors of GEPA read "dominated" in algorithm 2: not pair by pair, but by what all others
lead in that are left.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from itertools import compress
from operator import eq, gt
from types import MappingProxyType

from promptgraft.search.scores import BELOW_SCORES, UNSCORED, Row, Score, packed

_DIGITS = bytes.maketrans(b"\x00\x01", b"01")


class Cover:
    """Candidates that together lead in every cell, and none of which the others could replace.

    In ascending order of their means, the elder first, candidates are dropped that lead only
    where somebody else leads who is left. So one is left just when, in some cell, it is the last
    of all who lead there and nobody before it is left. Who is nowhere the last will never be:
    only the others are kept, at most one for each cell.
    """

    def __init__(self) -> None:
        self._count = 0
        self._heights: Row = packed(())
        self._lasts: list[tuple[float, int, int]] = []  # mean, position, cells as bits
        self._members: Mapping[int, int] = {}

    def add(self, cells: Sequence[Score], mean: Score) -> None:
        """Take in the next candidate; all have the same cells.

        Args:
            cells: what it has in each cell.
            mean: decides who is dropped first; None when it is nowhere scored.
        """
        row, index = packed(cells), self._count
        if not index:
            self._heights = packed([BELOW_SCORES] * len(row))
        self._count += 1
        risen = bytes(map(gt, row, self._heights))
        for place in compress(range(len(row)), risen):
            self._heights[place] = row[place]
        if led := _bits(bytes(map(eq, row, self._heights))):
            insort(self._lasts, (UNSCORED if mean is None else mean, index, led))
            self._prune(index, _bits(risen))

    def members(self) -> Mapping[int, int]:
        """Return the candidates that a parent is chosen from, in order, with their weights.

        The weight is the number of cells in which a candidate leads. Where nothing is scored,
        the baseline is all there is.
        """
        return MappingProxyType(self._members or {0: 1})

    def _prune(self, newest: int, risen: int) -> None:
        everywhere = (1 << len(self._heights)) - 1
        kept, free, others = [], everywhere, everywhere ^ risen
        for mean, index, led in reversed(self._lasts):
            leads = led if index == newest else led & others
            if last := leads & free:
                free ^= last
                kept.append((last, (mean, index, leads)))
        kept.reverse()
        self._lasts = [leader for _, leader in kept]
        left, free = {}, everywhere
        for last, (_, index, leads) in kept:
            if last & free:
                free &= ~leads
                left[index] = leads.bit_count()
        self._members = dict(sorted(left.items()))


def _bits(flags: bytes) -> int:
    """Return a number with a bit for each cell."""
    return int(flags.translate(_DIGITS) or b"0", 2)
