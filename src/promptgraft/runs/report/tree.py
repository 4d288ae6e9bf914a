"""The family tree of candidates, as the geometry of a drawing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from promptgraft.runs.report.data import ReportData
from promptgraft.runs.report.frontier import leaders
from promptgraft.search.events import CandidateAdded

MOST_NODES = 120
_COLUMN, _ROW = 132, 30
_MARGIN = 22
_LABEL = 96
_BEND = 46


@attrs.frozen(kw_only=True)
class Node:
    """One candidate in the drawing; ``is_on_line`` is what the winner descends from, and itself."""

    value: CandidateAdded
    x: int
    y: int
    is_on_line: bool


@attrs.frozen
class Edge:
    """A line from a parent to a child; ``is_second`` from the second parent of a merge."""

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
    line = set(data.line_of(data.winner)) if data.winner else set()
    places = _places(data.candidates, _shown(data))
    nodes = tuple(
        Node(value=data.candidates[number], x=x, y=y, is_on_line=number in line)
        for number, (x, y) in places.items()
    )
    edges = sorted(_edges(nodes, places, line), key=lambda edge: edge.is_on_line)
    return Tree(
        width=max(node.x for node in nodes) + _MARGIN + _LABEL,
        height=max(node.y for node in nodes) + _MARGIN,
        nodes=nodes,
        edges=tuple(edges),
        left_out=len(data.candidates) - len(nodes),
    )


def _shown(data: ReportData) -> list[int]:
    """Return what is drawn: all, or lines of ancestors until there are enough."""
    if len(data.candidates) <= MOST_NODES:
        return [one.candidate for one in data.candidates]
    found = set(data.line_of(data.winner))
    for number in leaders(data):
        more = found | _ancestry(data.candidates, number)
        if len(more) <= MOST_NODES or len(found) == 1:
            found = more
    return sorted(found)


def _ancestry(candidates: Sequence[CandidateAdded], number: int) -> set[int]:
    found: set[int] = set()
    waiting = [number]
    while waiting:
        if (one := waiting.pop()) not in found:
            found.add(one)
            waiting.extend(candidates[one].parents)
    return found


def _places(
    candidates: Sequence[CandidateAdded], shown: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Return where candidates are: leaves below each other, parents between their children."""
    children: dict[int, list[int]] = {number: [] for number in shown}
    depth: dict[int, int] = {}
    roots: list[int] = []
    for number in shown:
        parents = [parent for parent in candidates[number].parents if parent in children]
        depth[number] = 1 + max((depth[parent] for parent in parents), default=-1)
        (children[parents[0]] if parents else roots).append(number)
    # Parents before their children, the first child and all below it before the second.
    order: list[int] = []
    waiting = roots[::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += reversed(children[order[-1]])
    leaves = [number for number in order if not children[number]]
    rows: dict[int, float] = {number: row for row, number in enumerate(leaves)}
    for number in reversed(order):
        if below := children[number]:
            rows[number] = (rows[below[0]] + rows[below[-1]]) / 2
    return {
        number: (_MARGIN + depth[number] * _COLUMN, round(_MARGIN + rows[number] * _ROW))
        for number in shown
    }


def _edges(
    nodes: Sequence[Node], places: dict[int, tuple[int, int]], line: set[int]
) -> Iterator[Edge]:
    for node in nodes:
        for at, parent in enumerate(node.value.parents):
            if parent in places:
                x, y = places[parent]
                # Bent close to the child, so that no line crosses the parent's label.
                bend, middle = node.x - _BEND, node.x - _BEND // 2
                path = f"M{x} {y}H{bend}C{middle} {y} {middle} {node.y} {node.x} {node.y}"
                yield Edge(path, node.is_on_line and parent in line, at > 0)
