"""The Pareto frontier over cells, updated as candidates arrive.

A *cell* is a unit in which candidates are compared: an example, an objective, or an objective on
an example (GEPA, algorithm 2, uses examples). Two readings of "dominated" in algorithm 2 are
implemented: by another candidate (``Frontier``), and by the union of the remaining ones
(``Cover``), as in the authors' own code.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate, compress, count, islice
from operator import eq, ge, gt, ne, or_
from types import MappingProxyType
from typing import Literal

from promptgraft.ground.frozenmap import FrozenMap
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

``instance``: the examples of the validation set. ``objective``: the means of the objectives over
the examples. ``hybrid``: both. ``cartesian``: each objective on each example.
"""

FrontierPruning = Literal["dominated", "redundant"]
"""Which leaders are dropped before a parent is chosen.

``dominated``: those that another candidate dominates on all examples. ``redundant``: in ascending
order of their means, those that lead only where another remaining candidate leads, so that few
remain where many lead together.
"""

EXAMPLE_CELLS: frozenset[FrontierType] = frozenset({"instance", "cartesian"})
"""Kinds whose cells are examples: evaluating a candidate on more of them changes no other cell."""


def cells_of(
    kind: FrontierType,
    scores: Sequence[Score],
    objectives: Sequence[Objectives],
    names: Sequence[str],
) -> Sequence[Score]:
    """Return a candidate's value in each cell.

    Args:
        kind: what the cells are.
        scores: its scores, by example.
        objectives: its value of each objective, by example.
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
        None if scores is None else scores.get(name) for scores in objectives for name in names
    )


def means_of(objectives: Sequence[Objectives], names: Sequence[str]) -> Mapping[str, float]:
    """Return the mean of each objective over the scored examples."""
    scored = [row for row in objectives if row is not None] if names else []
    means = ((name, mean_score([scores.get(name) for scores in scored])) for name in names)
    return FrozenMap((name, mean) for name, mean in means if mean is not None)


_BLOCK = 1024
"""Candidates whose bits share an integer: marking one copies the whole integer."""


class _Block:
    """The leaders of each cell among successive candidates, a bit for each in an integer."""

    def __init__(self, cells: int) -> None:
        self.leaders = [0] * cells
        self.leading = 0

    def rivals(
        self, row: Sequence[float], heights: Sequence[float], led: Sequence[int]
    ) -> tuple[Iterator[int], Iterator[int]]:
        """Return the leaders that a candidate may dominate, and those that may dominate it.

        Args:
            row: its value in each cell.
            heights: the highest value in each cell.
            led: the cells where these are equal.
        """
        # A candidate that dominates a leader leads in all cells that the leader leads.
        leaders = self.leaders
        within = including = self.leading
        if 2 * len(led) < len(row):
            within = reduce(or_, [leaders[cell] for cell in led])
        for cell in compress(range(len(row)), map(ne, row, heights)):
            if not within:
                break
            within &= ~leaders[cell]
        for cell in led:
            if not including:
                break
            including &= leaders[cell]
        return _bits(within), _bits(including)


class Frontier:
    """The candidates that lead in a cell, updated as candidates arrive.

    The leaders of a cell are bits in integers, so that thousands of candidates are compared in
    thousands of cells within milliseconds.
    """

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._heights: list[float] = []
        self._blocks: list[_Block] = []
        self._wins: dict[int, int] = {}
        self._open: dict[int, int] = {}

    def add(self, cells: Sequence[Score]) -> None:
        """Add the next candidate; all have the same cells. ``Scores`` are shared, not copied."""
        row = packed(cells)
        if not self._rows:
            self._heights = [BELOW_SCORES] * len(row)
        if len(self._rows) % _BLOCK == 0:
            self._blocks.append(_Block(len(row)))
        self._rows.append(row)
        self._update(len(self._rows) - 1)

    def fill(self, index: int, cells: Sequence[Score]) -> None:
        """Update the cells of a candidate that had no score in some of them."""
        self._rows[index] = packed(cells)
        late = index not in self._open
        self._update(index)
        if late and index in self._open:
            # Draws of a parent depend on the order, which is that of arrival.
            self._open = dict(sorted(self._open.items()))

    def members(self) -> Mapping[int, int]:
        """Return the candidates that a parent is chosen from, in order, with their weights.

        They lead in at least one cell and no other candidate dominates them; the weight is the
        number of cells in which they lead. If nothing is scored, only the baseline is returned.
        """
        return MappingProxyType(self._open or {0: 1})

    def _update(self, index: int) -> None:
        # A list, because an array creates a new float at each access.
        row, heights = self._rows[index].tolist(), self._heights
        # The former leaders of cells where the candidate is higher no longer lead there.
        for cell in _where(gt, row, heights):
            heights[cell] = row[cell]
            for number, block in enumerate(self._blocks):
                for leader in _bits(block.leaders[cell]):
                    self._lose(number * _BLOCK + leader)
                block.leaders[cell] = 0
        led = _where(eq, row, heights)
        if led:
            self._wins[index] = self._open[index] = len(led)
            self._update_dominance(index, row, led)
            number, place = divmod(index, _BLOCK)
            block, bit = self._blocks[number], 1 << place
            block.leading |= bit
            for cell in led:
                block.leaders[cell] |= bit

    def _lose(self, leader: int) -> None:
        self._wins[leader] -= 1
        if leader in self._open:
            self._open[leader] = self._wins[leader]
        if not self._wins[leader]:
            number, place = divmod(leader, _BLOCK)
            self._blocks[number].leading ^= 1 << place
            self._open.pop(leader, None)

    def _update_dominance(self, index: int, cells: Sequence[float], led: Sequence[int]) -> None:
        row, rows = self._rows[index], self._rows
        for start, block in zip(count(step=_BLOCK), self._blocks, strict=False):
            below, above = block.rivals(cells, self._heights, led)
            for rival in below:
                if start + rival in self._open and dominates(row, rows[start + rival]):
                    del self._open[start + rival]
            if any(dominates(rows[start + rival], row) for rival in above):
                self._open.pop(index, None)


def _where(
    holds: Callable[[float, float], bool], one: Sequence[float], other: Sequence[float]
) -> list[int]:
    return list(compress(range(len(one)), map(holds, one, other)))


_STRETCH = 128
"""Members whose weights are summed in one go."""


def drawn(members: Mapping[int, int], share: float) -> int:
    """Return the member at a share of the total weight, at least 0 and below 1."""
    weights = list(members.values())
    # A large frontier has thousands of members, so the right stretch is found first.
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
    """Return whether ``first`` is nowhere worse and somewhere better; unscored is the worst."""
    packed_first, packed_second = packed(first), packed(second)
    # Equal scores are common, and detected fastest by comparing bytes.
    if packed_first.tobytes() == packed_second.tobytes():
        return False
    return all(map(ge, packed_first, packed_second)) and any(map(gt, packed_first, packed_second))


_DIGITS = bytes.maketrans(b"\x00\x01", b"01")


class Cover:
    """A minimal set of candidates that together lead in every cell.

    In ascending order of their means, older ones first, candidates are dropped that lead only
    where another remaining candidate leads. So a candidate remains exactly if, in some cell, it is
    the last of all leaders and no leader before it remains. A candidate that is the last leader
    nowhere can never become one, so only the others are kept: at most one for each cell.
    """

    def __init__(self) -> None:
        self._count = 0
        self._heights: Row = packed(())
        self._lasts: list[tuple[float, int, int]] = []  # mean, position, cells as bits
        self._members: Mapping[int, int] = {}

    def add(self, cells: Sequence[Score], mean: Score) -> None:
        """Add the next candidate; all have the same cells.

        Args:
            cells: its value in each cell.
            mean: decides which candidates are dropped first; None if it is not scored at all.
        """
        row, index = packed(cells), self._count
        if not index:
            self._heights = packed([BELOW_SCORES] * len(row))
        self._count += 1
        risen = bytes(map(gt, row, self._heights))
        for place in compress(range(len(row)), risen):
            self._heights[place] = row[place]
        led = bytes(map(eq, row, self._heights))
        # Two bit masks: the cells where it leads, and those where it is now the only leader.
        leading, new = (int(flags.translate(_DIGITS) or b"0", 2) for flags in (led, risen))
        if not leading:
            return
        insort(self._lasts, (UNSCORED if mean is None else mean, index, leading))
        everywhere = (1 << len(self._heights)) - 1
        # From the last to the first: each is the last leader of the cells that no later one has.
        stays, free, elsewhere = [], everywhere, everywhere ^ new
        for worth, member, led_in in reversed(self._lasts):
            leads = led_in if member == index else led_in & elsewhere
            if last := leads & free:
                free ^= last
                stays.append((last, (worth, member, leads)))
        stays.reverse()
        self._lasts = [leader for _, leader in stays]
        # Forwards: who is the last leader of a cell that nobody remaining before it covers, stays.
        unmatched, free = {}, everywhere
        for last, (_, member, leads) in stays:
            if last & free:
                free &= ~leads
                unmatched[member] = leads.bit_count()
        self._members = dict(sorted(unmatched.items()))

    def members(self) -> Mapping[int, int]:
        """Return the candidates that a parent is chosen from, in order, with their weights.

        The weight is the number of cells in which a candidate leads. If nothing is scored, only
        the baseline is returned.
        """
        return MappingProxyType(self._members or {0: 1})
