"""The geometry of a report's drawings: score, cost and length, the family tree, the graph."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal

import attrs

from promptgraft.graphs.describing import edges_of
from promptgraft.runs.history import RunHistory
from promptgraft.runs.report.data import ReportData
from promptgraft.search.events import CandidateAdded
from promptgraft.targets.types import RolloutRecord, names_in

# The template repeats them in its `viewBox`.
WIDTH, HEIGHT = 480, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 68, WIDTH - 30, 18, HEIGHT - 50
_MANY = 300
_COMPARABLE = 2
_TICKS = 4
_LETTER = 18
"""Size of a letter on a narrow screen."""
# An axis needs a span, also where all amounts are the same up to rounding.
_LEAST_SPAN = 1e-6
# The least span of an axis of means, as a share of the scale: less would exaggerate.
_LEAST_SHARE = 0.1

MOST_NODES = 120
# All lengths are in pixels.
_LANE, _ROW = 18, 26
_MARGIN = 18
_LABEL = 300

_Point = tuple[float, float]
Edge = tuple[str, bool, bool]
"""An SVG path to a child; whether it is on the winner's line; whether from a second parent."""


@attrs.frozen(kw_only=True)
class Chart:
    """Means on the validation set against an amount, such as test calls used until then.

    Attributes:
        what: the label of the horizontal axis; distinguishes the drawings of a page.
        summary: the drawing in words.
        x_ticks: positions and labels of the horizontal axis; ``y_ticks`` of the vertical one.
        dots: positions of the means; ``guesses`` of those that are estimates.
        best: the best mean so far, as the data of an SVG path; against length, the best mean with
            no more text.
        baseline: the height of the baseline; None if it is unscored.
        winner: the position of the winner; None if nothing beat the baseline.
        is_dense: whether there are so many dots that they overlap.
    """

    what: str
    summary: str
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    dots: tuple[_Point, ...]
    guesses: tuple[_Point, ...]
    best: str
    baseline: float | None
    winner: _Point | None
    is_dense: bool
    left: float = _LEFT
    right: float = _RIGHT
    top: float = _TOP
    bottom: float = _BOTTOM


def rollouts_chart(data: ReportData) -> Chart | None:
    """Return the chart of means against rollouts; None while nothing is scored."""
    used = [float(candidate.rollouts) for candidate in data.candidates]
    steps = steps_of(data.candidates, data.winner)
    return _chart(data, "test calls", used, steps, total=float(data.used.rollouts), label=_count)


def length_chart(data: ReportData) -> Chart | None:
    """Return the chart of means against characters; None if no candidate can be compared by them.

    The characters are those of all texts that the search may change.
    """
    lengths = [float(sum(map(len, candidate.texts.values()))) for candidate in data.candidates]
    if len({*lengths}) < _COMPARABLE:
        return None
    best, steps = -math.inf, []
    for _, candidate in sorted(
        zip(lengths, data.candidates, strict=True), key=lambda pair: pair[0]
    ):
        # An estimate on a few cases would hide what is known.
        if candidate.mean is None or candidate.estimated:
            continue
        if candidate.mean > best:
            best = candidate.mean
            steps.append(candidate)
    return _chart(data, "characters of text", lengths, steps, total=max(lengths), label=_count)


def spending_chart(data: ReportData) -> tuple[Chart | None, str]:
    """Return the chart of means against money, or else tokens, and why it is not money."""
    priced = data.cost is not None and all(
        candidate.cost is not None for candidate in data.candidates
    )
    money = [float(candidate.cost or 0) for candidate in data.candidates]
    spent = max([float(data.cost or Decimal(0)), *money])
    steps = list(steps_of(data.candidates, data.winner))
    if priced and spent:
        return _chart(data, "dollars", money, steps, total=spent, label=_dollars), ""
    why = "This run cost nothing" if priced else "The price of a model is not known"
    tokens = [float(candidate.tokens) for candidate in data.candidates]
    if most := max([float(data.tokens), *tokens]):
        drawn = _chart(data, "tokens", tokens, steps, total=most, label=_count)
        return drawn, f"{why}, so the drawing is against tokens."
    return None, f"{why}, so there is no drawing against money."


@attrs.frozen(kw_only=True)
class Curves:
    """The best means so far of several runs against rollouts.

    Attributes:
        x_ticks: positions and labels of the horizontal axis; ``y_ticks`` of the vertical one.
        lines: label and data of the SVG path of each run, and where its label stands.
    """

    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    lines: tuple[tuple[str, str, _Point], ...]
    left: float = _LEFT
    right: float = _RIGHT
    bottom: float = _BOTTOM


