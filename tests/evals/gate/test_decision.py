"""The gate passes only what is known to be good enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.gate.reports import report
from promptgraft.errors import ConfigError
from promptgraft.evals.gate import (
    Baseline,
    Comparison,
    GateOutcome,
    GateReport,
    GateRules,
    compare,
    decide,
)


def against(before: GateReport, after: GateReport) -> Comparison:
    return compare(Baseline.of(before), after)


@pytest.mark.parametrize(
    ("rules", "outcome"),
    [
        (GateRules(), GateOutcome.PASSED),
        (GateRules(fail_under=0.5), GateOutcome.PASSED),
        (GateRules(fail_under=0.51), GateOutcome.FAILED),
        (GateRules(min_pass_rate=0.5), GateOutcome.PASSED),
        (GateRules(min_pass_rate=0.6), GateOutcome.FAILED),
        (GateRules(fail_under=0.5, min_pass_rate=0.6), GateOutcome.FAILED),
    ],
)
def test_scores_and_rates_are_held_against_what_was_asked_for(
    rules: GateRules, outcome: GateOutcome
) -> None:
    assert decide(report({"a": 1.0, "b": 0.0}), rules).outcome is outcome


def test_a_mean_that_differs_from_the_limit_by_rounding_only_passes() -> None:
    found = report({"a": 0.1, "b": 0.2, "c": 0.6})
    assert decide(found, GateRules(fail_under=0.3)).passed


def test_an_unscored_answer_is_no_pass_unless_it_is_allowed() -> None:
    found = report({"a": 1.0, "b": None, "c": None})

    refused = decide(found, GateRules(max_unscored=1))
    assert refused.outcome is GateOutcome.UNSCORED
    assert refused.broken[0].said == "2 of 3 answers unscored, at most 1 allowed"
    assert decide(found, GateRules(max_unscored=2)).passed


def test_a_critical_case_without_a_score_never_passes() -> None:
    found = report({"a": 1.0, "b": None}, critical=["b"])

    decision = decide(found, GateRules(max_unscored=5))
    assert decision.outcome is GateOutcome.UNSCORED
    assert "critical among them: b" in decision.broken[0].said


def test_nothing_scored_is_unscored_even_if_everything_is_allowed_to_be() -> None:
    decision = decide(report({"a": None}), GateRules(max_unscored=1, fail_under=0.0))
    assert decision.outcome is GateOutcome.UNSCORED


def test_what_is_not_known_comes_before_what_failed() -> None:
    found = report({"a": 0.0, "b": None})
    assert decide(found, GateRules(fail_under=0.9)).outcome is GateOutcome.UNSCORED

    stopped = report({"a": 0.0, "b": None}, stopped="Ctrl+C")
    assert decide(stopped, GateRules(max_unscored=2)).outcome is GateOutcome.STOPPED


def test_a_critical_case_that_got_worse_fails_though_the_mean_rose() -> None:
    before = report({"a": 0.0, "b": 0.0, "c": 0.8}, critical=["c"])
    after = report({"a": 1.0, "b": 1.0, "c": 0.7}, critical=["c"])

    decision = decide(after, GateRules(tolerance=1.0), against(before, after))
    assert decision.outcome is GateOutcome.FAILED
    assert [one.said for one in decision.broken] == [
        "worse than the baseline: c (0.8 -> 0.7)",
    ]


@pytest.mark.parametrize(("tolerance", "passed"), [(0.0, False), (0.04, False), (0.05, True)])
def test_the_mean_may_fall_by_the_tolerance(tolerance: float, passed: bool) -> None:
    before, after = report({"a": 1.0, "b": 0.9}), report({"a": 0.9, "b": 0.9})
    rules = GateRules(tolerance=tolerance)
    assert decide(after, rules, against(before, after)).passed is passed


def test_a_baseline_without_a_common_score_does_not_pass() -> None:
    before, after = report({"a": None, "b": 1.0}), report({"a": 1.0, "b": None})
    decision = decide(after, GateRules(max_unscored=1), against(before, after))
    assert [one.rule for one in decision.broken] == ["baseline"]


def test_several_answers_to_a_case_are_averaged_and_all_count_for_the_rate() -> None:
    found = report({"a": [1.0, 0.0, None], "b": [1.0, 1.0, 1.0]})

    assert found.mean_score == 0.75
    assert found.pass_rate == 4 / 5
    assert found.case("a").passed is False
    assert [case.id for case in found.failing] == ["a"]
    assert found.unscored == 1


def test_failing_cases_stand_critical_first_then_lowest_first() -> None:
    found = report({"a": 0.3, "b": 0.1, "c": 0.4, "d": 0.9, "e": None}, critical=["c"])
    assert [case.id for case in found.failing] == ["c", "b", "a"]


def test_the_reason_of_a_case_is_that_of_its_first_answer_that_does_not_pass() -> None:
    assert report({"a": [1.0, 0.25]}).case("a").reason == "exact 0.25: not as expected"
    assert report({"a": ["no JSON"]}).case("a").reason == "no JSON"
    assert report({"a": [None]}).case("a").reason == "the provider is ill"
    assert report({"a": [1.0]}).case("a").reason == ""


@pytest.mark.parametrize(
    ("field", "value"),
    [("fail_under", 1.5), ("min_pass_rate", -0.1), ("tolerance", True), ("max_unscored", -1)],
)
def test_rules_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        GateRules(**{field: value})  # type: ignore[arg-type]


scores = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0]))


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(scores, scores), min_size=1),
    st.sets(st.sampled_from("abcdef")),
)
def test_whatever_passes_is_complete_and_nowhere_worse_than_allowed(
    pairs: dict[str, tuple[float | None, float | None]], critical: set[str]
) -> None:
    before = report({id_: pair[0] for id_, pair in pairs.items()}, critical=sorted(critical))
    after = report({id_: pair[1] for id_, pair in pairs.items()}, critical=sorted(critical))

    if decide(after, GateRules(), against(before, after)).passed:
        assert None not in [case.score for case in after.cases]
        both = [(one, other) for one, other in pairs.values() if None not in (one, other)]
        assert sum(other or 0.0 for _, other in both) >= sum(one or 0.0 for one, _ in both)
        for id_ in critical & set(pairs):
            one, other = pairs[id_]
            assert one is None or (other is not None and other >= one)
