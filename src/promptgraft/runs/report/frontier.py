"""Who leads where: the candidates on the frontier, as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress
from operator import eq

import attrs

from promptgraft.runs.report.allowance import short_name
from promptgraft.runs.report.data import ReportData
from promptgraft.search.events import CandidateAdded
from promptgraft.search.scores import UNSCORED, Score, packed

MOST_ROWS = 100


@attrs.frozen(kw_only=True)
class FrontierRow:
    """One candidate of the frontier.

    Attributes:
        value: the candidate.
        what: the part that it changed.
        leads: on how many cases nobody has a higher score.
        alone: on how many of these nobody has as high a score.
        objectives: its means in the objectives of the run.
    """

    value: CandidateAdded
    what: str
    leads: int
    alone: int
    objectives: tuple[Score, ...]


def leaders(data: ReportData) -> list[int]:
    """Return the positions on the frontier, the highest means first, those without one last."""
    means = {number: data.candidates[number].mean for number in data.frontier}
    return sorted(means, key=lambda number: (means[number] is None, -(means[number] or 0), number))


def frontier_rows(data: ReportData, objectives: Sequence[str]) -> tuple[FrontierRow, ...]:
    """Return the frontier, the highest means first; at most ``MOST_ROWS``."""
    highest, holders = _tops([one.scores for one in data.candidates])
    rows = []
    for number in leaders(data)[:MOST_ROWS]:
        one = data.candidates[number]
        led = [*compress(holders, map(eq, packed(one.scores), highest))]
        row = FrontierRow(
            value=one,
            what=short_name(one.changed),
            leads=len(led),
            alone=led.count(1),
            objectives=tuple(one.objectives.get(name) for name in objectives),
        )
        rows.append(row)
    return tuple(rows)


def _tops(scores: Sequence[Sequence[Score]]) -> tuple[Sequence[float], Sequence[int]]:
    """Return the highest score on each case, and how many candidates have it."""
    cases = max(map(len, scores), default=0)
    # Candidate by candidate, with whole rows: a large run has millions of scores.
    highest = [UNSCORED] * cases
    for one in scores:
        highest[: len(one)] = map(max, packed(one), highest)
    highest = [math.nan if top == UNSCORED else top for top in highest]  # equal to no score
    holders = [0] * cases
    for one in scores:
        for case in compress(range(cases), map(eq, packed(one), highest)):
            holders[case] += 1
    return highest, holders
