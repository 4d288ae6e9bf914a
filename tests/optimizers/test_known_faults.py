"""Faults that users of prompt optimizers have met elsewhere, one test each."""

from __future__ import annotations

import math

import attrs
import pytest

from optimizers.worlds import (
    NOTES,
    PROMPT,
    QUESTION,
    RULES,
    TEMPLATE,
    CountingStore,
    Question,
    Run,
    asked,
    bound,
    config,
    failing,
    grafted,
    instruction,
    numbered,
    optimize,
    section,
    target_of,
    twins,
    with_output,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.errors import (
    ConfigError,
    FeedbackError,
    InvalidOverrideError,
    PromptRenderError,
    TransientProviderError,
    WinnerNotStoredError,
)
from promptgraft.optimizers import StopReason
from promptgraft.optimizers.formatting import clip
from promptgraft.optimizers.gepa import GepaExample, GepaMutationProposed, RolloutFeedback
from promptgraft.optimizers.gepa.mutation import parse_reply
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.prompt import Prompt, RenderedPrompt
from promptgraft.runtime import Session, SessionProtocol


def test_mutations_are_applied_under_any_tag_not_only_under_the_default_one() -> None:
    store = InMemoryPromptOverridesStore()
    run = Run(overrides_store=store, overrides_tag="experiment-7")
    result = run.start()
    bodies = {c.section_bodies.get(RULES, "Known words:") for c in result.candidates}
    assert len(bodies) > 1
    assert {section(r, RULES).text for r in run.task.requests} == bodies
    assert store.resolve(TEMPLATE.descriptor, "latest") is None
    winner = Prompt(TEMPLATE, overrides_store=store, overrides_tag="experiment-7")
    shown = winner.bind(Question("w1")).render()
    assert section(shown, RULES).text == result.best_section_overrides[RULES]


def test_dollars_neither_destroy_placeholders_nor_double_with_every_generation() -> None:
    target = target_of(PROMPT, QUESTION)
    text = "It costs $5 ($$5?). Do you know ${word}?"
    child = grafted(target, target.baseline(), QUESTION, text)
    for generation in range(5):
        text = f"{child.section_bodies[QUESTION]} {generation}"
        child = grafted(target, child, QUESTION, text)
    assert child.section_bodies[QUESTION] == "It costs $5 ($$5?). Do you know $word? 0 1 2 3 4"
    store = InMemoryPromptOverridesStore()
    store.upsert(PROMPT.descriptor, child.override)
    shown = Prompt(TEMPLATE, overrides_store=store).bind(Question("$x")).render()
    assert section(shown, QUESTION).text == "It costs $5 ($$5?). Do you know $x? 0 1 2 3 4"


@pytest.mark.parametrize("budget", range(18, 120, 7))
def test_baseline_and_accepted_children_count_and_nothing_overshoots(budget: int) -> None:
    run = Run(config(rollout_budget=budget))
    result = run.start()
    assert run.task.calls == result.total_rollouts <= budget


def test_a_render_error_does_not_end_the_run_and_a_rate_limit_is_no_zero() -> None:
    error = PromptRenderError("division by zero")
    result = optimize(task=failing(error, lambda rendered: asked(rendered) == "w0"))
    assert result.improved
    assert result.scores_matrix[0][0] == 0.0
    limited = TransientProviderError("429")
    result = optimize(
        config(minibatch_size=6), task=failing(limited, lambda rendered: asked(rendered) == "w0")
    )
    assert result.improved
    assert {row[0] for row in result.scores_matrix} == {None}


def test_the_first_module_is_the_first_to_take_its_turn() -> None:
    session = Session()
    optimize(config(target_section_paths=(NOTES, RULES)), session=session)
    first = session.select_all(GepaMutationProposed)[0]
    assert (first.step, first.module) == (1, "section notes")


def test_a_mutation_is_checked_with_bound_parameters() -> None:
    """A section with a required placeholder can be improved at all."""

    def knows(rendered: RenderedPrompt[object]) -> str:
        return "ok" if "please" in section(rendered, QUESTION).text else "no"

    result = optimize(
        config(target_section_paths=(QUESTION,)),
        task=knows,
        reflection=[instruction("Tell me please: do you know $word?")],
    )
    assert result.best_pareto_mean == 1.0
    assert result.rejections == ()


def test_a_text_does_not_end_at_its_first_inner_fence() -> None:
    reply = "```instruction\nAnswer so:\n```json\n{}\n```\nand stop.\n```"
    assert parse_reply(reply) == "Answer so:\n```json\n{}\n```\nand stop."


@attrs.frozen
class Verdict:
    known: bool


def test_failed_rollouts_are_not_empty_to_the_reflector() -> None:
    run = Run(
        prompt=with_output(Verdict),
        task=lambda rendered: f"no JSON about {asked(rendered)}",
        reflection=[""] * 99,
    )
    run.start()
    shown = bound(run.reflection.requests[0], "examples")
    for request in run.task.requests[6:9]:
        word = asked(request)
        assert f'"word": "{word}"' in shown
        assert f"```\nno JSON about {word}\n```" in shown
    assert shown.count("The answer could not be used: ") == 3


def test_long_texts_keep_head_and_tail_and_say_how_much_is_missing() -> None:
    text = '{"head": 1, ' + " " * 900 + '"tail": 2}'
    clipped = clip(text, 200)
    assert len(clipped) <= 200
    assert clipped.startswith('{"head": 1, ')
    assert clipped.endswith('"tail": 2}')
    left_out = 200 - len(clipped)
    assert f"of {len(text)} characters left out" in clipped
    assert 0 <= left_out < 10


def test_settings_that_cannot_work_are_refused_before_the_first_rollout() -> None:
    for wrong in (
        {"target_section_paths": ()},
        {"training_examples": twins(3), "pareto_set_size": 6},
        {"minibatch_size": 0},
    ):
        with pytest.raises(ConfigError, match=next(reversed(wrong))):
            config(**wrong)


def test_a_score_that_is_no_number_ends_the_run_at_the_first_rollout() -> None:
    def judge_with_nan(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        return RolloutFeedback(score=math.nan, feedback="")

    run = Run(config(feedback_fn=judge_with_nan))
    with pytest.raises(FeedbackError, match="example `e0`: score: expected a finite number"):
        run.start()
    assert run.task.calls == 1


def test_a_winner_is_kept_whole_or_not_at_all_and_only_when_it_is_better() -> None:
    store = CountingStore()
    optimize(overrides_store=store)
    assert len(store.writes) == 1

    def useless(number: int, rendered: RenderedPrompt[object]) -> str:
        return instruction(f"Nothing but {number}.")

    for reflection in (numbered(useless), [""] * 99):
        tied = CountingStore()
        result = optimize(overrides_store=tied, reflection=reflection)
        assert not result.improved
        assert tied.writes == []

    refusing = CountingStore(refuse=InvalidOverrideError("no"))
    with pytest.raises(WinnerNotStoredError):
        optimize(overrides_store=refusing)
    assert refusing.resolve(PROMPT.descriptor) is None


def test_a_run_without_any_hope_ends_before_its_budget() -> None:
    settings = config(rollout_budget=10**6)
    for surroundings in (
        {"reflection": lambda _: "I am sorry."},
        {"reflection": failing(TransientProviderError("503"), lambda _: True)},
        {"task": failing(TransientProviderError("503"), lambda _: True)},
    ):
        run = Run(settings, **surroundings)
        result = run.start()
        assert result.stop_reason in {StopReason.REFLECTION_FAILED, StopReason.PROVIDER_FAILED}
        assert run.task.calls < 30