def curves_chart(runs: Sequence[RunHistory], labels: Sequence[str]) -> Curves | None:
    """Return the curves of several runs; None if one of them has no score yet."""
    paths = [tuple(steps_of(run.candidates, run.best)) for run in runs]
    if not all(paths):
        return None
    means = [step.mean or 0.0 for path in paths for step in path]
    axes = _Axes(float(max(1, *(run.rollouts for run in runs))), means)
    lines: list[tuple[str, str, _Point]] = []
    for run, path, label in zip(runs, paths, labels, strict=True):
        curve = axes.curve([(step.rollouts, step.mean or 0.0) for step in path], run.rollouts)
        end = axes.across(run.rollouts), axes.up(path[-1].mean or 0.0)
        lines.append((label, curve, _free_place(*end, [place for *_, place in lines])))
    return Curves(x_ticks=axes.x_ticks(_count), y_ticks=axes.y_ticks, lines=tuple(lines))


def _free_place(x: float, y: float, labels: Sequence[_Point]) -> _Point:
    """Return the place of a label at the end of a curve, or towards the middle if others cover it.

    Curves of runs with equal means coincide.
    """
    step = _LETTER if y < HEIGHT / 2 else -_LETTER
    while any(abs(x - left) < _LETTER and abs(y - up) < _LETTER for left, up in labels):
        y += step
    return x, y


def steps_of(candidates: Sequence[CandidateAdded], winner: int) -> Iterator[CandidateAdded]:
    """Yield the candidates that were the best when they joined, up to the winner.

    Candidates with a higher mean than the winner are skipped: they were not evaluated on all
    cases, so their means are estimates.
    """
    best, most = -math.inf, candidates[winner].mean if winner else None
    for candidate in candidates[: winner + 1] if winner else candidates:
        if (
            candidate.mean is not None
            and candidate.mean > best
            and (most is None or candidate.mean <= most)
        ):
            best = candidate.mean
            yield candidate


def _chart(
    data: ReportData,
    what: str,
    used: Sequence[float],
    steps: Iterable[CandidateAdded],
    *,
    total: float,
    label: Callable[[float, float], str],
) -> Chart | None:
    scored = [
        (x, candidate.mean, candidate.estimated)
        for x, candidate in zip(used, data.candidates, strict=True)
        if candidate.mean is not None
    ]
    if not scored:
        return None
    means = [mean for _, mean, _ in scored]
    end = max(total, *(x for x, _, _ in scored)) or 1.0
    axes = _Axes(end, means)
    first, last = data.candidates[0].mean, data.candidates[data.winner].mean
    # The text for screen readers.
    summary = f"{len(means)} means between {min(means):.3f} and {max(means):.3f} over "
    summary += f"{label(end, end)} {what}"
    winner = None
    if data.winner and last is not None:
        winner = axes.across(used[data.winner]), axes.up(last)
        if first is not None:
            summary += f"; your prompt {first:.3f}, winner #{data.winner} {last:.3f}"
    points = [(used[candidate.candidate], candidate.mean or 0.0) for candidate in steps]
    places = [(axes.across(x), axes.up(y), estimated) for x, y, estimated in scored]
    return Chart(
        what=what,
        summary=f"{summary}.",
        x_ticks=axes.x_ticks(label),
        y_ticks=axes.y_ticks,
        dots=tuple((x, y) for x, y, estimated in places if not estimated),
        guesses=tuple((x, y) for x, y, estimated in places if estimated),
        best=axes.curve(points, end) if points else "",
        baseline=None if first is None else axes.up(first),
        winner=winner,
        is_dense=len(scored) > _MANY,
    )


class _Axes:
    """Where amounts up to ``end`` and some means stand in a drawing."""

    def __init__(self, end: float, means: Sequence[float]) -> None:
        self._x_marks, self._y_marks = _marks(0, end), _marks(*_range_of(means))
        self._most = max(end, self._x_marks[-1])

    def across(self, amount: float) -> float:
        return round(_LEFT + amount / self._most * (_RIGHT - _LEFT), 1)

    def up(self, mean: float) -> float:
        low, high = self._y_marks[0], self._y_marks[-1]
        return round(_BOTTOM - (mean - low) / (high - low) * (_BOTTOM - _TOP), 1)

    def curve(self, points: Sequence[_Point], end: float) -> str:
        """Return the SVG path that rises at each point, and goes on to ``end``."""
        places = [(self.across(amount), self.up(mean)) for amount, mean in points]
        steps = "".join(f"H{x:g}V{y:g}" for x, y in places)
        return f"M{places[0][0]:g} {places[0][1]:g}{steps}H{self.across(end):g}"

    def x_ticks(self, label: Callable[[float, float], str]) -> tuple[tuple[float, str], ...]:
        return tuple((self.across(mark), label(mark, self._most)) for mark in self._x_marks)

    @property
    def y_ticks(self) -> tuple[tuple[float, str], ...]:
        return tuple((self.up(mark), f"{mark:.4g}") for mark in self._y_marks)


