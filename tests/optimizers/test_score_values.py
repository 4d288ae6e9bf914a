"""What scores may be: numbers of any kind, up to the score that counts as perfect."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from optimizers.worlds import Run, config, optimize, scored
from promptgraft import RolloutFeedback, StopReason
from promptgraft.errors import FeedbackError
from promptgraft.journal import MemoryJournal


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


def test_with_its_own_perfect_score_a_metric_of_0_to_10_is_searched_with() -> None:
    result = optimize(config(feedback_fn=scored(7.0), perfect_score=10.0))
    assert result.stop_reason is not StopReason.PERFECT
    assert result.baseline_pareto_mean == 7.0


def test_rounding_of_a_sum_makes_no_score_too_high() -> None:
    result = optimize(config(feedback_fn=scored(0.1 + 0.2 + 0.7 + 1e-12)))
    assert result.stop_reason is StopReason.PERFECT
