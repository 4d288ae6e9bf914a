"""Baseline and winner on examples that the search never sees."""

from __future__ import annotations

import re

import attrs
import pytest

from optimizers.worlds import (
    Run,
    answer,
    answers,
    asked,
    config,
    examples,
    optimize,
    scored,
    twin,
    twins,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import GepaExample, RolloutFeedback
from promptgraft.errors import ConfigError, TransientProviderError
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import Cancellation, SessionProtocol
from promptgraft.search import StopReason
from promptgraft.search.plan import RunPlan

UNSEEN = tuple(
    twin(example, f"unseen-{example.id}") for example in (*examples(3), *examples(2, first=90))
)
"""Three words that the search can learn, and two that it cannot."""


def test_baseline_and_winner_are_tried_once_on_each_held_out_example() -> None:
    run = Run(config(held_out=UNSEEN))
    result = run.start()
    found = result.held_out
    assert found is not None
    assert found.ids == tuple(example.id for example in UNSEEN)
    assert found.baseline_scores == (0.0,) * 5
    assert found.winner_scores == (1.0, 1.0, 1.0, 0.0, 0.0)
    assert (found.baseline_mean, found.winner_mean, found.why_not) == (0.0, 0.6, "")
    without = optimize()
    assert result.total_rollouts == without.total_rollouts + 10 == run.task.calls
    assert result.candidates == without.candidates


def test_the_search_never_sees_them() -> None:
    def say(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        right = response.text == "ok"
        return RolloutFeedback(
            score=float(right), feedback=f"secret {example.id} missing {example.label}"
        )

    run = Run(config(held_out=UNSEEN, feedback_fn=say))
    run.start()
    questions = "".join(prompt.text for prompt in run.reflection.requests)
    assert re.search("secret e[0-9]", questions)
    assert "unseen" not in questions
    assert "w90" not in questions


def test_examples_that_are_held_out_by_default_are_in_neither_set_of_the_search() -> None:
    settings = config(training_examples=examples(60), held_out=None)
    validation, training = settings.split
    sets = [*validation, *training, *settings.held_out]
    assert settings.held_out
    assert sorted(one.id for one in sets) == sorted(one.id for one in settings.training_examples)


def test_the_budget_keeps_what_they_take() -> None:
    least = 6 + 12 + 10
    with pytest.raises(ConfigError, match=f"at least {least} .*the test cases 10"):
        config(held_out=UNSEEN, rollout_budget=least - 1)
    for budget in range(least, least + 40, 9):
        result = optimize(config(held_out=UNSEEN, rollout_budget=budget))
        assert result.total_rollouts <= budget
        assert result.held_out is not None
        assert not result.found_better or len(result.held_out.winner_scores) == 5


def test_a_plan_and_a_size_know_of_them() -> None:
    sized = config(held_out=UNSEEN, rollout_budget="light")
    assert sized.budget == config(rollout_budget="light").budget + 10
    plan: RunPlan = Run(config(held_out=UNSEEN)).plan()
    assert plan.proposals == Run(config(rollout_budget=190)).plan().proposals


def test_nothing_is_measured_where_nothing_beat_the_baseline() -> None:
    run = Run(config(held_out=UNSEEN, feedback_fn=scored(0.5), rollout_budget=40))
    result = run.start()
    assert result.held_out is not None
    assert result.held_out.why_not == "no new text was better than yours"
    assert result.held_out.winner_mean is None
    assert run.task.calls == result.total_rollouts


def test_a_run_that_was_stopped_measures_nothing_until_it_is_resumed() -> None:
    journal, cancellation = MemoryJournal(), Cancellation()

    def cancel_late(rendered: RenderedPrompt[object]) -> str:
        if len(journal) > 20:
            cancellation.set("enough")
        return answer(rendered)

    settings = config(held_out=UNSEEN)
    stopped = optimize(settings, journal=journal, cancellation=cancellation, task=cancel_late)
    assert stopped.stop_reason is StopReason.CANCELLED
    assert stopped.held_out is not None
    assert stopped.held_out.why_not == "the run was stopped before that"
    assert optimize(settings, journal=journal) == optimize(settings)


def test_interrupted_while_measuring_it_pays_nothing_twice() -> None:
    journal, cancellation = MemoryJournal(), Cancellation()

    def cancel_at_unseen(rendered: RenderedPrompt[object]) -> str:
        if asked(rendered) == "w90":
            cancellation.set("enough")
        return answer(rendered)

    settings = config(held_out=UNSEEN)
    stopped = optimize(settings, journal=journal, cancellation=cancellation, task=cancel_at_unseen)
    assert stopped.stop_reason is StopReason.CANCELLED
    recorded = [key for key in answers(journal) if key.startswith("held-out/")]
    assert 0 < len(recorded) < 10
    again = Run(settings, journal=journal)
    assert again.start() == optimize(settings)
    assert again.task.calls == 10 - len(recorded)


def test_an_unscored_answer_is_in_neither_mean() -> None:
    def fail_once(rendered: RenderedPrompt[object]) -> str:
        if asked(rendered) == "w90":
            raise TransientProviderError("overloaded")
        return answer(rendered)

    result = optimize(config(held_out=UNSEEN), task=fail_once)
    assert result.held_out is not None
    assert result.held_out.baseline_scores == (0.0, 0.0, 0.0, None, 0.0)
    assert result.held_out.winner_mean == 0.75


def test_other_held_out_examples_are_another_question_only_where_they_were_asked() -> None:
    journal = MemoryJournal()
    optimize(journal=journal)
    later = optimize(config(held_out=UNSEEN), journal=journal)
    assert later == optimize(config(held_out=UNSEEN))


ANOTHER = attrs.evolve(examples(1, first=95)[0], id="unseen-95")


@pytest.mark.parametrize(
    ("others", "calls"),
    [
        ((attrs.evolve(UNSEEN[0], label="another"), *UNSEEN[1:]), 2),
        pytest.param(
            (attrs.evolve(UNSEEN[0], id="unseen-x"), *UNSEEN[1:]), 2, marks=pytest.mark.thorough
        ),
        ((ANOTHER, *UNSEEN[1:]), 2),
        (UNSEEN[1:], 0),
        pytest.param(UNSEEN[::-1], 0, marks=pytest.mark.thorough),
        ((), 0),
    ],
    ids=["changed", "renamed", "added", "removed", "reordered", "none"],
)
def test_other_held_out_examples_are_tried_when_a_run_is_resumed_and_no_other_ones(
    others: tuple[GepaExample, ...], calls: int
) -> None:
    journal = MemoryJournal()
    optimize(config(held_out=UNSEEN), journal=journal)
    again = Run(config(held_out=others), journal=journal)

    assert again.start() == optimize(config(held_out=others))
    assert again.task.calls == calls


def test_two_held_out_examples_of_one_content_are_two() -> None:
    journal, pair = MemoryJournal(), (UNSEEN[0], attrs.evolve(UNSEEN[0], id="unseen-twin"))
    found = optimize(config(held_out=pair), journal=journal).held_out
    assert found is not None
    assert found.winner_scores == (1.0, 1.0)
    assert len([key for key in answers(journal) if key.startswith("held-out/")]) == 4


def test_an_example_cannot_be_in_the_search_and_held_out() -> None:
    with pytest.raises(ConfigError, match=r"data\.held_out: the id `e0` occurs twice"):
        config(held_out=twins(2))
    with pytest.raises(ConfigError, match=r"data\.held_out\[0\]: expected a GepaExample"):
        config(held_out=["x"])