def _range_of(means: Sequence[float]) -> tuple[float, float]:
    """Return a range that encloses means, and is no smaller than a tenth of their scale."""
    low, high = min(means), max(means)
    scale = max(1.0, abs(low), abs(high))
    missing = max(0.0, _LEAST_SHARE * scale - (high - low))
    # Within the scale: no mean is below 0 if all of these are not.
    below = min(missing / 2, low) if low >= 0 else missing / 2
    above = min(missing - below, scale - high)
    return low - (missing - above), high + above


def _marks(low: float, high: float) -> tuple[float, ...]:
    """Return three to six round numbers that enclose a range."""
    if high - low < _LEAST_SPAN:
        low, high = low - 0.1 * abs(low) - _LEAST_SPAN, high + 0.1 * abs(high) + _LEAST_SPAN
    rough = (high - low) / _TICKS
    # The tolerances keep rounding errors from adding a mark.
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 2.5, 5, 10) if power * times >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(number * step, 12) for number in range(first, last + 1))


def _count(value: float, _highest: float) -> str:
    return f"{value:,.10g}"


def _dollars(value: float, highest: float) -> str:
    decimals = min(6, max(0, 1 - math.floor(math.log10(highest))))
    return f"${value:,.{decimals}f}"


@attrs.frozen(kw_only=True)
class DrawnNode:
    """A candidate in the tree; ``is_on_line`` marks the winner and its line of first parents."""

    value: CandidateAdded
    x: int
    y: int
    is_on_line: bool


@attrs.frozen(kw_only=True)
class Tree:
    """A drawing of candidates, each in its own row below its first parent.

    The child with the most descendants continues the lane of its parent, the others take the
    lane to the right, so that n candidates need at most log2(n) + 1 lanes. The edges on the
    winner's line come last, so that they are drawn on top.
    """

    width: int
    height: int
    nodes: tuple[DrawnNode, ...]
    edges: tuple[Edge, ...]
    left_out: int


def family_tree(data: ReportData) -> Tree | None:
    """Return the tree; of a large pool, the winner's line and the ancestors of the frontier."""
    if not data.candidates:
        return None
    line = set(data.line_of(data.winner)) if data.winner else set()
    places = _places(data.candidates, _shown(data))
    nodes = tuple(
        DrawnNode(value=data.candidates[number], x=x, y=y, is_on_line=number in line)
        for number, (x, y) in places.items()
    )
    edges = sorted(_edges(nodes, places, line), key=lambda edge: edge[1])
    return Tree(
        width=max(node.x for node in nodes) + _MARGIN + _LABEL,
        height=max(node.y for node in nodes) + _MARGIN,
        nodes=nodes,
        edges=tuple(edges),
        left_out=len(data.candidates) - len(nodes),
    )


def _shown(data: ReportData) -> list[int]:
    """Return the candidates to draw: all, or as many lines of ancestors as fit."""
    if len(data.candidates) <= MOST_NODES:
        return [candidate.candidate for candidate in data.candidates]
    line_numbers = set(data.line_of(data.winner))
    for number in data.leaders:
        more, waiting = set(line_numbers), [number]
        while waiting:
            if (candidate_number := waiting.pop()) not in more:
                more.add(candidate_number)
                waiting.extend(data.candidates[candidate_number].parents)
        if len(more) <= MOST_NODES or len(line_numbers) == 1:
            line_numbers = more
    return sorted(line_numbers)


