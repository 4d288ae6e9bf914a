"""Scores against what they cost, as the geometry of a drawing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal

import attrs

from promptgraft.runs.report.data import ReportData
from promptgraft.search.events import CandidateAdded

WIDTH, HEIGHT = 480, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, WIDTH - 30, 18, HEIGHT - 50
_MANY = 300
_TICKS = 4
_LEAST_SPAN = 1e-6

_Point = tuple[float, float]


@attrs.frozen(kw_only=True)
class Chart:
    """A drawing of means on D_pareto against what a run had used when they came.

    Attributes:
        what: what the horizontal axis counts; distinguishes the drawings of a page.
        summary: the drawing in one sentence.
        x_ticks: places and labels of the horizontal axis.
        y_ticks: places and labels of the vertical axis.
        dots: where the candidates are.
        best: the best so far, as the data of one SVG path.
        baseline: the height of the baseline; None when it is unscored.
        winner: where the winner is; None when nothing beat the baseline.
        is_dense: whether the dots are so many that they cover each other.
    """

    what: str
    summary: str
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    dots: tuple[_Point, ...]
    best: str
    baseline: float | None
    winner: _Point | None
    is_dense: bool
    left: float = _LEFT
    right: float = _RIGHT
    top: float = _TOP
    bottom: float = _BOTTOM


def rollouts_chart(data: ReportData) -> Chart | None:
    """Return means against rollouts; None while nothing is scored."""
    used = [float(one.rollouts) for one in data.candidates]
    return _chart(data, "rollouts", used, total=float(data.rollouts), label=_count)


def spending_chart(data: ReportData) -> tuple[Chart | None, str]:
    """Return means against money, or what else is known of it, and why it is not money."""
    priced = data.cost is not None and all(one.cost is not None for one in data.candidates)
    money = [float(one.cost or 0) for one in data.candidates]
    spent = max([float(data.cost or Decimal(0)), *money])
    if priced and spent:
        return _chart(data, "dollars", money, total=spent, label=_dollars), ""
    why = "This run cost nothing" if priced else "The price of a model is not known"
    tokens = [float(one.tokens) for one in data.candidates]
    if most := max([float(data.tokens), *tokens]):
        drawn = _chart(data, "tokens", tokens, total=most, label=_count)
        return drawn, f"{why}, so the drawing is against tokens."
    return None, f"{why}, so there is no drawing against money."


def steps_of(candidates: Sequence[CandidateAdded], winner: int) -> Iterator[CandidateAdded]:
    """Yield the candidates that were the best when they came, up to the winner.

    What seems to be better than the winner was not tried on all cases: in a race, means may be
    estimates.
    """
    best, most = -math.inf, candidates[winner].mean if winner else None
    for one in candidates[: winner + 1] if winner else candidates:
        if one.mean is not None and one.mean > best and (most is None or one.mean <= most):
            best = one.mean
            yield one


def _chart(
    data: ReportData,
    what: str,
    used: Sequence[float],
    *,
    total: float,
    label: Callable[[float, float], str],
) -> Chart | None:
    scored = [
        (x, one.mean) for x, one in zip(used, data.candidates, strict=True) if one.mean is not None
    ]
    if not scored:
        return None
    end = max(total, *(x for x, _ in scored)) or 1.0
    x_marks, y_marks = _marks(0, end), _marks(*_range([y for _, y in scored]))
    most = max(end, x_marks[-1])

    def across(value: float) -> float:
        return round(_LEFT + value / most * (_RIGHT - _LEFT), 1)

    def up(value: float) -> float:
        share = (value - y_marks[0]) / (y_marks[-1] - y_marks[0])
        return round(_BOTTOM - share * (_BOTTOM - _TOP), 1)

    first, last = data.candidates[0].mean, data.candidates[data.winner].mean
    won = data.winner > 0 and last is not None
    steps = [
        (used[one.candidate], one.mean or 0.0) for one in steps_of(data.candidates, data.winner)
    ]
    path = "".join(f"H{across(x):g}V{up(y):g}" for x, y in steps)
    start = f"M{across(steps[0][0]):g} {up(steps[0][1]):g}" if steps else ""
    return Chart(
        what=what,
        summary=_summary(data, what, label(end, end)),
        x_ticks=tuple((across(mark), label(mark, most)) for mark in x_marks),
        y_ticks=tuple((up(mark), f"{mark:.4g}") for mark in y_marks),
        dots=tuple((across(x), up(y)) for x, y in scored),
        best=f"{start}{path}H{across(end):g}" if steps else "",
        baseline=None if first is None else up(first),
        winner=(across(used[data.winner]), up(last)) if won and last is not None else None,
        is_dense=len(scored) > _MANY,
    )


def _summary(data: ReportData, what: str, used: str) -> str:
    means = [one.mean for one in data.candidates if one.mean is not None]
    best = data.candidates[data.winner].mean
    first = data.candidates[0].mean
    told = f"{len(means)} means between {min(means):.3f} and {max(means):.3f} over {used} {what}"
    if first is not None and best is not None and data.winner:
        told += f"; baseline {first:.3f}, winner #{data.winner} {best:.3f}"
    return f"{told}."


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = (high - low) * 0.08
    if high - low < _LEAST_SPAN:
        margin = abs(high) * 0.1 if abs(high) > _LEAST_SPAN else 0.5
    inside = low >= 0 and high <= 1
    return (max(low - margin, 0.0) if low >= 0 else low - margin), (
        min(high + margin, 1.0) if inside else high + margin
    )


def _marks(low: float, high: float) -> tuple[float, ...]:
    """Return round numbers that enclose a range, three to six of them."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 2.5, 5, 10) if power * times >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(number * step, 12) for number in range(first, last + 1))


def _count(value: float, _highest: float) -> str:
    return f"{value:,.10g}"


def _dollars(value: float, highest: float) -> str:
    decimals = min(6, max(0, 1 - math.floor(math.log10(highest))))
    return f"${value:,.{decimals}f}"
