"""Who leads where: the candidates on the frontier, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

import attrs

from promptgraft.runs.report.allowance import short_name
from promptgraft.runs.report.data import ReportData, Score

MOST_ROWS = 100


@attrs.frozen(kw_only=True)
class FrontierRow:
    """One candidate of the frontier.

    Attributes:
        number: its position.
        what: the part that it changed.
        mean: its mean on D_pareto.
        shown_mean: the same as the page shows it.
        leads: on how many cases nobody has a higher score.
        alone: on how many of these nobody has as high a score.
        objectives: its means in the objectives of the run.
        is_winner: whether the run ends with it.
    """

    number: int
    what: str
    mean: Score
    shown_mean: str
    leads: int
    alone: int
    objectives: tuple[Score, ...]
    is_winner: bool


def frontier_rows(data: ReportData, objectives: Sequence[str]) -> tuple[FrontierRow, ...]:
    """Return the frontier, the highest means first; at most ``MOST_ROWS``."""
    tops = [_top(column) for column in zip_longest(*(one.scores for one in data.candidates))]
    rows = [_row(data, number, tops, objectives) for number in data.frontier]
    ranked = sorted(rows, key=lambda row: (row.mean is None, -(row.mean or 0.0), row.number))
    return tuple(ranked[:MOST_ROWS])


def _top(column: Iterable[Score]) -> tuple[Score, int]:
    """Return the highest score on a case, and how many candidates have it."""
    scores = [score for score in column if score is not None]
    if not scores:
        return None, 0
    highest = max(scores)
    return highest, scores.count(highest)


def _row(
    data: ReportData,
    number: int,
    tops: Sequence[tuple[Score, int]],
    objectives: Sequence[str],
) -> FrontierRow:
    one = data.candidates[number]
    led = [
        holders
        for score, (highest, holders) in zip(one.scores, tops, strict=False)
        if score is not None and score == highest
    ]
    return FrontierRow(
        number=number,
        what=short_name(one.module) or ("merge" if one.parents else "baseline"),
        mean=one.mean,
        shown_mean=one.shown_mean,
        leads=len(led),
        alone=sum(holders == 1 for holders in led),
        objectives=tuple(one.objectives.get(name) for name in objectives),
        is_winner=number == data.winner and number > 0,
    )
