"""Runs that cannot make progress end, and say why, without burning the budget."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from optimizers.worlds import (
    OVERLOADED,
    REFUSED,
    RULES,
    Run,
    bound,
    config,
    current_text,
    examples,
    failing,
    instruction,
    numbered,
    optimize,
    propose,
    records,
    scored,
    twin,
    twins,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import (
    FeedbackFn,
    GepaExample,
    GepaMutationProposed,
    GepaResult,
    RolloutFeedback,
)
from promptgraft.errors import ProviderError
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import Session, SessionProtocol
from promptgraft.search import RejectionReason, StopReason

Rendered = RenderedPrompt[object]


# The reflection model


def test_a_reflection_model_that_is_down_stops_the_run_after_some_steps() -> None:
    def down(rendered: Rendered) -> str:
        raise OVERLOADED

    run = Run(config(max_failed_reflections=4), reflection=down)
    result = run.start()
    assert result.stop_reason is StopReason.REFLECTION_FAILED
    assert result.stop_detail == (
        "4 steps gave no usable proposal; the last: the reflection model failed: 429: overloaded"
    )
    assert result.total_reflections == run.reflection.calls == 4  # no repair: nothing to mend
    assert result.total_rollouts == run.task.calls == 6 + 4 * 3
    assert {r.reason for r in result.rejections} == {RejectionReason.REFLECTION_FAILED}


def test_a_run_that_ended_with_its_reflection_model_can_go_on() -> None:
    def down(rendered: Rendered) -> str:
        raise OVERLOADED

    journal = MemoryJournal()
    assert optimize(reflection=down, journal=journal).stop_reason is StopReason.REFLECTION_FAILED
    kinds = {key: record.kind for key, record in records(journal).items()}
    assert [key for key, kind in kinds.items() if kind == "fault"] == [
        f"step/{step}/reflect/0" for step in (1, 2, 3, 4)
    ]
    rest = Run(journal=journal)
    result = rest.start()
    assert result.found_better
    assert result.stop_reason is StopReason.PERFECT
    assert result.total_reflections == rest.reflection.calls + 4


def test_a_reflection_model_that_refuses_for_good_stops_the_run_at_once() -> None:
    def refuse(rendered: Rendered) -> str:
        raise REFUSED

    result = optimize(reflection=refuse)
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert result.stop_detail == "401: the key is not valid"
    assert result.total_rollouts == 9


@pytest.mark.parametrize("garbage", ["", "Sorry, I cannot do that.", instruction("   "), "```\nx"])
def test_garbage_stops_the_run_without_burning_the_budget(garbage: str) -> None:
    run = Run(config(rollout_budget=100_000), reflection=lambda _: garbage)
    result = run.start()
    assert result.stop_reason is StopReason.REFLECTION_FAILED
    assert result.stop_detail.startswith("5 steps gave no usable proposal; the last: ")
    assert result.total_reflections == run.reflection.calls == 10
    assert result.total_rollouts == 6 + 5 * 3
    assert not result.found_better


def test_a_usable_proposal_forgives_earlier_failures() -> None:
    def reply(number: int, rendered: Rendered) -> str:
        return "" if number % 4 < 3 else propose(rendered)  # two tries fail, then the repair works

    run = Run(config(max_failed_reflections=2, rollout_budget=400), reflection=numbered(reply))
    result = run.start()
    assert result.stop_reason is StopReason.PERFECT


def test_a_provider_that_always_fails_costs_one_batch() -> None:
    def down(rendered: Rendered) -> str:
        raise ProviderError("connection reset")

    run = Run(config(rollout_budget=100_000), task=down)
    result = run.start()
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert (
        result.stop_detail
        == "6 of the latest 6 rollouts stayed unscored; the last: connection reset"
    )
    assert run.task.calls == result.total_rollouts == result.unscored_rollouts == 6
    assert run.reflection.calls == 0


# Nothing new


@pytest.mark.parametrize("earlier", [False, True])
def test_a_cautious_reflector_is_idle_and_no_failure(earlier: bool) -> None:
    """It proposes the present text again, or one that was tried and was no better."""

    def cautious(number: int, rendered: Rendered) -> str:
        return instruction("Nothing." if earlier else current_text(rendered))

    settings = config(
        max_idle_steps=7,
        max_failed_reflections=1,
        rollout_budget=100_000,
        target_section_paths=(RULES,),
    )
    run = Run(settings, reflection=numbered(cautious))
    result = run.start()
    assert result.stop_reason is StopReason.NO_PROGRESS
    why = "this text has been tried before" if earlier else "the text is the same as the current"
    assert result.stop_detail.startswith(
        f"7 steps in a row tried nothing: the last proposal was no new text: {why}"
    )
    assert result.steps == (8 if earlier else 7)
    assert run.reflection.calls == (1 if earlier else 0) + 7 * 2  # each may be mended once
    reason = RejectionReason.DUPLICATE if earlier else RejectionReason.UNCHANGED
    assert [r.reason for r in result.rejections].count(reason) == 14


def test_a_step_counts_as_what_its_last_reply_was() -> None:
    replies = ["", "Known words:", "Known words:", ""]

    def reply(number: int, rendered: Rendered) -> str:
        return instruction(replies[number % 4])

    settings = config(max_failed_reflections=3, max_idle_steps=4, target_section_paths=(RULES,))
    result = optimize(settings, reflection=numbered(reply))
    assert result.stop_reason is StopReason.REFLECTION_FAILED
    assert result.steps == 6


def test_a_run_that_ended_with_useless_replies_goes_on_with_more_patience() -> None:
    def reply(number: int, rendered: Rendered) -> str:
        return "" if number < 4 else propose(rendered)

    journal = MemoryJournal()
    settings = config(max_failed_reflections=2, rollout_budget=400)
    stopped = Run(settings, reflection=numbered(reply), journal=journal).start()
    assert "raise limits.max_failed_reflections to try more" in stopped.stop_detail
    # What the model replied is recorded, so the same limit ends the run again.
    again = Run(settings, reflection=numbered(reply), journal=journal)
    assert again.start().stop_reason is StopReason.REFLECTION_FAILED
    assert again.reflection.calls == 0
    patient = config(max_failed_reflections=3, rollout_budget=400)
    result = Run(patient, journal=journal).start()
    assert result.stop_reason is StopReason.PERFECT


# Nothing to learn


def by_id(score: Callable[[str], float]) -> FeedbackFn:
    def give(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        return RolloutFeedback(score=score(example.id), feedback="")

    return give


def test_minibatches_without_a_fault_stop_the_run_when_there_are_too_many() -> None:
    settings = config(
        feedback_fn=by_id(lambda name: float(name.endswith("-again"))),
        max_idle_steps=7,
        rollout_budget=100_000,
    )
    run = Run(settings)
    result = run.start()
    assert result.stop_reason is StopReason.NO_PROGRESS
    assert result.stop_detail.startswith("7 steps in a row tried nothing: ")
    assert result.steps == 7
    assert run.task.calls == result.total_rollouts == 6 + 7 * 3
    assert run.reflection.calls == 0


def test_a_tried_child_forgives_idle_steps() -> None:
    """Of the words to learn one is known and one is not, so that about every other step idles."""
    source = {"known": 1.0, "unknown": 0.0}
    data = (*examples(1), *(twin(examples(1)[0], name) for name in source))

    def run(idle: int) -> tuple[GepaResult, int]:
        session = Session()
        settings = config(
            training_examples=data,
            pareto_set_size=1,
            minibatch_size=1,
            feedback_fn=by_id(lambda name: source.get(name, 0.0)),
            rollout_budget=120,
            max_idle_steps=idle,
        )
        numbers = numbered(lambda number, rendered: instruction(f"{number}"))
        result = optimize(settings, reflection=numbers, session=session)
        tried = len(session.select_all(GepaMutationProposed))
        return result, result.steps - tried

    result, idle = run(20)
    assert result.stop_reason is StopReason.BUDGET
    assert idle > 20
    assert run(2)[0].stop_reason is StopReason.NO_PROGRESS


def test_minibatches_without_a_score_teach_nothing() -> None:
    task = failing(OVERLOADED, lambda r: "again" in bound(r, "word"))
    data = tuple(attrs.evolve(e, params=({"word": e.id},)) for e in twins(6))
    settings = config(training_examples=data, max_unscored_share=1.0, max_idle_steps=3)
    run = Run(settings, task=task)
    result = run.start()
    assert result.stop_reason is StopReason.NO_PROGRESS
    assert run.reflection.calls == 0


def test_a_perfect_baseline_ends_the_run_before_the_first_step() -> None:
    run = Run(config(feedback_fn=scored(1.0)))
    result = run.start()
    assert result.stop_reason is StopReason.PERFECT
    assert result.steps == 0
    assert run.task.calls == result.total_rollouts == 6
    assert run.reflection.calls == 0
    assert not result.found_better


def test_the_user_says_what_is_perfect() -> None:
    assert optimize(config(feedback_fn=scored(0.8))).steps > 0
    assert optimize(config(feedback_fn=scored(0.8), perfect_score=0.8)).steps == 0
    assert optimize(config(feedback_fn=scored(1.0), perfect_score=5)).steps > 0


def test_a_budget_that_is_used_up_ends_the_run() -> None:
    result = optimize(config(rollout_budget=47))
    assert result.stop_reason is StopReason.BUDGET
    assert (
        result.stop_detail == "one more step may take 12 test calls, and 5 of 47 are left for steps"
    )
    assert result.total_rollouts == 42
    assert result.found_better
