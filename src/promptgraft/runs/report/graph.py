"""The graph that a run has improved, as a drawing and with what was found out of each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from promptgraft.evals.trace import Step
from promptgraft.graphs.describing import edges_of
from promptgraft.runs.report.data import ReportData
from promptgraft.targets.types import RolloutRecord

MOST_NODES = 60
_COLUMN, _ROW, _MARGIN = 190, 64, 20
_BOX, _HEIGHT = 150, 34


@attrs.frozen(kw_only=True)
class GraphNode:
    """A node of the drawing.

    Attributes:
        name: the node.
        taken: answers of baseline and winner in which it took part.
        failed: those of them that are not perfect.
        blamed: how often models blamed a part of it; None where none was asked.
        accepted: accepted changes of its parts; ``rejected`` rejected ones.
    """

    name: str
    x: int
    y: int
    taken: tuple[int, int]
    failed: tuple[int, int]
    blamed: int | None
    accepted: int
    rejected: int


@attrs.frozen(kw_only=True)
class GraphView:
    """A drawing of a graph, each node right of what it follows; ``edges`` are paths of SVG."""

    width: int
    height: int
    nodes: tuple[GraphNode, ...]
    edges: tuple[str, ...]
    box: int = _BOX
    box_height: int = _HEIGHT


def graph_view(data: ReportData) -> GraphView | None:
    """Return the drawing; None where answers have no steps, or far too many nodes."""
    sides = [_of(data, number) for number in (0, data.winner)]
    traces = [answer.steps for side in sides for answer in side]
    names = list(dict.fromkeys(step.node for steps in traces for step in steps))
    if not 0 < len(names) <= MOST_NODES:
        return None
    edges = [edge for edge in edges_of(traces) if edge[0] != edge[1]]
    places = _places(names, edges)
    accepted = Counter(part for one in data.candidates for part in (one.module or "").split(", "))
    rejected = Counter(part for one in data.rejections for part in one.module.split(", "))
    parts = _parts(traces)
    return GraphView(
        width=max(x for x, _ in places.values()) + _BOX + _MARGIN,
        height=max(y for _, y in places.values()) + _HEIGHT + 2 * _MARGIN,
        nodes=tuple(
            GraphNode(
                name=name,
                x=places[name][0],
                y=places[name][1],
                taken=(_through(name, sides[0]), _through(name, sides[1])),
                failed=(_failed(name, sides[0], data), _failed(name, sides[1], data)),
                blamed=sum(data.blame[part] for part in parts[name]) if data.blame else None,
                accepted=sum(accepted[part] for part in parts[name]),
                rejected=sum(rejected[part] for part in parts[name]),
            )
            for name in names
        ),
        edges=tuple(_path(places[start], places[end]) for start, end in edges),
    )


def _of(data: ReportData, number: int) -> list[RolloutRecord]:
    every = (*data.answers.items(), *data.unseen.items())
    return [answer for (candidate, _), answer in every if candidate == number]


def _through(name: str, answers: Iterable[RolloutRecord]) -> int:
    return sum(any(step.node == name for step in answer.steps) for answer in answers)


def _failed(name: str, answers: Iterable[RolloutRecord], data: ReportData) -> int:
    return _through(
        name, [one for one in answers if one.score is not None and one.score < data.perfect]
    )


def _parts(traces: Iterable[tuple[Step, ...]]) -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = {}
    for step in (step for steps in traces for step in steps):
        found.setdefault(step.node, set()).update(step.parts)
    return found


def _places(names: list[str], edges: Iterable[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """Return where nodes are: one column right of the last that they follow, loops left aside."""
    order = {name: number for number, name in enumerate(names)}
    columns = dict.fromkeys(names, 0)
    for name in names:
        before = [start for start, end in edges if end == name and order[start] < order[name]]
        columns[name] = max((columns[start] + 1 for start in before), default=0)
    rows: Counter[int] = Counter()
    places = {}
    for name, column in columns.items():
        places[name] = _MARGIN + column * _COLUMN, _MARGIN + rows[column] * _ROW
        rows[column] += 1
    return places


def _path(start: tuple[int, int], end: tuple[int, int]) -> str:
    (x, y), (to_x, to_y) = start, end
    if to_x > x:
        x, y, to_y = x + _BOX, y + _HEIGHT // 2, to_y + _HEIGHT // 2
        middle = (x + to_x) // 2
        return f"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"
    # Back, below the boxes.
    x, y, to_x, to_y = x + _BOX // 2, y + _HEIGHT, to_x + _BOX // 2, to_y + _HEIGHT
    low = max(y, to_y) + _MARGIN
    return f"M{x} {y}C{x} {low} {to_x} {low} {to_x} {to_y}"
