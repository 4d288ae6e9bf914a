"""The figures of a report: the held-out result, the frontier, and scores case by candidate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from operator import eq

import attrs

from promptgraft.evals.statistics import Gain
from promptgraft.runs.documents import highest_scores
from promptgraft.runs.report.data import ReportData
from promptgraft.runs.report.texts import brief, outcome
from promptgraft.search.events import CandidateAdded
from promptgraft.search.scores import Score, packed

LEVELS = 10
UNSCORED = LEVELS + 1
"""The level of a cell without a score."""

_MOST_ROWS = 100
_MOST_COLUMNS = 60
_MOST_CELLS = 6_000
# Of a map that would be larger.
_FEWER_COLUMNS = 20
_FEWER_ROWS = 400


def reach_of(gains: Iterable[Gain]) -> float:
    """Return how far a drawing of gains must reach to either side of 0."""
    ends = (abs(end) for gain in gains for end in (gain.low, gain.high) if end is not None)
    return max(ends, default=0.0) or 1.0


def across(value: float, reach: float, width: int) -> float:
    """Return where a gain stands in a drawing with 0 in its middle."""
    return round(width / 2 + value / reach * (width / 2 - 8), 1)


def frontier_rows(data: ReportData) -> list[tuple[CandidateAdded, int, int]]:
    """Return the frontier, the highest means first; at most 100 candidates.

    With each stands on how many cases no other one has a higher score, and on how many of these
    none has as high a one.
    """
    scores = [one.scores for one in data.candidates]
    highest = highest_scores(scores)
    holders = [0] * len(highest)
    for found in scores:
        for case in compress(range(len(highest)), map(eq, packed(found), highest)):
            holders[case] += 1
    rows = []
    for number in data.leaders[:_MOST_ROWS]:
        one = data.candidates[number]
        led = [*compress(holders, map(eq, packed(one.scores), highest))]
        rows.append((one, len(led), led.count(1)))
    return rows


@attrs.frozen
class Cell:
    """A score in a table: its level from 0 to ``LEVELS``, ``UNSCORED`` for none, and its text."""

    level: int
    text: str


@attrs.frozen(kw_only=True)
class CaseRow:
    """The scores on one case.

    Attributes:
        input: the beginning of its input; empty when no answer to it is at hand.
        outcome: what became of it with the winner: ``better``, ``worse``, ``same``, ``unscored``.
        failed: whether the winner is not perfect on it.
    """

    case: str
    input: str
    outcome: str
    failed: bool
    cells: tuple[Cell, ...]


@attrs.frozen(kw_only=True)
class HeatMap:
    """Scores case by candidate: of a large run those of the leaders, on the first cases.

    ``candidates`` are the positions of the columns, ``means`` their means; ``legend`` has the
    levels with the scores that they stand for.
    """

    candidates: tuple[int, ...]
    rows: tuple[CaseRow, ...]
    means: tuple[str, ...]
    legend: tuple[Cell, ...]
    has_unscored: bool


def heat_map(data: ReportData) -> HeatMap | None:
    """Return the map of a run; None without candidates or cases."""
    if not data.candidates or not data.case_ids:
        return None
    columns, cases = list(range(len(data.candidates))), data.case_ids
    if len(columns) > _MOST_COLUMNS or len(columns) * len(cases) > _MOST_CELLS:
        columns = [*dict.fromkeys((0, data.winner, *data.leaders))][:_FEWER_COLUMNS]
        cases = cases[:_FEWER_ROWS]
    low, high = _scale(one.scores for one in data.candidates)

    def cell(score: Score) -> Cell:
        if score is None:
            return Cell(UNSCORED, "–")
        return Cell(round((score - low) / (high - low) * LEVELS), _short(score))

    shown = [data.candidates[number] for number in columns]
    return HeatMap(
        candidates=tuple(columns),
        rows=tuple(
            _case_row(data, at, case, tuple(cell(_score(one, at)) for one in shown))
            for at, case in enumerate(cases)
        ),
        means=tuple(map(_mean, shown)),
        legend=tuple(
            cell(low + (high - low) * level / LEVELS) for level in range(0, LEVELS + 1, 2)
        ),
        has_unscored=any(None in one.scores for one in shown),
    )


def _case_row(data: ReportData, at: int, case: str, cells: tuple[Cell, ...]) -> CaseRow:
    answer = data.answers.get((0, case)) or data.answers.get((data.winner, case))
    before, after = (_score(data.candidates[number], at) for number in (0, data.winner))
    return CaseRow(
        case=case,
        input=brief(answer.inputs_repr) if answer else "",
        outcome=outcome(before, after),
        failed=after is None or after < data.perfect,
        cells=cells,
    )


def _score(one: CandidateAdded, at: int) -> Score:
    return one.scores[at] if at < len(one.scores) else None


def _scale(scores: Iterable[Sequence[Score]]) -> tuple[float, float]:
    """Return the ends of the scale: 0 and 1, or the lowest and the highest score beyond."""
    # Row by row: all scores of a long run at once are hundreds of megabytes.
    rows = (
        packed(row) if None not in row else [score for score in row if score is not None]
        for row in scores
    )
    ends = [(min(row), max(row)) for row in rows if row]
    low = min((least for least, _ in ends), default=0.0)
    high = max((most for _, most in ends), default=1.0)
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return low, high if high > low else low + 1


def _mean(one: CandidateAdded) -> str:
    if one.mean is None:
        return "–"
    return f"{'~' if one.estimated else ''}{one.mean:.2f}"


def _short(score: float) -> str:
    """Return a score as a narrow cell has it: ``1``, ``.5``, ``.67``."""
    text = f"{score:.2f}".rstrip("0").rstrip(".")
    if text in {"-0", ""}:
        return "0"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text