def _places(
    candidates: Sequence[CandidateAdded], positions: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Lay out candidates; side branches come before the rest of their parent's lane."""
    children: dict[int, list[int]] = {number: [] for number in positions}
    sizes = dict.fromkeys(positions, 1)
    waiting: list[tuple[int, int]] = []
    for number in reversed(positions):
        parents = [parent for parent in candidates[number].parents if parent in children]
        children[number].sort(key=lambda child: (sizes[child], child), reverse=True)
        if parents:
            children[parents[0]].append(number)
            sizes[parents[0]] += sizes[number]
        else:
            waiting.append((number, 0))
    places: dict[int, tuple[int, int]] = {}
    while waiting:
        number, lane = waiting.pop()
        places[number] = _MARGIN + lane * _LANE, _MARGIN + len(places) * _ROW
        waiting += [(child, lane + (at > 0)) for at, child in enumerate(children[number])]
    return places


def _edges(
    nodes: Sequence[DrawnNode], places: dict[int, tuple[int, int]], line: set[int]
) -> Iterator[Edge]:
    for node in nodes:
        for at, parent in enumerate(node.value.parents):
            if parent in places:
                x, y = places[parent]
                path = f"M{x} {y}V{node.y - _ROW // 2}Q{x} {node.y} {node.x} {node.y}"
                if at:
                    # Around the nodes between the two, on the right.
                    right = max(x, node.x) + 3 * _LANE
                    path = f"M{x} {y}C{right} {y} {right} {node.y} {node.x} {node.y}"
                elif x == node.x:
                    path = f"M{x} {y}V{node.y}"
                yield path, node.is_on_line and parent in line, at > 0


_MOST_BOXES = 60
_COLUMN, _BOX_ROW, _EDGE = 190, 64, 20
_BOX, _BOX_HEIGHT = 150, 34


@attrs.frozen(kw_only=True)
class GraphNode:
    """A node of the graph, at ``x`` and ``y``.

    Attributes:
        name: the name of the node.
        taken: numbers of answers of baseline and winner in which it took part.
        failed: how many of them are not perfect.
        blamed: how often models blamed its parts; None if no model was asked.
        accepted: accepted changes of its parts; ``rejected`` counts rejected ones.
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
    """A drawing of a graph, each node to the right of its predecessors; ``edges`` are SVG paths."""

    width: int
    height: int
    nodes: tuple[GraphNode, ...]
    edges: tuple[str, ...]
    box: int = _BOX
    box_height: int = _BOX_HEIGHT


def graph_view(data: ReportData) -> GraphView | None:
    """Return the graph; None if answers have no steps, or too many nodes."""
    every = (*data.answers.seen.items(), *data.answers.unseen.items())
    sides = [[edge for (at, _), edge in every if at == side] for side in (0, data.winner)]
    traces = [answer.steps for side in sides for answer in side]
    names = list(dict.fromkeys(step.node for steps in traces for step in steps))
    if not 0 < len(names) <= _MOST_BOXES:
        return None
    edges = [edge for edge in edges_of(traces) if edge[0] != edge[1]]
    places = _columns(names, edges)
    accepted = Counter(part for candidate in data.candidates for part in names_in(candidate.module))
    rejected = Counter(
        part for rejection in data.steps.rejections for part in names_in(rejection.module)
    )
    blame, parts = data.blame, dict[str, set[str]]()
    for step in (step for steps in traces for step in steps):
        parts.setdefault(step.node, set()).update(step.parts)
    return GraphView(
        width=max(x for x, _ in places.values()) + _BOX + _EDGE,
        height=max(y for _, y in places.values()) + _BOX_HEIGHT + 2 * _EDGE,
        nodes=tuple(
            GraphNode(
                name=name,
                x=places[name][0],
                y=places[name][1],
                taken=(_through(name, sides[0]), _through(name, sides[1])),
                failed=(_failed(name, sides[0], data), _failed(name, sides[1], data)),
                blamed=sum(blame[part] for part in parts[name]) if blame else None,
                accepted=sum(accepted[part] for part in parts[name]),
                rejected=sum(rejected[part] for part in parts[name]),
            )
            for name in names
        ),
        edges=tuple(_path(places[start], places[end]) for start, end in edges),
    )


def _through(name: str, answers: Iterable[RolloutRecord]) -> int:
    return sum(any(step.node == name for step in answer.steps) for answer in answers)


def _failed(name: str, answers: Iterable[RolloutRecord], data: ReportData) -> int:
    return _through(
        name,
        [answer for answer in answers if answer.score is not None and answer.score < data.perfect],
    )


def _columns(names: list[str], edges: Iterable[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """Lay out nodes, each one column to the right of its last predecessor; loops are ignored."""
    order = {name: number for number, name in enumerate(names)}
    columns = dict.fromkeys(names, 0)
    for name in names:
        before = [start for start, end in edges if end == name and order[start] < order[name]]
        columns[name] = max((columns[start] + 1 for start in before), default=0)
    rows: Counter[int] = Counter()
    places = {}
    for name, column in columns.items():
        places[name] = _EDGE + column * _COLUMN, _EDGE + rows[column] * _BOX_ROW
        rows[column] += 1
    return places


def _path(start: tuple[int, int], end: tuple[int, int]) -> str:
    (x, y), (to_x, to_y) = start, end
    if to_x > x:
        x, y, to_y = x + _BOX, y + _BOX_HEIGHT // 2, to_y + _BOX_HEIGHT // 2
        middle = (x + to_x) // 2
        return f"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"
    # Edges that lead back pass below the boxes.
    x, y, to_x, to_y = x + _BOX // 2, y + _BOX_HEIGHT, to_x + _BOX // 2, to_y + _BOX_HEIGHT
    low = max(y, to_y) + _EDGE
    return f"M{x} {y}C{x} {low} {to_x} {low} {to_x} {to_y}"
