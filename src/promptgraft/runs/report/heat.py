"""Scores case by candidate: a table where it can be read, a picture where it cannot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from promptgraft.runs.report.allowance import Limits, short_name
from promptgraft.runs.report.data import ReportData
from promptgraft.runs.report.png import Color, data_url, palette_png
from promptgraft.search.events import CandidateAdded
from promptgraft.search.scores import Score, packed

MOST_COLUMNS = 60
MOST_CELLS = 6_000
_TABLE_COLUMNS = 20
_TABLE_ROWS = 400

LEVELS = 10
UNSCORED = LEVELS + 1
_LOW: Color = (238, 242, 247)
_HIGH: Color = (16, 67, 120)
_GREY: Color = (170, 150, 120)


@attrs.frozen
class Cell:
    """A score in a table: its level from 0 to ``LEVELS``, ``UNSCORED`` for none, and its text."""

    level: int
    text: str


@attrs.frozen(kw_only=True)
class HeatTable:
    """A table of scores.

    Attributes:
        candidates: positions of the candidates, its columns.
        cases: names of the cases, its rows.
        rows: the scores, row by row.
        means: the mean of each column.
    """

    candidates: tuple[int, ...]
    cases: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    means: tuple[str, ...]


@attrs.frozen(kw_only=True)
class HeatPicture:
    """A picture of scores, a pixel each.

    Attributes:
        address: the picture as a data address.
        width: its columns, candidates.
        height: its rows, cases.
        scale: how large a pixel is shown.
    """

    address: str
    width: int
    height: int
    scale: int


@attrs.frozen(kw_only=True)
class HeatMap:
    """Scores case by candidate.

    Attributes:
        table: all of them, or those of chosen candidates.
        picture: all of them, where the table has not all.
        legend: the levels with the scores that they stand for.
        has_unscored: whether some are unscored.
        left_out_cases: how many cases the table does not have.
        left_out_candidates: how many candidates neither has.
    """

    table: HeatTable
    picture: HeatPicture | None
    legend: tuple[Cell, ...]
    has_unscored: bool
    left_out_cases: int = 0
    left_out_candidates: int = 0


@attrs.frozen
class _Scale:
    low: float
    high: float

    def cell(self, score: Score) -> Cell:
        return Cell(self.level(score), "–" if score is None else _short(score))

    def level(self, score: Score) -> int:
        if score is None:
            return UNSCORED
        return round((score - self.low) / (self.high - self.low) * LEVELS)

    def levels(self, scores: Sequence[Score], cases: int) -> list[int]:
        """Return the level on each case; scores that are not there are unscored."""
        low, width = self.low, self.high - self.low
        found = [
            UNSCORED if score is None else round((score - low) / width * LEVELS) for score in scores
        ]
        return found + [UNSCORED] * (cases - len(found))


def heat_map(data: ReportData, limits: Limits) -> HeatMap | None:
    """Return the map of a run; None without candidates or cases."""
    if not data.candidates or not data.case_ids:
        return None
    scores = [one.scores for one in data.candidates]
    scale = _scale(scores)
    numbers = range(len(scores))
    small = len(scores) <= MOST_COLUMNS and len(scores) * len(data.case_ids) <= MOST_CELLS
    columns = tuple(numbers) if small else _chosen(data)
    shown = len(data.case_ids) if small else min(len(data.case_ids), _TABLE_ROWS)
    drawn = max(1, min(len(scores), limits.pixels // len(data.case_ids)))
    return HeatMap(
        table=_table(data, columns, shown, scale),
        picture=None if small else _picture(scores[:drawn], len(data.case_ids), scale),
        legend=_legend(scale),
        has_unscored=any(None in row for row in scores),
        left_out_cases=len(data.case_ids) - shown,
        left_out_candidates=0 if small else len(scores) - drawn,
    )


def _scale(scores: Iterable[Sequence[Score]]) -> _Scale:
    # Row by row: all scores of a long run at once are hundreds of megabytes.
    rows = (
        packed(row) if None not in row else [score for score in row if score is not None]
        for row in scores
    )
    ends = [(min(row), max(row)) for row in rows if row]
    low = min((least for least, _ in ends), default=0.0)
    high = max((most for _, most in ends), default=1.0)
    if low >= 0 and high <= 1:
        return _Scale(0.0, 1.0)
    return _Scale(low, high if high > low else low + 1)


def _chosen(data: ReportData) -> tuple[int, ...]:
    """Return the baseline, the winner, and those of the frontier with the highest means."""
    by_mean = sorted(
        data.frontier, key=lambda number: (-(data.candidates[number].mean or 0.0), number)
    )
    return tuple(dict.fromkeys((0, data.winner, *by_mean)))[:_TABLE_COLUMNS]


def _table(data: ReportData, columns: Sequence[int], cases: int, scale: _Scale) -> HeatTable:
    chosen = [data.candidates[number] for number in columns]
    return HeatTable(
        candidates=tuple(columns),
        cases=tuple(map(short_name, data.case_ids[:cases])),
        rows=tuple(
            tuple(scale.cell(one.scores[row] if row < len(one.scores) else None) for one in chosen)
            for row in range(cases)
        ),
        means=tuple(map(_mean, chosen)),
    )


def _mean(one: CandidateAdded) -> str:
    if one.mean is None:
        return "–"
    return f"{'~' if one.estimated else ''}{one.mean:.2f}"


def _picture(scores: Sequence[Sequence[Score]], cases: int, scale: _Scale) -> HeatPicture:
    rows = [list(row) for row in zip(*(scale.levels(one, cases) for one in scores), strict=True)]
    return HeatPicture(
        address=data_url(palette_png(rows, _palette())),
        width=len(scores),
        height=cases,
        scale=max(1, min(8, 900 // len(scores))),
    )


def _palette() -> list[Color]:
    steps = [level / LEVELS for level in range(LEVELS + 1)]
    return [*(_mixed(share) for share in steps), _GREY]


def _mixed(share: float) -> Color:
    red, green, blue = (
        round(low + (high - low) * share) for low, high in zip(_LOW, _HIGH, strict=True)
    )
    return red, green, blue


def _legend(scale: _Scale) -> tuple[Cell, ...]:
    width = scale.high - scale.low
    return tuple(
        Cell(level, _short(scale.low + width * level / LEVELS)) for level in range(0, LEVELS + 1, 2)
    )


def _short(score: float) -> str:
    """Return a score as a narrow cell has it: ``1``, ``.5``, ``.67``."""
    text = f"{score:.2f}".rstrip("0").rstrip(".")
    if text in {"-0", ""}:
        return "0"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text
