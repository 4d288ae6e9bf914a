"""Who leads where: the Pareto frontier over cells, kept as candidates arrive.

A *cell* is whatever candidates are compared in: an example, an objective, or both together
(GEPA, algorithm 2, has examples).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

    Where a candidate leads is one bit for each cell, so that thousands of leaders are compared
    in a millisecond.
    """

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._heights: Row = packed(())
        self._leading: dict[int, int] = {}
        self._dominated: dict[int, int] = {}
        self._members: tuple[tuple[int, int], ...] | None = None

    def add(self, cells: Sequence[Score]) -> None:
        """Take in the next candidate; all have the same cells. A row is kept as it is."""
        row = packed(cells)
        if not self._rows:
            self._heights = packed([None] * len(row))
        self._rows.append(row)
        places = list(compress(range(len(row)), map(ge, row, self._heights)))
        self._update(len(self._rows) - 1, places)

    def fill(self, index: int, cells: Sequence[Score], places: Iterable[int]) -> None:
        """Take in the cells of a candidate that had no score at some places so far."""
        self._rows[index] = packed(cells)
        if index in self._dominated:
            self._leading[index] = self._dominated.pop(index)
        self._update(index, places)

    def members(self) -> tuple[tuple[int, int], ...]:
        """Return the candidates that a parent is chosen from, with their weights.

        These are the candidates that lead in at least one cell and that no other one
        dominates; the weight is the number of cells in which they lead. Where nothing is
        scored, the baseline is all there is.
        """
        if self._members is None:
            leading = sorted(self._leading.items())
            self._members = tuple([(index, led.bit_count()) for index, led in leading])
        return self._members or ((0, 1),)

    def _update(self, index: int, places: Iterable[int]) -> None:
        self._members = None
        self._lead(index, places)
        self._update_dominance(index)

    def _lead(self, index: int, places: Iterable[int]) -> None:
        row, heights = self._rows[index], self._heights
        led = raised = 0
        for place in places:
            score = row[place]
            if score == UNSCORED or score < heights[place]:
                continue
            led |= 1 << place
            if score > heights[place]:
                raised |= 1 << place
                heights[place] = score
        if raised:
            self._leading = _without(self._leading, raised)
            self._dominated = _without(self._dominated, raised)
        if led:
            self._leading[index] = self._leading.get(index, 0) | led

    def _update_dominance(self, index: int) -> None:
        # Whoever dominates a leader leads wherever it does, so leaders are all there is to ask.
        led, row = self._leading.get(index), self._rows[index]
        if led is None:
            return
        beaten = []
        for other, led_there in self._leading.items():
            common = led & led_there
            if common != led and common != led_there:
                continue
            if dominates(row, self._rows[other]):
                beaten.append(other)
            elif dominates(self._rows[other], row):
                beaten.append(index)
                break
        for one in beaten:
            self._dominated[one] = self._leading.pop(one)


def _without(leaders: Mapping[int, int], cells: int) -> dict[int, int]:
    """Return who still leads somewhere when nobody of them leads in ``cells`` any more."""
    return {index: left for index, led in leaders.items() if (left := led & ~cells)}


def dominates(first: Sequence[Score], second: Sequence[Score]) -> bool:
    """Tell whether ``first`` is nowhere worse and somewhere better; unscored is the worst."""
    one, other = packed(first), packed(second)
    # Candidates that score alike are common, and found fastest by their bytes.
    if one.tobytes() == other.tobytes():
        return False
    return all(map(ge, one, other)) and any(map(gt, one, other))
