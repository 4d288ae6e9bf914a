"""Who leads where: the candidates on the frontier, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import eq

import attrs

from promptgraft.runs.report.allowance import short_name
from promptgraft.runs.report.data import ReportData, shown_mean
from promptgraft.search.scores import UNSCORED, Score, packed

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
    means = {number: data.candidates[number].mean for number in data.frontier}
    ranked = sorted(means, key=lambda number: (-(means[number] or 0.0), number))
    # Without a mean last, whatever the others have.
    ranked.sort(key=lambda number: means[number] is None)
    tops = _tops([one.scores for one in data.candidates])
    return tuple(_row(data, number, tops, objectives) for number in ranked[:MOST_ROWS])


def _tops(scores: Sequence[Sequence[Score]]) -> Sequence[tuple[float, int]]:
    """Return the highest score on each case, and how many candidates have it."""
    cases = max(map(len, scores), default=0)
    # Candidate by candidate, with whole rows: a large run has millions of scores.
    highest = [UNSCORED] * cases
    for one in scores:
        highest[: len(one)] = map(max, packed(one), highest)
    holders = [0] * cases
    for one in scores:
        for case in compress(range(cases), map(eq, packed(one), highest)):
            holders[case] += 1
    return list(zip(highest, holders, strict=True))


def _row(
    data: ReportData,
    number: int,
    tops: Sequence[tuple[float, int]],
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
        what=short_name(one.changed),
        mean=one.mean,
        shown_mean=shown_mean(one),
        leads=len(led),
        alone=sum(holders == 1 for holders in led),
        objectives=tuple(one.objectives.get(name) for name in objectives),
        is_winner=number == data.winner and number > 0,
    )
