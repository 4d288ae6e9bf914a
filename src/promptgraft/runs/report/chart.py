"""Scores against what they cost, as the geometry of a drawing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal

import attrs

from promptgraft.runs.report.data import ReportData
from promptgraft.search.events import CandidateAdded

WIDTH, HEIGHT = 480, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 30, 18, 50
_MANY = 300
_TICKS = 4
_LEAST_SPAN = 1e-6


@attrs.frozen
class Tick:
    """A mark on an axis: where it is, and what it says."""

    at: float
    label: str


@attrs.frozen(kw_only=True)
class Chart:
    """A drawing of means on D_pareto against what a run had used when they came.

    Attributes:
        name: distinguishes the drawings of a page; also the id of its heading.
        what: what the horizontal axis counts.
        summary: the drawing in one sentence.
        left: where the horizontal axis begins; the other edges likewise.
        x_ticks: marks of the horizontal axis.
        y_ticks: marks of the vertical axis.
        dots: all candidates, as the data of one SVG path.
        best: the best so far, as the data of one SVG path.
        baseline: the height of the baseline; None when it is unscored.
        winner: where the winner is; None when nothing beat the baseline.
        winner_label: what stands beside it.
        label_left: whether it stands left of it.
        is_dense: whether the dots are so many that they cover each other.
    """

    name: str
    what: str
    summary: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    dots: str
    best: str
    baseline: float | None
    winner: tuple[float, float] | None
    winner_label: str = ""
    label_left: bool = False
    is_dense: bool = False
    left: float = _LEFT
    right: float = WIDTH - _RIGHT
    top: float = _TOP
    bottom: float = HEIGHT - _BOTTOM


@attrs.frozen
class _Axis:
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def rollouts_chart(data: ReportData) -> Chart | None:
    """Return means against rollouts; None while nothing is scored."""
    return _chart(
        data,
        "rollouts",
        measure=lambda one: float(one.rollouts),
        total=float(data.rollouts),
        label=_count,
    )


def spending_chart(data: ReportData) -> tuple[Chart | None, str]:
    """Return means against money, or what else is known of it, and why it is not money."""
    priced = data.cost is not None and all(one.cost is not None for one in data.candidates)
    spent = max([data.cost or Decimal(0), *(one.cost or Decimal(0) for one in data.candidates)])
    if priced and spent:
        drawn = _chart(
            data,
            "dollars",
            measure=lambda one: float(one.cost or 0),
            total=float(spent),
            label=_dollars,
        )
        return drawn, ""
    why = "This run cost nothing" if priced else "The price of a model is not known"
    tokens = max([data.tokens, *(one.tokens for one in data.candidates)])
    if tokens:
        drawn = _chart(
            data,
            "tokens",
            measure=lambda one: float(one.tokens),
            total=float(tokens),
            label=_count,
        )
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
    *,
    measure: Callable[[CandidateAdded], float],
    total: float,
    label: Callable[[float, float], str],
) -> Chart | None:
    scored = [(measure(one), one.mean) for one in data.candidates if one.mean is not None]
    if not scored:
        return None
    end = max(total, *(x for x, _ in scored)) or 1.0
    x_marks, y_marks = _marks(0, end), _marks(*_range([y for _, y in scored]))
    x = _Axis(0, max(end, x_marks[-1]), _LEFT, WIDTH - _RIGHT)
    y = _Axis(y_marks[0], y_marks[-1], HEIGHT - _BOTTOM, _TOP)
    first = data.candidates[0]
    last = data.candidates[data.winner]
    won = (x.at(measure(last)), y.at(last.mean)) if data.winner and last.mean is not None else None
    return Chart(
        name=what,
        what=what,
        summary=_summary(data, what, label(end, end)),
        x_ticks=tuple(Tick(x.at(mark), label(mark, x.high)) for mark in x_marks),
        y_ticks=tuple(Tick(y.at(mark), f"{mark:.4g}") for mark in y_marks),
        dots="".join(f"M{x.at(used):g} {y.at(mean):g}h0" for used, mean in scored),
        best=_best_line(
            [
                (x.at(measure(one)), y.at(one.mean or 0.0))
                for one in steps_of(data.candidates, data.winner)
            ],
            x.at(end),
        ),
        baseline=None if first.mean is None else y.at(first.mean),
        winner=won,
        winner_label=f"#{last.candidate}  {last.mean:.3f}" if won and last.mean is not None else "",
        label_left=won is not None and won[0] > WIDTH * 0.7,
        is_dense=len(scored) > _MANY,
    )


def _best_line(points: Sequence[tuple[float, float]], end: float) -> str:
    path = "".join(f"H{x:g}V{y:g}" if at else f"M{x:g} {y:g}" for at, (x, y) in enumerate(points))
    return f"{path}H{end:g}" if path else ""


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
