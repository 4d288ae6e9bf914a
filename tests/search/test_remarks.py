"""What a run says of answers that all look alike, and of scores that go with length."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from optimizers.worlds import config, examples, optimize, twin, twins
from promptgraft.algorithms.gepa import GepaExample, RolloutFeedback
from promptgraft.errors import ConfigError
from promptgraft.evals.metrics import Exact
from promptgraft.evals.types import Case
from promptgraft.prompt import RenderedPrompt
from promptgraft.search.events import RolloutCompleted
from promptgraft.search.run_phases import Remarks
from promptgraft.search.verdict import HeldOut
from promptgraft.targets.judging import MetricFeedback
from promptgraft.targets.types import RolloutRecord

UNSEEN = tuple(twin(one, f"{one.id}-{copy}") for copy in range(4) for one in examples(6))


def test_a_model_that_always_answers_alike_is_named() -> None:
    result = optimize(config(held_out=UNSEEN, rollout_budget=200), task=lambda _: "(A)  or\n(A)")
    said = f"all {result.total_rollouts} answers of the run were `(A) or (A)`, whatever was asked"
    assert result.remarks == result.ended.remarks == (said,)


@pytest.mark.parametrize(("trace", "told"), [("", 1), ("[book] {}", 0)])
def test_agents_that_say_the_same_after_other_calls_are_not_alike(trace: str, told: int) -> None:
    remarks = Remarks(None, lambda event: None)
    for number in range(12):
        remarks(completed("Booked.", 0.5, case=str(number), trace=trace.format(number)))
    assert len([text for text in remarks.texts(None) if "whatever was asked" in text]) == told


def test_answers_that_could_not_be_used_are_not_like_the_others() -> None:
    remarks = Remarks(None, lambda event: None)
    for number in range(24):
        fault = "answer: expected one of" if number % 2 else ""
        remarks(completed("roads", 0.5, case=str(number), fault=fault))
    assert not any("whatever was asked" in text for text in remarks.texts(None))


def by_length(example: GepaExample, response: Any, session: object) -> RolloutFeedback:
    return RolloutFeedback(score=len(response.text) / 1_000, feedback=f"missing {example.label}")


def completed(
    text: str, score: float, *, case: str = "", trace: str = "", fault: str = ""
) -> RolloutCompleted:
    record = RolloutRecord(
        example_id=case or text,
        inputs_repr="",
        output_repr=text,
        tool_trace_repr=trace,
        fault=fault,
        feedback=RolloutFeedback(score=score, feedback=""),
    )
    return RolloutCompleted(position="baseline/0", record=record, total_rollouts=1)


def test_scores_that_rise_with_length_are_named_with_the_change_in_length() -> None:
    odd = tuple(
        twin(one, f"{'x' * number}-{one.id}")
        for number, one in enumerate(examples(40, first=10**6))
    )

    def rambling(rendered: RenderedPrompt[object]) -> str:
        return "so " * 10 * (len(rendered.text) % 5 + rendered.text.count("w"))

    result = optimize(
        config(held_out=odd, feedback_fn=by_length, rollout_budget=260), task=rambling
    )
    assert result.held_out is not None
    assert result.held_out.answer_length.endswith("%)")
    (remark,) = result.remarks
    assert remark.startswith("scores rise with the length of the answers (correlation 1.00 over ")
    assert result.held_out.answer_length in remark


def test_metrics_that_ask_no_model_do_not_care_for_length() -> None:
    remarks = Remarks(MetricFeedback(metrics=(Exact(),)), print)
    for number in range(40):
        remarks(completed("so " * number, number / 40))
    assert remarks.texts(None) == ()


def test_one_long_answer_makes_no_correlation() -> None:
    remarks = Remarks(by_length, print)
    for number in range(40):
        remarks(completed("so " * (90 if number == 7 else 20), float(number == 7)))
    assert remarks.texts(None) == ()


def test_usual_runs_have_no_remarks() -> None:
    assert optimize(config(held_out=UNSEEN)).remarks == ()


@pytest.mark.parametrize(
    ("chars", "said"),
    [
        (None, ""),
        ((0.0, 9.0), ""),
        ((100.0, 105.0), ""),
        ((1_000.0, 2_500.0), "1,000 -> 2,500 characters (+150%)"),
        ((100.0, 80.0), "100 -> 80 characters (-20%)"),
        ((10.0, 14.0), ""),  # labels
    ],
)
def test_a_change_in_length_is_said_where_there_is_one(
    chars: tuple[float, float] | None, said: str
) -> None:
    assert HeldOut(ids=(), chars=chars).answer_length == said


@pytest.mark.parametrize(
    ("place", "where"),
    [(0, "the validation set asks the same as `odd` in the held-out"), (6, "the training set")],
)
def test_the_same_question_in_two_sets_is_refused(place: int, where: str) -> None:
    found = twins(6)
    odd = attrs.evolve(found[place], id="odd", label="another")
    with pytest.raises(ConfigError, match=f"`{found[place].id}` in {where}"):
        optimize(config(held_out=(odd,)))


def test_examples_that_ask_nothing_known_or_are_in_one_set_are_not_compared() -> None:
    found = twins(6)
    copy = attrs.evolve(found[0], id="copy")
    optimize(config(training_examples=(copy, *found), pareto_set_size=7, rollout_budget=60))
    same = [GepaExample(id=f"o{n}", params=(object(),), label=f"w{n}") for n in range(12)]
    assert same[0] != same[1]


def test_cases_that_ask_the_same_are_refused_whatever_their_parameters() -> None:
    found = [
        attrs.evolve(one, label=Case(id=one.id, input=text))
        for one, text in zip(twins(2), ("a", "b", "c", " A"), strict=True)
    ]
    with pytest.raises(ConfigError, match="`e0` in the validation set asks the same as `e1-again`"):
        optimize(config(training_examples=found, pareto_set_size=2, minibatch_size=1))
