"""The family tree of candidates, as the geometry of a drawing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from promptgraft.runs.report.data import ReportData, shown_mean
from promptgraft.search.events import CandidateAdded

MOST_NODES = 120
_COLUMN, _ROW = 132, 30
_MARGIN = 22
_LABEL = 96
_BEND = 46


@attrs.frozen(kw_only=True)
class Node:
    """One candidate in the drawing.

    Attributes:
        number: its position in the pool.
        mean: its mean on D_pareto, as the page shows it.
        x: where it is.
        y: where it is.
        is_winner: whether the run ends with it.
        is_on_line: whether the winner descends from it, or is it.
        is_leading: whether it is on the frontier.
        is_merge: whether it has two parents.
    """

    number: int
    mean: str
    x: int
    y: int
    is_winner: bool
    is_on_line: bool
    is_leading: bool
    is_merge: bool


@attrs.frozen
class Edge:
    """A line from a parent to a child.

    Attributes:
        path: the data of an SVG path.
        is_on_line: whether it leads to the winner.
        is_second: whether it comes from the second parent of a merge.
    """

    path: str
    is_on_line: bool
    is_second: bool


@attrs.frozen(kw_only=True)
class Tree:
    """A drawing of candidates, each right of its parents.

    Attributes:
        width: of the drawing.
        height: of the drawing.
        nodes: the candidates.
        edges: their origins; those on the winner's line last, so that they lie on top.
        left_out: how many candidates are not drawn.
    """

    width: int
    height: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    left_out: int


def family_tree(data: ReportData) -> Tree | None:
    """Return the drawing; of a large pool the winner's line and what led to the frontier."""
    if not data.candidates:
        return None
    shown = _shown(data)
    line = set(data.line_of(data.winner))
    places = _places(data.candidates, shown)
    nodes = tuple(_node(data, number, places[number], line) for number in shown)
    edges = sorted(_edges(data.candidates, places, line), key=lambda edge: edge.is_on_line)
    return Tree(
        width=max(node.x for node in nodes) + _MARGIN + _LABEL,
        height=max(node.y for node in nodes) + _MARGIN,
        nodes=nodes,
        edges=tuple(edges),
        left_out=len(data.candidates) - len(nodes),
    )


def _shown(data: ReportData) -> tuple[int, ...]:
    """Return what is drawn: all, or lines of ancestors until there are enough."""
    if len(data.candidates) <= MOST_NODES:
        return tuple(one.candidate for one in data.candidates)
    found = set(data.line_of(data.winner))
    by_mean = sorted(
        data.frontier, key=lambda number: (-(data.candidates[number].mean or 0.0), number)
    )
    for number in by_mean:
        more = found | _ancestry(data.candidates, number)
        if len(more) <= MOST_NODES or len(found) == 1:
            found = more
    return tuple(sorted(found))


def _ancestry(candidates: Sequence[CandidateAdded], number: int) -> set[int]:
    found, waiting = {number}, [number]
    while waiting:
        for parent in candidates[waiting.pop()].parents:
            if parent not in found:
                found.add(parent)
                waiting.append(parent)
    return found


def _places(
    candidates: Sequence[CandidateAdded], shown: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Return column and row, in units of a half row: leaves below each other, parents between."""
    children: dict[int, list[int]] = {number: [] for number in shown}
    depth: dict[int, int] = {}
    for number in shown:
        parents = [parent for parent in candidates[number].parents if parent in children]
        depth[number] = 1 + max((depth[parent] for parent in parents), default=-1)
        if parents:
            children[parents[0]].append(number)
    rows: dict[int, float] = {}
    free = 0
    for number in _children_first(shown, children):
        if below := children[number]:
            rows[number] = (rows[below[0]] + rows[below[-1]]) / 2
        else:
            rows[number] = free
            free += 1
    return {
        number: (_MARGIN + depth[number] * _COLUMN, round(_MARGIN + rows[number] * _ROW))
        for number in shown
    }


def _children_first(shown: Sequence[int], children: dict[int, list[int]]) -> Iterator[int]:
    inside = {child for below in children.values() for child in below}
    waiting = [(number, False) for number in reversed(shown) if number not in inside]
    while waiting:
        number, is_done = waiting.pop()
        if is_done:
            yield number
        else:
            waiting.append((number, True))
            waiting.extend((child, False) for child in reversed(children[number]))


def _node(data: ReportData, number: int, place: tuple[int, int], line: set[int]) -> Node:
    one = data.candidates[number]
    return Node(
        number=number,
        mean=shown_mean(one),
        x=place[0],
        y=place[1],
        is_winner=number == data.winner and number > 0,
        is_on_line=number in line and data.winner > 0,
        is_leading=number in data.frontier,
        is_merge=len(one.parents) > 1,
    )


def _edges(
    candidates: Sequence[CandidateAdded], places: dict[int, tuple[int, int]], line: set[int]
) -> Iterator[Edge]:
    for number, (x, y) in places.items():
        for at, parent in enumerate(candidates[number].parents):
            if parent in places:
                from_x, from_y = places[parent]
                # Bent close to the child, so that no line crosses the parent's label.
                bend = x - _BEND
                middle = x - _BEND // 2
                path = f"M{from_x} {from_y}H{bend}C{middle} {from_y} {middle} {y} {x} {y}"
                yield Edge(path, number in line and (parent in line), at > 0)
