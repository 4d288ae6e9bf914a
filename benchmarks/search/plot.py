"""The curves as one SVG: a panel for each family, medians with their quartiles.

Written by hand: a plotting library would be the heaviest of the development tools, and its files
do not follow the reader's light or dark theme.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

import attrs

from search.curves import Curve, median, quartiles
from search.methods import BEST, DEFAULTS, LEAN, METHODS, PAPER
from search.results import Result

_COLUMNS = 4
_PANEL_WIDTH, _PANEL_HEIGHT = 250, 200
_LEFT, _TOP, _WIDTH, _HEIGHT = 38, 34, 196, 122
"""Where the axes of a panel are."""
_LEGEND = 44
_STEPS = 120

_CLASSES = {LEAN: "lean", PAPER: "paper", DEFAULTS: "defaults", BEST: "best"}
_STYLE = """\
svg { --ours: #1d62c9; --theirs: #c2560c; --ink: #222; --faint: #ddd; --ground: #fff }
@media (prefers-color-scheme: dark) {
  svg { --ours: #6ea8ff; --theirs: #ff9d4d; --ink: #ddd; --faint: #444; --ground: #181818 }
}
.ground { fill: var(--ground) }
text { font: 10px sans-serif; fill: var(--ink) }
.name { font-size: 12px; font-weight: bold }
.grid { stroke: var(--faint) }
.line { fill: none; stroke-width: 1.8 }
.band { fill-opacity: 0.13 }
.lean.line, .paper.line { stroke: var(--ours) }
.best.line, .defaults.line { stroke: var(--theirs) }
.paper.line, .defaults.line { stroke-dasharray: 4 3; stroke-width: 1.4 }
.lean.band, .paper.band { fill: var(--ours) }
.best.band, .defaults.band { fill: var(--theirs) }"""


@attrs.frozen(kw_only=True)
class _Axes:
    """Where calls and scores are in a panel."""

    left: float
    top: float
    budget: int

    def x(self, calls: float) -> float:
        return self.left + _LEFT + _WIDTH * calls / self.budget

    def y(self, score: float) -> float:
        return self.top + _TOP + _HEIGHT * (1 - score)

    def points(self, values: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{self.x(calls):.1f},{self.y(score):.1f}" for calls, score in values)


def plot(results: Sequence[Result], seeds: int) -> str:
    """Return the SVG."""
    columns = min(_COLUMNS, len(results))
    width = columns * _PANEL_WIDTH
    height = _LEGEND + -(-len(results) // columns) * _PANEL_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Test score against calls of the task model</title>",
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="ground" width="{width}" height="{height}"/>',
        *_legend(seeds),
    ]
    for number, result in enumerate(results):
        left = number % columns * _PANEL_WIDTH
        top = _LEGEND + number // columns * _PANEL_HEIGHT
        lines += _panel(result, _Axes(left=left, top=top, budget=result.budget))
    return "\n".join([*lines, "</svg>", ""])


def _legend(seeds: int) -> Iterator[str]:
    said = f"Test score against calls: median and quartiles of {seeds} seeds"
    yield f'<text x="{_LEFT}" y="16">{said}</text>'
    for number, method in enumerate(METHODS):
        x = _LEFT + number % 4 * 140
        yield f'<path class="line {_CLASSES[method]}" d="M{x} 33h22"/>'
        yield f'<text x="{x + 27}" y="36">{escape(method)}</text>'


def _panel(result: Result, axes: _Axes) -> Iterator[str]:
    right, bottom = axes.x(axes.budget), axes.y(0)
    yield f'<text class="name" x="{axes.x(0)}" y="{axes.y(1) - 10}">{escape(result.family)}</text>'
    for score in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = axes.y(score)
        yield f'<path class="grid" d="M{axes.x(0)} {y}H{right}"/>'
        yield f'<text x="{axes.x(0) - 5}" y="{y + 3}" text-anchor="end">{score:g}</text>'
    for third in range(4):
        calls = axes.budget * third // 3
        yield (
            f'<text x="{axes.x(calls):.1f}" y="{bottom + 14}" text-anchor="middle">{calls:,}</text>'
        )
    yield f'<text x="{axes.x(axes.budget / 2)}" y="{bottom + 28}" text-anchor="middle">calls</text>'
    yield f'<text x="{axes.x(0) - 5}" y="{axes.y(1) - 10}" text-anchor="end">score</text>'
    curves = {method: result.cells[method].curves for method in METHODS}
    for method, found in curves.items():
        low = _steps(found, axes.budget, lambda scores: quartiles(scores)[0])
        high = _steps(found, axes.budget, lambda scores: quartiles(scores)[1])
        area = axes.points([*low, *reversed(high)])
        yield f'<polygon class="band {_CLASSES[method]}" points="{area}"/>'
    for method, found in curves.items():
        line = axes.points(_steps(found, axes.budget, median))
        yield f'<polyline class="line {_CLASSES[method]}" points="{line}"/>'


def _steps(
    curves: Sequence[Curve], budget: int, of: Callable[[Sequence[float]], float]
) -> list[tuple[float, float]]:
    at = (budget * step / _STEPS for step in range(_STEPS + 1))
    return [(calls, of([curve.at(calls) for curve in curves])) for calls in at]
