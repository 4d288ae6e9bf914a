"""Questions that fail, crashes, leaks: what a gradient search does when things go wrong."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pytest

from gradient import flow_world
from gradient.words_world import PATCH, Run, block, reply, settings, text_block
from optimizers.worlds import (
    OVERLOADED,
    PROMPT,
    REFUSED,
    RULES,
    Question,
    answer,
    examples,
    section,
    twin,
)
from promptgraft import Case, examples_from, feedback_from
from promptgraft.errors import OutputError
from promptgraft.evals.metrics import Exact, Length
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.search import StopReason
from promptgraft.search.acceptance import MinGain, Strict
from promptgraft.search.round_events import Decided, Severity
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.types import GepaExample


def test_a_broken_reply_is_repaired_once_and_the_repair_shows_why() -> None:
    def sloppy(rendered: RenderedPrompt[object]) -> str:
        return reply(rendered) if "# Refused attempt" in rendered.text else "no JSON at all"

    journal = MemoryJournal()
    run = Run(settings(max_rounds=1), reflection=sloppy, journal=journal)
    result = run.start()
    assert result.best_pareto_mean == pytest.approx(1 / 3)
    keys = [one.key for one in journal.records() if "aggregate" in one.key or "optimize" in one.key]
    part = "section rules"
    assert keys == [
        f"round/1/aggregate/{part}",
        f"round/1/aggregate/{part}/repair",
        f"round/1/optimize/{part}/0",
        f"round/1/optimize/{part}/1",
    ]
    [shown] = [one.text for one in run.reflection.requests[-1:]]
    assert "could not be used: the reply has no fenced block" in shown
    assert "no JSON at all" in shown


def test_a_question_without_a_usable_reply_costs_its_step_and_not_the_run() -> None:
    def deaf(rendered: RenderedPrompt[object]) -> str:
        if "w1" in rendered.text and rendered.key == "blame-step" and "w0" not in rendered.text:
            return block({"blame": "the whole prompt, and a secret", "hand_on": []})
        return reply(rendered)

    run = Run(settings(max_rounds=1), reflection=deaf)
    [first] = run.start().rounds
    [unanswered] = first.unanswered
    assert unanswered.position == "round/1/backward/e1-again/1"
    assert unanswered.detail.startswith("blame: expected a list of objects")
    assert "e1-again" not in first.merged[0].cases
    assert not any(
        "a secret" in one.text for one in run.reflection.requests if one.key != "blame-step"
    )


def test_too_many_failed_questions_end_the_run_and_it_can_be_resumed() -> None:
    def down(rendered: RenderedPrompt[object]) -> str:
        raise OVERLOADED

    journal = MemoryJournal()
    run = Run(reflection=down, journal=journal)
    ended = run.start()
    assert ended.stop_reason is StopReason.REFLECTION_FAILED
    assert run.reflection.calls == 6  # a repair of what was not answered would fail as well
    assert ended.stop_detail == (
        "6 of the latest 6 questions have no usable reply, more than 30% and 4; the last: the "
        "reflection model failed: 429: overloaded"
    )
    resumed = Run(journal=journal).start()
    whole = Run().start()
    assert resumed.means == whole.means
    assert resumed.rounds == whole.rounds


def test_a_budget_pays_for_whole_rounds() -> None:
    config = settings(max_rounds=9)
    three = config.baseline_size + config.reserved_size + 3 * config.step_size
    assert [config.pays_for(three - less).if_accepted for less in (0, 1)] == [3, 2]


def test_a_provider_that_refuses_for_good_ends_the_run() -> None:
    def refused(rendered: RenderedPrompt[object]) -> str:
        raise REFUSED

    assert Run(reflection=refused).start().stop_reason is StopReason.PROVIDER_FAILED


def test_with_a_tenth_of_all_questions_failing_for_good_most_of_the_gain_is_kept() -> None:
    kept = []
    for seed in range(9):
        chance = random.Random(seed)

        def unlucky(rendered: RenderedPrompt[object], chance: random.Random = chance) -> str:
            if chance.random() < 0.1:
                raise OVERLOADED
            return flow_world.reply(rendered)

        config = flow_world.settings(seed=seed, train_batch=5, max_rounds=30, patience=9)
        result = flow_world.Run(config, reflection=unlucky).start()
        assert result.stop_reason in {StopReason.PERFECT, StopReason.NO_PROGRESS}
        kept.append(result.best_pareto_mean or 0.0)
    assert sorted(kept)[4] >= 0.8  # without faults it is 1


@pytest.mark.parametrize("workers", [1, 4, 16])
def test_workers_change_nothing(workers: int) -> None:
    def trail(**context: Any) -> tuple[object, ...]:
        journal = MemoryJournal()
        result = flow_world.Run(journal=journal, **context).start()
        answers = sorted((one.key, json.dumps(one.answer)) for one in journal.records())
        return result.rounds, result.means, result.rejections, answers

    with ThreadPoolExecutor(workers) as executor:
        assert trail(executor=executor) == trail()


def crashing(rendered: RenderedPrompt[object]) -> str:
    """Answer as the task model does, but answer nothing at all where `crash` is in the rules."""
    found = answer(rendered)
    if found == "no" and "crash" in section(rendered, RULES).text:
        raise OutputError("the answer is no JSON")
    return found


def test_a_candidate_that_crashes_on_hard_cases_does_not_beat_one_that_does_not() -> None:
    def reckless(rendered: RenderedPrompt[object]) -> str:
        text = "Known words: w0 w1 crash"
        return text_block(text) if rendered.key == PATCH else reply(rendered)

    config = settings(initial={"section rules": "Known words: w0 w1 w2"}, first_try=False)
    result = Run(config, task=crashing, reflection=reckless).start()
    first = result.rounds[0].ended
    assert first is not None
    assert first.decided is Decided.REFUSED
    assert first.gain == pytest.approx(-1 / 6)
    assert result.best_pareto_mean == 0.5


def test_a_crash_is_the_worst_of_losses() -> None:
    config = settings(initial={"section rules": "Known words: w0 crash"}, max_rounds=1)
    [first] = Run(config, task=crashing).start().rounds
    assert {loss.severity for loss in first.trained.losses} == {Severity.P0}
    assert "the answer is no JSON" in first.trained.losses[0].reason


def test_a_metric_that_fails_is_a_loss_with_the_hint_of_its_case() -> None:
    cases = [
        Case(
            id=f"c{number}",
            input={"word": f"w{number}"},
            expected="ok",
            hints={"exact": "P3: say ok", "": "be brief", "length": "keep it short"},
        )
        for number in range(4)
    ]
    metrics = [Exact(), Length(max=1)]
    config = settings(
        training_examples=examples_from(PROMPT, cases, metrics),
        feedback_fn=feedback_from(metrics),
        pareto_set_size=2,
        max_rounds=1,
    )
    [first] = Run(config).start().rounds
    assert [(one.case, one.metric, one.severity) for one in first.trained.losses] == [
        (case, metric, severity)
        for case in ("c2", "c3")
        for metric, severity in (("exact", "P3"), ("length", "P2"))
    ]
    assert first.trained.losses[0].reason.split("\n")[1:] == ["say ok", "be brief"]
    assert first.trained.losses[1].reason.split("\n")[1:] == ["keep it short", "be brief"]


def test_no_question_has_a_text_of_a_validation_or_held_out_case() -> None:
    for run in range(15):
        chance = random.Random(run)
        secret = [f"secret{run}x{number}" for number in range(9)]
        hidden = [
            GepaExample(id=f"id-{word}", params=(Question(word),), label=f"{word} label {word}")
            for word in secret
        ]
        config = settings(
            seed=run,
            training_examples=(*hidden[:6], *examples(6)),
            held_out=hidden[6:],
            train_batch=chance.choice([3, 6, "all"]),
            attribution=chance.choice(["steps", "trace"]),
            first_try=chance.random() < 0.5,
            acceptance=chance.choice([Strict(), MinGain(0), MinGain(0.1)]),
            max_rounds=4,
        )
        found = Run(config)
        result = found.start()
        assert result.rounds
        asked = "\n".join(one.text for one in found.reflection.requests)
        assert not [word for word in secret if word in asked]


def test_no_patch_carries_eight_words_of_a_training_answer() -> None:
    answer_text = "the quick brown fox jumps over the lazy dog near the river bank"
    learned = [attrs.evolve(one, label=f"{one.label} {answer_text}") for one in examples(6)]

    def copying(rendered: RenderedPrompt[object]) -> str:
        text = f"Known words: w0 {answer_text}"
        return text_block(text) if rendered.key == PATCH else reply(rendered)

    validation = [twin(one, f"v{one.id}") for one in examples(6)]
    config = settings(training_examples=(*validation, *learned), max_rounds=2)
    result = Run(config, reflection=copying).start()
    assert {one.reason for one in result.rejections} == {RejectionReason.COPIED_ANSWER}
    assert len(result.candidates) == 1
    ended = result.rounds[0].ended
    assert ended is not None
    assert "carries 14 words of the answer to training example `e0`" in ended.detail
