"""Aggregation of verdicts into a pass rate and a mean score, with nothing left out."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgraft.errors import ConfigError
from promptgraft.evals import metrics
from promptgraft.evals.aggregate import (
    CaseOutcome,
    CaseStatus,
    Lexicographic,
    WeightedMean,
    check_aggregation,
    crashed,
    judged,
    summarize,
    unscored,
)
from promptgraft.evals.types import Verdict

THREE = (
    metrics.exact(name="a", threshold=0.8),
    metrics.exact(name="b", threshold=0.6),
    metrics.exact(name="c"),
)


def verdicts(*scores: float | None, names: str = "abc") -> list[Verdict]:
    limits = {"a": 0.8, "b": 0.6, "c": 1.0}
    return [
        Verdict(
            metric=name,
            score=score,
            passed=None if score is None else score >= limits[name],
            reason="dead" if score is None else "judged",
        )
        for name, score in zip(names, scores, strict=True)
    ]


def test_a_case_passes_when_all_its_metrics_do_and_the_rate_is_the_share_of_such_cases() -> None:
    table = [(0.9, 0.7, 1.0), (0.85, 0.4, 1.0), (0.6, 0.8, 0.0), (0.95, 0.9, 1.0)]
    cases = [judged(f"case_{n}", verdicts(*row), THREE) for n, row in enumerate(table)]

    report = summarize(cases, THREE)

    assert [case.status.value for case in cases] == ["passed", "failed", "failed", "passed"]
    assert (report.pass_rate, report.passed, report.failed) == (0.5, 2, 2)
    assert report.mean_score == pytest.approx(sum(map(sum, table)) / 12)
    assert [m.mean_score for m in report.metrics] == pytest.approx([0.825, 0.7, 0.75])
    assert [(m.passed, m.failed, m.unscored) for m in report.metrics] == [(3, 1, 0)] * 3


def test_nothing_passing_is_a_pass_rate_of_zero_whatever_the_mean_score() -> None:
    report = summarize([judged("x", verdicts(1, 1, 0), THREE)] * 4, THREE)
    assert report.pass_rate == 0
    assert report.mean_score == pytest.approx(2 / 3)


def test_a_case_that_crashed_counts_as_zero_and_failed_for_every_metric() -> None:
    report = summarize(
        [judged("x", verdicts(1, 1, 1), THREE), *(crashed(n, "KeyError") for n in "pqr")], THREE
    )
    assert (report.pass_rate, report.mean_score) == (0.25, 0.25)
    assert report.crashed == ("p", "q", "r")
    assert [(m.mean_score, m.passed, m.failed) for m in report.metrics] == [(0.25, 1, 3)] * 3


def test_an_unscored_case_is_named_and_in_no_mean() -> None:
    silent = judged("dead", verdicts(1, None, 1), THREE)
    assert (silent.status, silent.score) == (CaseStatus.UNSCORED, None)
    assert silent.error == "b: dead"

    report = summarize(
        [judged("x", verdicts(1, 1, 1), THREE), silent, unscored("gone", "429")], THREE
    )
    assert (report.pass_rate, report.mean_score) == (1.0, 1.0)
    assert report.unscored == ("dead", "gone")
    assert [m.unscored for m in report.metrics] == [1, 2, 1]
    assert [m.mean_score for m in report.metrics] == [1.0, 1.0, 1.0]


def test_when_nothing_has_a_score_there_is_no_rate_and_no_mean() -> None:
    report = summarize([unscored("a", "dead judge")], THREE)
    assert (report.pass_rate, report.mean_score, report.passed) == (None, None, 0)
    assert {m.mean_score for m in report.metrics} == {None}
    assert summarize([], THREE).pass_rate is None


def test_a_metric_that_is_not_required_decides_neither_pass_nor_score() -> None:
    chosen = (THREE[0], metrics.exact(name="b", required=False))
    names = "ab"
    failed = judged("x", verdicts(1, 0, names=names), chosen)
    silent = judged("x", verdicts(1, None, names=names), chosen)
    assert (failed.status, failed.score) == (CaseStatus.PASSED, 1.0)
    assert (silent.status, silent.score) == (CaseStatus.PASSED, 1.0)

    weighed = judged("x", verdicts(1, 0, names=names), chosen, WeightedMean({"a": 3, "b": 1}))
    assert (weighed.status, weighed.score) == (CaseStatus.PASSED, 0.75)
    needed = judged("x", verdicts(1, None, names=names), chosen, WeightedMean({"a": 3, "b": 1}))
    assert needed.status is CaseStatus.UNSCORED
    required = judged("x", verdicts(1, None, names=names), THREE[:2], WeightedMean({"a": 1}))
    assert required.status is CaseStatus.UNSCORED


def test_when_no_metric_is_required_all_of_them_decide() -> None:
    chosen = tuple(metrics.exact(name=name, required=False) for name in "ab")
    assert judged("x", verdicts(1, 0, names="ab"), chosen).status is CaseStatus.FAILED


def test_a_failed_assertion_is_a_score_of_zero_whatever_the_weights() -> None:
    chosen = (THREE[0], metrics.assertion(name="c", expressions=("this",)))
    ended = judged("x", verdicts(1, 0, names="ac"), chosen, WeightedMean({"a": 1}))
    assert (ended.status, ended.score) == (CaseStatus.FAILED, 0.0)


@pytest.mark.parametrize("names", ["ab", "acb", "abd"])
def test_verdicts_that_are_not_those_of_the_metrics_are_refused(names: str) -> None:
    given_ = [Verdict(metric=name, score=1.0, passed=True, reason="") for name in names]
    with pytest.raises(ConfigError, match="case `x`: expected one verdict of each of"):
        judged("x", given_, THREE)


def test_amounts_are_kept_beside_the_scores() -> None:
    metric = metrics.tokens(limit=100)
    cases = [
        judged(str(amount), [metric.verdict(1.0, "fine", amount=amount)], [metric])
        for amount in (10.0, 30.0)
    ]
    (summary,) = summarize(cases, [metric]).metrics
    assert summary.mean_amount == 20


def test_a_report_is_plain_data() -> None:
    report = summarize([judged("x", verdicts(1, 1, 0), THREE), crashed("y", "boom")], THREE)
    plain = json.loads(json.dumps(report.to_json()))
    assert plain["version"] == 1
    assert plain["pass_rate"] == 0.0
    assert plain["cases"][1] == {
        "case_id": "y",
        "status": "crashed",
        "score": 0.0,
        "verdicts": [],
        "error": "boom",
    }
    assert plain["metrics"][0]["threshold"] == 0.8


outcomes = st.lists(
    st.sampled_from("pfcu").map(
        {
            "p": judged("p", verdicts(1, 1, 1), THREE),
            "f": judged("f", verdicts(0.5, 1, 0), THREE),
            "c": crashed("c", "boom"),
            "u": judged("u", verdicts(1, 1, None), THREE),
        }.__getitem__
    ),
    max_size=12,
)


@settings(max_examples=60)
@given(cases=outcomes, more=outcomes)
def test_every_case_is_counted_once_and_crashing_never_helps(
    cases: list[CaseOutcome], more: list[CaseOutcome]
) -> None:
    report = summarize(cases, THREE)
    counted = report.passed + report.failed + len(report.crashed) + len(report.unscored)
    assert counted == len(cases)
    for figure in (report.pass_rate, report.mean_score):
        assert figure is None or 0 <= figure <= 1
    if report.mean_score is not None and report.pass_rate is not None:
        worse = summarize([*cases, crashed("z", "boom")], THREE)
        assert (worse.mean_score or 0) <= report.mean_score
        assert (worse.pass_rate or 0) <= report.pass_rate
        same = summarize([*cases, unscored("z", "dead")], THREE)
        assert (same.mean_score, same.pass_rate) == (report.mean_score, report.pass_rate)
    one, other = summarize([*cases, *more], THREE), summarize([*more, *cases], THREE)
    assert (one.mean_score, one.pass_rate) == (other.mean_score, other.pass_rate)


def test_weights_are_normalised_and_orders_compare_one_after_the_other() -> None:
    weighted = WeightedMean({"accuracy": 8, "tokens": 2})
    assert weighted.score({"accuracy": 1.0, "tokens": 0.5, "other": 0}) == pytest.approx(0.9)

    order = Lexicographic(("accuracy", "tokens"))
    worse = order.score({"accuracy": 0.5, "tokens": 1})
    assert worse == pytest.approx(0.5, abs=0.001)
    assert order.score({"accuracy": 0.502, "tokens": 0}) > worse
    assert order.score({"accuracy": 0.5, "tokens": 0.9}) < worse


@pytest.mark.parametrize(
    ("weights", "fault"),
    [
        ({"a": -1, "b": 2}, "expected a number of at least 0 for `a`, found -1"),
        ({"a": math.nan}, "for `a`, found nan"),
        ({"a": math.inf}, "for `a`, found inf"),
        ({"a": 0, "b": 0}, "expected at least one weight above 0"),
        ({}, "expected at least one weight above 0"),
    ],
)
def test_weights_that_make_no_mean_are_refused_in_one_line(
    weights: dict[str, float], fault: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        WeightedMean(weights)
    assert fault in str(caught.value)


@pytest.mark.parametrize("order", [("a", "b", "a"), ()])
def test_an_order_needs_different_metrics(order: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="expected different metrics"):
        Lexicographic(order)


def test_weights_of_unknown_metrics_are_refused() -> None:
    for aggregation in (
        WeightedMean({"accuracy": 1, "tokns": 1}),
        Lexicographic(("accuracy", "tokns")),
    ):
        with pytest.raises(ConfigError, match=r"unknown metric `tokns` .did you mean `tokens`"):
            check_aggregation(aggregation, ["accuracy", "tokens"])
    with pytest.raises(ConfigError, match="unknown metric `z`; there are `a`, `b`, `c`"):
        judged("x", verdicts(1, 1, 1), THREE, WeightedMean({"z": 1}))
