"""Who leads where: the Pareto frontier over cells, kept as candidates arrive.

A *cell* is whatever candidates are compared in: an example, an objective, or both together
(GEPA, algorithm 2, has examples).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from promptgraft.optimizers.gepa.scores import Score, higher, mean_score


class FrontierType(StrEnum):
    """What the cells are.

    ``INSTANCE``: the examples of D_pareto. ``OBJECTIVE``: the objectives, by their means over
    the examples. ``HYBRID``: both. ``CARTESIAN``: each objective on each example.
    """

    INSTANCE = "instance"
    OBJECTIVE = "objective"
    HYBRID = "hybrid"
    CARTESIAN = "cartesian"


EXAMPLE_CELLS = frozenset({FrontierType.INSTANCE, FrontierType.CARTESIAN})
"""Kinds whose cells are examples: none of them changes when a candidate is tried on more."""

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
    """The candidates that lead in a cell, kept up to date at a cost that does not grow.

    Choosing a parent costs no more at the end of a run than at its beginning.
    """

    def __init__(self) -> None:
        self._cells: list[tuple[Score, ...]] = []
        self._leaders: list[set[int]] = []
        self._heights: list[Score] = []
        self._wins: dict[int, int] = {}
        self._dominated: set[int] = set()

    def add(self, cells: Sequence[Score]) -> None:
        """Take in the next candidate; all have the same cells."""
        if not self._cells:
            self._leaders = [set() for _ in cells]
            self._heights = [None] * len(cells)
        self._cells.append(tuple(cells))
        self._update_leaders(len(self._cells) - 1)
        self._update_dominance(len(self._cells) - 1)

    def fill(self, index: int, cells: Mapping[int, Score]) -> None:
        """Take in cells of a candidate that had no score there so far."""
        row = list(self._cells[index])
        for cell, score in cells.items():
            row[cell] = score
        self._cells[index] = tuple(row)
        for cell in cells:
            self._lead(index, cell)
        self._dominated.discard(index)
        self._update_dominance(index)

    def members(self) -> tuple[tuple[int, int], ...]:
        """Return the candidates that a parent is chosen from, with their weights.

        These are the candidates that lead in at least one cell and that no other one
        dominates; the weight is the number of cells in which they lead. Where nothing is
        scored, the baseline is all there is.
        """
        members = tuple(
            (index, wins)
            for index, wins in sorted(self._wins.items())
            if index not in self._dominated
        )
        return members or ((0, 1),)

    def _update_leaders(self, index: int) -> None:
        for cell in range(len(self._cells[index])):
            self._lead(index, cell)

    def _lead(self, index: int, cell: int) -> None:
        score = self._cells[index][cell]
        if score is None:
            return
        height = self._heights[cell]
        if height is None or score > height:
            for leader in self._leaders[cell]:
                self._lose(leader)
            self._leaders[cell] = set()
            self._heights[cell] = score
        if score == self._heights[cell]:
            self._leaders[cell].add(index)
            self._wins[index] = self._wins.get(index, 0) + 1

    def _lose(self, leader: int) -> None:
        self._wins[leader] -= 1
        if not self._wins[leader]:
            del self._wins[leader]
            self._dominated.discard(leader)

    def _update_dominance(self, index: int) -> None:
        # Whoever dominates a leader leads wherever it does, so leaders are all there is to ask.
        if index not in self._wins:
            return
        cells = self._cells[index]
        for other in self._wins:
            if other == index or other in self._dominated:
                continue
            if dominates(cells, self._cells[other]):
                self._dominated.add(other)
            elif dominates(self._cells[other], cells):
                self._dominated.add(index)
                return


def dominates(first: Sequence[Score], second: Sequence[Score]) -> bool:
    """Tell whether ``first`` is nowhere worse and somewhere better; unscored is the worst."""
    better = False
    for one, other in zip(first, second, strict=True):
        if higher(other, one):
            return False
        better = better or higher(one, other)
    return better
