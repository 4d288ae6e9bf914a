"""Who leads where: the Pareto frontier over cells, kept as candidates arrive.

A *cell* is whatever candidates are compared in: an example, an objective, or both together
(GEPA, algorithm 2, has examples).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import compress
from operator import ge, gt

from promptgraft.optimizers.gepa.scores import UNSCORED, Row, Score, mean_score, packed


class FrontierType(StrEnum):
    """What the cells are.

    ``INSTANCE``: the examples of D_pareto. ``OBJECTIVE``: the objectives, by their means over
    the examples. ``HYBRID``: both. ``CARTESIAN``: each objective on each example.
    """

    INSTANCE = "instance"
    OBJECTIVE = "objective"
    HYBRID = "hybrid"
    CARTESIAN = "cartesian"


Objectives = Mapping[str, float] | None
"""What one rollout has in each objective, the more the better; None when it is unscored."""


def cells_of(
    kind: FrontierType,
    scores: Sequence[Score],
    objectives: Sequence[Objectives],
    names: Sequence[str],
) -> tuple[Score, ...]:
    """Return what a candidate has in each cell.

    Args:
        kind: what the cells are.
        scores: its scores, by example.
        objectives: what it has in each objective, by example.
        names: the objectives.
    """
    match kind:
        case FrontierType.INSTANCE:
            return tuple(scores)
        case FrontierType.OBJECTIVE:
            return means_of(objectives, names)
        case FrontierType.HYBRID:
            return (*scores, *means_of(objectives, names))
    return tuple(
        None if found is None else found.get(name) for found in objectives for name in names
    )


def means_of(objectives: Sequence[Objectives], names: Sequence[str]) -> tuple[Score, ...]:
    """Return the mean of each objective over the examples that are scored."""
    scored = [found for found in objectives if found is not None]
    return tuple(mean_score([found.get(name) for found in scored]) for name in names)


class Frontier:
    """The candidates that lead in a cell, kept up to date as candidates arrive.

    Who leads in a cell is one bit for each candidate, so that thousands of candidates are
    compared in thousands of cells within a millisecond.
    """

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._heights: Row = packed(())
        self._leaders: list[int] = []
        self._wins: dict[int, int] = {}
        self._open: dict[int, tuple[int, int]] = {}
        self._members: tuple[tuple[int, int], ...] | None = None

    def add(self, cells: Sequence[Score]) -> None:
        """Take in the next candidate; all have the same cells. A row is kept as it is."""
        row = packed(cells)
        if not self._rows:
            self._heights = packed([None] * len(row))
            self._leaders = [0] * len(row)
        self._rows.append(row)
        places = compress(range(len(row)), map(ge, row, self._heights[:]))
        self._update(len(self._rows) - 1, places)

    def fill(self, index: int, cells: Sequence[Score], places: Iterable[int]) -> None:
        """Take in the cells of a candidate that had no score at some places so far."""
        self._rows[index] = packed(cells)
        self._update(index, places)

    def members(self) -> tuple[tuple[int, int], ...]:
        """Return the candidates that a parent is chosen from, with their weights.

        These are the candidates that lead in at least one cell and that no other one
        dominates; the weight is the number of cells in which they lead. Where nothing is
        scored, the baseline is all there is.
        """
        if self._members is None:
            self._members = tuple(sorted(self._open.values()))
        return self._members or ((0, 1),)

    def _update(self, index: int, places: Iterable[int]) -> None:
        self._members = None
        self._lead(index, places)
        if index in self._wins:
            self._open[index] = (index, self._wins[index])
            self._update_dominance(index)

    def _lead(self, index: int, places: Iterable[int]) -> None:
        row, heights, leaders, bit = self._rows[index], self._heights, self._leaders, 1 << index
        won = 0
        for place in places:
            score = row[place]
            if score == UNSCORED or score < heights[place]:
                continue
            if score > heights[place]:
                heights[place] = score
                for leader in _bits(leaders[place]):
                    self._lose(leader)
                leaders[place] = 0
            leaders[place] |= bit
            won += 1
        if won:
            self._wins[index] = self._wins.get(index, 0) + won

    def _lose(self, leader: int) -> None:
        left = self._wins.pop(leader) - 1
        if left:
            self._wins[leader] = left
        if leader in self._open:
            del self._open[leader]
            if left:
                self._open[leader] = (leader, left)

    def _update_dominance(self, index: int) -> None:
        # Whoever dominates a leader leads wherever it does, so leaders are all there is to ask.
        everywhere, somewhere, elsewhere, bit = -1, 0, 0, 1 << index
        for leaders in self._leaders:
            if leaders & bit:
                everywhere &= leaders
                somewhere |= leaders
            else:
                elsewhere |= leaders
        row = self._rows[index]
        for other in _bits(somewhere & ~elsewhere & ~bit):
            if other in self._open and dominates(row, self._rows[other]):
                del self._open[other]
        for other in _bits(everywhere & ~bit):
            if other in self._open and dominates(self._rows[other], row):
                del self._open[index]
                return


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
