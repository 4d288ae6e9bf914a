"""The Pareto frontier over cells, kept up to date as candidates arrive.

A *cell* is whatever candidates are compared in: an example, an objective, or both together
(GEPA, algorithm 2, has examples). Two readings of "dominated" in algorithm 2 are implemented:
pair by pair (``Frontier``), and by the union of all others that are left (``Cover``), as the
authors' own code does.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate, compress, islice
from operator import eq, ge, gt, ne, or_
from types import MappingProxyType
from typing import Literal

from promptgraft.frozenmap import FrozenMap
from promptgraft.search.scores import (
    BELOW_SCORES,
    UNSCORED,
    Objectives,
    Row,
    Score,
    mean_score,
    packed,
)

FrontierType = Literal["instance", "objective", "hybrid", "cartesian"]
"""What the cells are.

``instance``: the examples of the validation set. ``objective``: the objectives, by their means over
the examples. ``hybrid``: both. ``cartesian``: each objective on each example.
"""

FrontierPruning = Literal["dominated", "redundant"]
"""Which leaders are dropped before a parent is chosen.

``dominated``: those that another candidate dominates on all examples. ``redundant``: in ascending
order of their means, those that lead only where another candidate leads that is left, so that few
are left where many lead together.
"""

EXAMPLE_CELLS: frozenset[FrontierType] = frozenset({"instance", "cartesian"})
"""Kinds whose cells are examples: none of them changes when a candidate is tried on more."""


def cells_of(
    kind: FrontierType,
    scores: Sequence[Score],
    objectives: Sequence[Objectives],
    names: Sequence[str],
) -> Sequence[Score]:
    """Return what a candidate has in each cell.

    Args:
        kind: what the cells are.
        scores: its scores, by example.
        objectives: what it has in each objective, by example.
        names: the objectives.
    """
    match kind:
        case "instance":
            return scores
        case "objective":
            return tuple(map(means_of(objectives, names).get, names))
        case "hybrid":
            return (*scores, *map(means_of(objectives, names).get, names))
    return tuple(
        None if found is None else found.get(name) for found in objectives for name in names
    )


def means_of(objectives: Sequence[Objectives], names: Sequence[str]) -> Mapping[str, float]:
    """Return the mean of each objective over the examples that are scored."""
    scored = [found for found in objectives if found is not None] if names else []
    means = ((name, mean_score([found.get(name) for found in scored])) for name in names)
    return FrozenMap((name, mean) for name, mean in means if mean is not None)


_LATEST = 16
"""Candidates whose bits are kept apart."""


class Frontier:
    """The candidates that lead in a cell, kept up to date as candidates arrive.

    Who leads in a cell is one bit for each candidate, so that thousands of candidates are
    compared in thousands of cells within a millisecond. Numbers of thousands of bits are slow
    to change: the latest candidates have numbers of their own.
    """

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._heights: list[float] = []
        self._leaders: list[int] = []
        self._latest: list[int] = []
        self._settled = 0
        self._leading = 0
        self._wins: dict[int, int] = {}
        self._open: dict[int, int] = {}

    def add(self, cells: Sequence[Score]) -> None:
        """Take in the next candidate; all have the same cells. ``Scores`` are shared."""
        row = packed(cells)
        if not self._rows:
            self._heights = [BELOW_SCORES] * len(row)
            self._leaders = [0] * len(row)
            self._latest = [0] * len(row)
        if len(self._rows) == self._settled + _LATEST:
            self._settle()
        self._rows.append(row)
        self._update(len(self._rows) - 1)

    def fill(self, index: int, cells: Sequence[Score]) -> None:
        """Take in the cells of a candidate that had no score in some of them so far."""
        self._rows[index] = packed(cells)
        late = index not in self._open
        self._update(index)
        if late and index in self._open:
            self._open = dict(sorted(self._open.items()))

    def members(self) -> Mapping[int, int]:
        """Return the candidates that a parent is chosen from, in order, with their weights.

        These are the candidates that lead in at least one cell and that no other one
        dominates; the weight is the number of cells in which they lead. Where nothing is
        scored, the baseline is all there is.
        """
        return MappingProxyType(self._open or {0: 1})

    def _settle(self) -> None:
        settled = self._settled
        for place in _where(gt, self._latest, [0] * len(self._latest)):
            self._leaders[place] |= self._latest[place] << settled
            self._latest[place] = 0
        self._settled = len(self._rows)

    def _update(self, index: int) -> None:
        if index < self._settled:
            group, bit = self._leaders, 1 << index
        else:
            group, bit = self._latest, 1 << index - self._settled
        # A list, because an array makes its numbers anew each time that they are looked at.
        row, heights = self._rows[index].tolist(), self._heights
        for place in _where(gt, row, heights):
            heights[place] = row[place]
            for leader in _bits(self._leaders[place] | self._latest[place] << self._settled):
                self._lose(leader)
            self._leaders[place] = self._latest[place] = 0
        led = _where(eq, row, heights)
        for place in led:
            group[place] |= bit
        if led:
            self._leading |= 1 << index
            self._wins[index] = self._open[index] = len(led)
            self._update_dominance(index, row, led)

    def _lose(self, leader: int) -> None:
        self._wins[leader] -= 1
        left = self._wins[leader]
        if leader in self._open:
            self._open[leader] = left
        if not left:
            self._leading ^= 1 << leader
            del self._wins[leader]
            self._open.pop(leader, None)

    def _update_dominance(self, index: int, cells: Sequence[float], led: Sequence[int]) -> None:
        row, latest = self._rows[index], range(self._settled, len(self._rows))
        for other in (*_bits(self._included(cells, led)), *latest):
            if other in self._open and dominates(row, self._rows[other]):
                del self._open[other]
        if any(
            dominates(self._rows[other], row) for other in (*_bits(self._including(led)), *latest)
        ):
            del self._open[index]

    # A candidate that dominates a leader leads wherever it does, so of the settled ones only
    # leaders are compared.

    def _included(self, cells: Sequence[float], led: Sequence[int]) -> int:
        """Return who of those who are settled leads in cells of ``led`` only."""
        found = self._leading & (1 << self._settled) - 1
        if len(led) < len(cells) // 2:
            found = reduce(or_, [self._leaders[place] for place in led])
            if found.bit_count() * len(led) < len(cells):
                return self._only_in(led, found)
        for place in compress(range(len(cells)), map(ne, cells, self._heights)):
            found &= ~self._leaders[place]
            if not found:
                break
        return found

    def _only_in(self, led: Sequence[int], some: int) -> int:
        """Return who of some leads in cells of ``led`` only; quick when both are few."""
        found = 0
        for other in _bits(some):
            bit = 1 << other
            if sum(self._leaders[place] & bit != 0 for place in led) == self._wins[other]:
                found |= bit
        return found

    def _including(self, led: Sequence[int]) -> int:
        """Return who of those who are settled leads in all cells of ``led``."""
        found = (1 << self._settled) - 1
        for place in led:
            found &= self._leaders[place]
            if not found:
                break
        return found


def _where(
    holds: Callable[[float, float], bool], one: Sequence[float], other: Sequence[float]
) -> list[int]:
    return list(compress(range(len(one)), map(holds, one, other)))


_STRETCH = 128
"""Members whose weights are added up at once."""


def drawn(members: Mapping[int, int], share: float) -> int:
    """Return the member at a share, from 0 up to 1, of the weight of all."""
    weights = list(members.values())
    # A large frontier has thousands of members, so whole stretches of them are looked at first.
    starts = range(0, len(weights), _STRETCH)
    ends = list(accumulate(sum(weights[start : start + _STRETCH]) for start in starts))
    aim = share * ends[-1]
    stretch = bisect_right(ends, aim)
    start, before = starts[stretch], ends[stretch - 1] if stretch else 0
    bounds = list(accumulate(weights[start : start + _STRETCH]))
    return next(islice(members, start + bisect_right(bounds, aim - before), None))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def dominates(first: Sequence[Score], second: Sequence[Score]) -> bool:
    """Tell whether ``first`` is nowhere worse and somewhere better; unscored is the worst."""
    one, other = packed(first), packed(second)
    # Candidates that score alike are common, and found fastest by their bytes.
    if one.tobytes() == other.tobytes():
        return False
    return all(map(ge, one, other)) and any(map(gt, one, other))


_DIGITS = bytes.maketrans(b"\x00\x01", b"01")


class Cover:
    """Candidates that together lead in every cell, and none of which the others could replace.

    In ascending order of their means, the elder first, candidates are dropped that lead only
    where another remaining candidate leads. So a candidate remains exactly when, in some cell, it
    is the last of all leaders and none before it remains. A candidate that is the last nowhere
    can never become it, so only the others are kept: at most one for each cell.
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
        led = bytes(map(eq, row, self._heights))
        # The cells where it leads, and those where nobody else does any more, as bits.
        leading, new = (int(flags.translate(_DIGITS) or b"0", 2) for flags in (led, risen))
        if not leading:
            return
        insort(self._lasts, (UNSCORED if mean is None else mean, index, leading))
        everywhere = (1 << len(self._heights)) - 1
        kept, free, others = [], everywhere, everywhere ^ new
        for worth, member, led_in in reversed(self._lasts):
            leads = led_in if member == index else led_in & others
            if last := leads & free:
                free ^= last
                kept.append((last, (worth, member, leads)))
        kept.reverse()
        self._lasts = [leader for _, leader in kept]
        left, free = {}, everywhere
        for last, (_, member, leads) in kept:
            if last & free:
                free &= ~leads
                left[member] = leads.bit_count()
        self._members = dict(sorted(left.items()))

    def members(self) -> Mapping[int, int]:
        """Return the candidates that a parent is chosen from, in order, with their weights.

        The weight is the number of cells in which a candidate leads. Where nothing is scored,
        the baseline is all there is.
        """
        return MappingProxyType(self._members or {0: 1})
