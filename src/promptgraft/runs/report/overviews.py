"""Pages over several runs: two side by side, and all runs of a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from promptgraft.runs.comparing import (
    Incomparable,
    figure_rows,
    figures_of,
    gain_between,
    incomparable,
    seen_scores,
    unseen_scores,
)
from promptgraft.runs.records import RunRecord, RunSummary
from promptgraft.runs.report.page import filled
from promptgraft.runs.report.tables import reach_of
from promptgraft.runs.report.texts import changes_between, outcome
from promptgraft.search.scores import Score

_MOST_CASES = 3_000
_MOST_RUNS = 2_000


@attrs.frozen
class TwoScores:
    """What the best candidates of two runs scored on a case of one set, and who was better."""

    set: str
    case: str
    before: Score
    after: Score
    outcome: str


def comparison_page(first: RunRecord, second: RunRecord) -> str:
    """Return the page that shows two runs side by side: figures, texts, scores case by case."""
    differing, sides = incomparable(first, second), (figures_of(first), figures_of(second))
    texts = [record.sides[1].texts if record.sides else {} for record in (first, second)]
    cases = tuple(_cases(first, second, differing))
    return filled(
        "compare.html",
        sides=sides,
        reasons=differing.reasons,
        rows=figure_rows(*sides, differing),
        gain=gain_between(first, second, differing),
        changes=tuple(changes_between(*texts)),
        cases=cases[:_MOST_CASES],
        left_out=len(cases[_MOST_CASES:]),
    )


def history_page(folder: str, runs: Sequence[RunSummary]) -> str:
    """Return the page that lists the runs of a folder with what each has gained."""
    gains = [run.held_out for run in runs if run.held_out and run.held_out.cases]
    return filled(
        "history.html",
        folder=folder,
        runs=runs[:_MOST_RUNS],
        left_out=len(runs[_MOST_RUNS:]),
        reach=reach_of(gains),
    )


def _cases(first: RunRecord, second: RunRecord, differing: Incomparable) -> Iterator[TwoScores]:
    for name, reasons, one, other in (
        ("held out", differing.held_out, unseen_scores(first), unseen_scores(second)),
        ("validation", differing.pareto, seen_scores(first), seen_scores(second)),
    ):
        for case in one if not reasons else ():
            if case in other:
                yield TwoScores(name, case, one[case], other[case], outcome(one[case], other[case]))
