"""What scores may be: numbers of any kind, up to the score that counts as perfect."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from optimizers.worlds import Run, config, optimize, scored
from promptgraft import RolloutFeedback, StopReason
from promptgraft.errors import ConfigError, FeedbackError
from promptgraft.evals import metrics
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.ground.serde import unstructure
from promptgraft.journal import MemoryJournal

CASE, ANSWER = Case(id="a", input=""), Answer(text="")


def feedback(score: Any, **objectives: Any) -> RolloutFeedback:
    return RolloutFeedback(score=score, feedback="", objectives=objectives)


@pytest.mark.parametrize(
    ("score", "number"), [(True, 1.0), (False, 0.0), (1, 1.0), (Decimal("0.25"), 0.25)]
)
def test_numbers_of_any_kind_are_scores(score: object, number: float) -> None:
    found = feedback(score, brief=score)
    assert (found.score, type(found.score)) == (number, float)
    assert dict(found.objectives) == {"brief": number}


def test_numbers_of_numpy_are_scores() -> None:
    numpy = pytest.importorskip("numpy")
    for score in (numpy.float32(0.5), numpy.float64(0.5), numpy.array(0.5)):
        assert feedback(score, brief=score) == feedback(0.5, brief=0.5)
    assert feedback(numpy.bool_(True)).score == feedback(numpy.int64(1)).score == 1.0
    with pytest.raises(FeedbackError, match="score: expected a finite number"):
        feedback(numpy.array([0.5, 0.5]))


def judged_by(outcome: Any) -> Verdict:
    def returned(case: Case, answer: Answer) -> Any:
        return outcome

    return metrics.python(function=returned).judge(CASE, ANSWER)


def verdict(score: Any, passed: Any = True) -> Verdict:
    return Verdict(metric="mine", score=score, passed=passed, reason="")


@pytest.mark.parametrize(
    ("score", "number"), [(True, 1.0), (False, 0.0), (1, 1.0), (Decimal("0.25"), 0.25)]
)
def test_numbers_of_any_kind_are_scores_of_metrics(score: object, number: float) -> None:
    found = verdict(score)
    assert (found.score, type(found.score)) == (number, float)
    for outcome in (score, (score, "so"), found):
        judged = judged_by(outcome)
        assert (judged.score, type(judged.score)) == (number, float)


def test_numbers_of_numpy_are_scores_of_metrics() -> None:
    numpy = pytest.importorskip("numpy")
    for score in (numpy.float32(0.5), numpy.float64(0.5), numpy.array(0.5)):
        found = verdict(score, passed=score >= 0.5)
        assert found == verdict(0.5)
        assert unstructure(found) == unstructure(verdict(0.5))
        assert judged_by(score).score == 0.5
    with pytest.raises(ConfigError, match="metric `mine`: expected a score from 0 to 1"):
        verdict(numpy.array([0.5, 0.5]))


@pytest.mark.parametrize("score", ["0.5", Decimal("NaN"), Decimal(2), 10**400, [0.5], -1])
def test_what_is_no_number_from_0_to_1_is_no_score_of_a_metric(score: object) -> None:
    with pytest.raises(ConfigError, match="metric `mine`: expected a score from 0 to 1"):
        verdict(score)
    with pytest.raises(FeedbackError, match="expected a score from 0 to 1"):
        judged_by(score)


@pytest.mark.parametrize("score", ["0.5", None, Decimal("NaN"), float("inf"), 10**400, [0.5]])
def test_what_is_no_finite_number_is_no_score(score: object) -> None:
    with pytest.raises(FeedbackError, match="score: expected a finite number"):
        feedback(score)
    with pytest.raises(FeedbackError, match="objectives: expected a finite number"):
        feedback(0.5, brief=score)


def test_a_score_above_the_perfect_one_is_refused_at_the_first_rollout() -> None:
    journal = MemoryJournal()
    with pytest.raises(
        FeedbackError,
        match=r"example `e0`: the score 7 is above objectives\.perfect_score, 1; set that to",
    ):
        Run(config(feedback_fn=scored(7.0)), journal=journal).start()
    assert not [one for one in journal.records() if one.kind == "rollout"]


@pytest.mark.parametrize("perfect_score", [-5, 0.5])
@pytest.mark.parametrize("weights", [{}, {"score": 1.0, "brief": 1.0}])
def test_a_perfect_score_below_any_score_is_refused_and_no_run_ends_as_perfect(
    weights: dict[str, float], perfect_score: float
) -> None:
    def give(example: object, response: object, session: object) -> RolloutFeedback:
        return RolloutFeedback(score=0.8, feedback="", objectives={"brief": 0.9})

    settings = config(feedback_fn=give, weights=weights, perfect_score=perfect_score)
    said = rf"the score 0\.8\d* is above objectives\.perfect_score, {perfect_score}; set that to"
    with pytest.raises(FeedbackError, match=said):
        optimize(settings)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"score": 1.0, "brief": 1.0}, r"example `e0`: the score 4 is above objectives\.perfect"),
        ({"score": 1.0, "tokens": 1.0}, r"example `e0`: the score 3\.5 is above objectives\.perf"),
        ({"score": 1.0, "breif": 1.0}, "example `e0` has no objective `breif` .did you mean"),
    ],
)
def test_what_weights_make_unusable_is_found_at_the_first_rollout(
    weights: dict[str, float], said: str
) -> None:
    journal = MemoryJournal()

    def give(example: object, response: object, session: object) -> RolloutFeedback:
        return RolloutFeedback(score=7.0, feedback="", objectives={"brief": 1.0})

    with pytest.raises(FeedbackError, match=said):
        Run(config(feedback_fn=give, weights=weights), journal=journal).start()
    assert not [one for one in journal.records() if one.kind == "rollout"]


def test_with_its_own_perfect_score_a_metric_of_0_to_10_is_searched_with() -> None:
    result = optimize(config(feedback_fn=scored(7.0), perfect_score=10.0))
    assert result.stop_reason is not StopReason.PERFECT
    assert result.baseline_pareto_mean == 7.0


def test_rounding_of_a_sum_makes_no_score_too_high() -> None:
    result = optimize(config(feedback_fn=scored(0.1 + 0.2 + 0.7 + 1e-12)))
    assert result.stop_reason is StopReason.PERFECT
