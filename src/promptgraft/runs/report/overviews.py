"""Pages over several runs: two side by side, and all runs of a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from promptgraft.evals.statistics import gain
from promptgraft.runs.comparing import Incomparable, figure_rows, figures_of, incomparable
from promptgraft.runs.records import RunRecord, RunSummary
from promptgraft.runs.report.page import filled
from promptgraft.runs.report.tables import reach_of
from promptgraft.runs.report.texts import changes_between, outcome
from promptgraft.search.scores import Score

_MOST_CASES = 3_000
_MOST_RUNS = 2_000

_Scores = Mapping[str, Score]


@attrs.frozen
class TwoScores:
    """What the best candidates of two runs scored on a case of one set, and who was better."""

    set: str
    case: str
    before: Score
    after: Score
    outcome: str


def comparison_page(first: RunRecord, second: RunRecord) -> str:
    """Return the page that shows two runs side by side: figures, texts, scores case by case.

    Raises:
        OSError: a journal cannot be read.
    """
    differing, sides = incomparable(first, second), (figures_of(first), figures_of(second))
    texts = [record.sides[1].texts if record.sides else {} for record in (first, second)]
    before, after = (
        {case: (score,) for case, score in _unseen(record).items()} for record in (first, second)
    )
    cases = tuple(_cases(first, second, differing))
    return filled(
        "compare.html",
        sides=sides,
        reasons=differing.reasons,
        rows=figure_rows(*sides, differing),
        gain=gain(before, after) if before and after and not differing.held_out else None,
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
        ("held out", differing.held_out, _unseen(first), _unseen(second)),
        ("validation", differing.pareto, _seen(first), _seen(second)),
    ):
        for case in one if not reasons else ():
            if case in other:
                yield TwoScores(name, case, one[case], other[case], outcome(one[case], other[case]))


def _seen(record: RunRecord) -> _Scores:
    best = record.sides[1] if record.sides else None
    return dict(zip(record.pareto_ids, best.scores, strict=False)) if best else {}


def _unseen(record: RunRecord) -> _Scores:
    """Return what the winner scored on held-out cases; nothing when it was not measured."""
    found = record.ended.held_out if record.ended else None
    return dict(zip(found.ids, found.winner_scores, strict=False)) if found else {}
