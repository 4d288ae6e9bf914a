"""The gate passes only what is known to be good enough."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.gate.reports import report
from promptgraft.errors import ConfigError
from promptgraft.evals.gate import (
    Baseline,
    Comparison,
    GateOutcome,
    GateReport,
    GateRules,
    Standing,
    compare,
    confirm,
    decide,
)


def against(before: GateReport, after: GateReport, tolerance: float = 0.0) -> Comparison:
    return compare(Baseline.of(before), after, tolerance=tolerance)


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

    decision = decide(after, GateRules(), against(before, after, tolerance=1.0))
    assert decision.outcome is GateOutcome.FAILED
    assert [one.said for one in decision.broken] == [
        "worse than the baseline: c (0.8 -> 0.7)",
    ]


@pytest.mark.parametrize(("tolerance", "passed"), [(0.0, False), (0.04, False), (0.05, True)])
def test_the_means_of_too_few_cases_decide(tolerance: float, passed: bool) -> None:
    before, after = report({"a": 1.0, "b": 0.9}), report({"a": 0.9, "b": 0.9})
    assert decide(after, GateRules(), against(before, after, tolerance)).passed is passed


def scored(won: int, lost: int, tied: int = 0) -> tuple[GateReport, GateReport]:
    """Two reports of as many cases that were won, lost and tied."""
    before = [0.0] * won + [1.0] * (lost + tied)
    after = [1.0] * won + [0.0] * lost + [1.0] * tied
    return tuple(  # type: ignore[return-value]
        report({f"c{number}": score for number, score in enumerate(side)})
        for side in (before, after)
    )


@pytest.mark.parametrize(
    ("won", "lost", "tied", "tolerance", "verdict"),
    [
        (0, 6, 0, 0.0, Standing.WORSE),
        (1, 5, 0, 0.0, Standing.UNCLEAR),
        (0, 6, 6, 0.5, Standing.UNCLEAR),
        (0, 6, 6, 0.8, Standing.NOT_WORSE),
        (10, 10, 0, 0.1, Standing.UNCLEAR),
        (10, 10, 60, 0.2, Standing.NOT_WORSE),
        (0, 0, 8, 0.0, Standing.NOT_WORSE),
        (3, 0, 0, 0.0, Standing.NOT_WORSE),
        (12, 1, 0, 0.0, Standing.NOT_WORSE),
    ],
)
def test_a_prompt_is_worse_or_not_or_it_is_unclear(
    won: int, lost: int, tied: int, tolerance: float, verdict: Standing
) -> None:
    before, after = scored(won, lost, tied)
    found = against(before, after, tolerance)

    assert found.verdict is verdict
    assert found.said.startswith(f"{verdict}: mean score ")
    assert decide(after, GateRules(), found).passed is (verdict is not Standing.WORSE)
    strict = decide(after, GateRules(refuse_unclear=True), found)
    assert strict.passed is (verdict is Standing.NOT_WORSE)


def asked_again(answers: list[float | None], before: float = 1.0) -> tuple[GateReport, int]:
    """Confirm a critical case that answers like this, one after the other."""
    kept = Baseline.of(report({"a": before, "b": 1.0}, critical=["a"]))
    first = report({"a": answers[0], "b": 0.0}, critical=["a"], dataset=kept.dataset)
    found = confirm(kept, first, lambda ids, again: report(dict.fromkeys(ids, answers[again])))
    return found, 1 + len(found.case("a").again)


@pytest.mark.parametrize(
    ("answers", "asked", "lost"),
    [
        ([0.0, 0.0, 0.0], 3, True),
        ([0.0, 1.0], 2, False),
        ([0.0, 0.0, 1.0], 3, False),
        ([0.9, 0.9, 0.9], 3, True),
        ([0.9, 0.8, 0.7], 3, False),
        ([0.2, 0.3, 0.2], 3, True),
        ([0.0, None, 0.0, 0.0], 4, True),
    ],
)
def test_a_critical_case_is_asked_again_before_it_fails_the_gate(
    answers: list[float | None], asked: int, lost: bool
) -> None:
    after, count = asked_again(answers)
    found = against(report({"a": 1.0, "b": 1.0}, critical=["a"]), after, tolerance=1.0)

    assert (count, bool(found.lost)) == (asked, lost)
    assert decide(after, GateRules(), found).passed is not lost
    assert after.case("a").score == answers[0]
    assert after.case("b").again == ()


def test_an_evaluation_that_is_stopped_while_it_asks_again_is_stopped() -> None:
    kept = Baseline.of(report({"a": 1.0}, critical=["a"]))
    first = report({"a": 0.0}, critical=["a"])
    found = confirm(kept, first, lambda *_: report({"a": None}, stopped="Ctrl+C"))
    assert decide(found, GateRules(), compare(kept, found)).outcome is GateOutcome.STOPPED


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
    [("fail_under", 1.5), ("min_pass_rate", -0.1), ("refuse_unclear", 1), ("max_unscored", -1)],
)
def test_rules_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        GateRules(**{field: value})  # type: ignore[arg-type]


scores = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0]))


@settings(max_examples=20)
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
        fell = sum(other or 0.0 for _, other in both) < sum(one or 0.0 for one, _ in both)
        assert not fell or len(both) >= 6
        for id_ in critical & set(pairs):
            one, other = pairs[id_]
            assert one is None or (other is not None and other >= one)
