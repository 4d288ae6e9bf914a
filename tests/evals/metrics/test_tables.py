"""Every row of every table in `tables.md` is the actual result of the metric."""

from __future__ import annotations

import pytest

from evals.metrics.metric_tables import Row, answer_of, case_of, rows
from promptgraft.evals.metrics import METRICS, load_metrics
from promptgraft.evals.metrics.base import verdict_of

ROWS = rows()


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.metric}-{n}" for n, row in enumerate(ROWS)])
def test_a_row_is_what_the_metric_says(row: Row) -> None:
    (metric,) = load_metrics([{"name": row.metric, **row.options}])

    verdict = verdict_of(metric, case_of(row.metric, row.expected), answer_of(row.answer))

    score = "unscored" if verdict.score is None else f"{verdict.score:.4g}"
    assert score + (" fails" if verdict.passed is False else "") == row.score
    assert verdict.reason == row.reason
    assert verdict.metric == row.metric


def test_every_kind_has_a_table_with_passes_and_failures() -> None:
    not_tabled = {"python", "final_response_avg_score", "tool_trajectory_avg_score"}
    not_tabled |= {"response_match_score"} | {name for name in METRICS.names if "llm" in name}
    assert {row.metric for row in ROWS} == {*METRICS.names} - not_tabled
    for metric in {row.metric for row in ROWS}:
        scores = [row.score for row in ROWS if row.metric == metric]
        assert any(score.endswith("fails") for score in scores)
        assert any(not score.endswith("fails") and score != "unscored" for score in scores)
