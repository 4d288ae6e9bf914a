"""Failures of a minibatch that are shared among several reflections on a module."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from optimizers.several_world import NAMES, Rendered, prompt_of, search, several, teach
from optimizers.worlds import Run, answers, asked, bound, current_text, instruction
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import (
    GepaExample,
    GepaMutationProposed,
    GepaMutationRejected,
    RolloutFeedback,
)
from promptgraft.errors import ConfigError
from promptgraft.journal import MemoryJournal
from promptgraft.runtime import Session, SessionProtocol

ALONE = NAMES[:1]


def note(rendered: Rendered) -> str:
    """Add a line with the first word that is missing."""
    missing = re.findall(r"missing (\w+)", bound(rendered, "examples"))
    return instruction(f"{current_text(rendered)}\n{missing[0]}")


def shared(
    reply: Callable[[Rendered], str] = note,
    *,
    names: tuple[str, ...] = ALONE,
    session: Session | None = None,
    journal: MemoryJournal | None = None,
    executor: Executor | None = None,
    reflections: int = 2,
    max_reflections: int | None = None,
    proposals_per_step: int = 1,
) -> Run:
    return search(
        names,
        reply,
        context={"session": session, "journal": journal, "executor": executor},
        minibatch_size=6,
        reflections_per_module=reflections,
        max_reflections=max_reflections,
        proposals_per_step=proposals_per_step,
    )


def added(event: GepaMutationProposed) -> list[str]:
    before = event.before.split("\n")
    return [line for line in event.after.split("\n") if line not in before]


def test_each_reflection_sees_other_failures_and_one_child_has_what_all_have_changed() -> None:
    seen: list[list[str]] = []

    def reply(rendered: Rendered) -> str:
        seen.append(re.findall(r"missing (\w+)", bound(rendered, "examples")))
        return note(rendered)

    session, journal = Session(), MemoryJournal()
    result = shared(reply, session=session, journal=journal).start()
    first, *_ = session.select_all(GepaMutationProposed)
    assert [len(words) for words in seen[:2]] == [3, 3]
    assert not set(seen[0]) & set(seen[1])
    assert added(first) == [seen[0][0], seen[1][0]]
    assert result.candidates[1].section_bodies[ALONE[0],] == first.after
    keys = [key for key in answers(journal) if key.startswith("step/1/reflect/")]
    assert keys == ["step/1/reflect/0", "step/1/reflect/8"]


def test_every_other_step_has_one_reflection() -> None:
    session = Session()
    shared(session=session).start()
    found = {event.step: len(added(event)) for event in session.select_all(GepaMutationProposed)}
    assert {count for step, count in found.items() if step % 2 == 0} == {1}
    assert 2 in {count for step, count in found.items() if step % 2}


def test_a_reflection_on_a_blamed_module_sees_only_what_blames_it() -> None:
    def one_is_lacking(rendered: Rendered) -> str:
        return NAMES[int(asked(rendered)[1:]) % 2]

    seen: list[tuple[str, set[str]]] = []

    def reply(rendered: Rendered) -> str:
        part = bound(rendered, "part").removeprefix("section ")
        seen.append((part, set(re.findall(r"(\w+): missing", bound(rendered, "examples")))))
        return instruction(f"{current_text(rendered)} {random.Random(rendered.text).random()}")

    settings = several(minibatch_size=6, rollout_budget=400)
    Run(settings, task=one_is_lacking, reflection=reply, prompt=prompt_of(NAMES[:2])).start()
    assert {part for part, _ in seen} == set(NAMES[:2])
    # One that is blamed by nothing has its turn too, and sees everything.
    assert all(blamed == {part} or part not in blamed for part, blamed in seen)


def test_a_name_that_perfect_rollouts_say_too_hides_no_rollout() -> None:
    """The section is called like a word of every feedback: nothing blames it."""
    seen: list[str] = []

    def reply(rendered: Rendered) -> str:
        seen.append(bound(rendered, "examples"))
        return instruction(f"{current_text(rendered)} {random.Random(rendered.text).random()}")

    def says_its_name(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        right = int(str(example.label)[1:]) % 2
        return RolloutFeedback(score=float(right), feedback=f"{ALONE[0]}: {'right' * right}")

    settings = several(ALONE, minibatch_size=6, reflections_per_module=1, feedback_fn=says_its_name)
    Run(settings, task=lambda _: "", reflection=reply, prompt=prompt_of(ALONE)).start()
    assert any("right" in examples for examples in seen)


def test_long_texts_have_one_reflection() -> None:
    def long(rendered: Rendered) -> str:
        missing = re.findall(r"missing (\w+)", bound(rendered, "examples"))
        return instruction(current_text(rendered) + "\nbe brief" * 4 + f"\n{missing[0]}")

    session = Session()
    shared(long, session=session).start()
    found = session.select_all(GepaMutationProposed)
    lengths = [
        (len(one.before.split("\n")), len(set(added(one)) - {"be brief"}))
        for one in found
        if one.step % 2
    ]
    assert 2 in {words for lines, words in lengths if lines <= 10}
    assert {words for lines, words in lengths if lines > 10} == {1}


def test_what_cannot_be_put_together_leaves_the_first_proposal() -> None:
    session = Session()
    # Both change the only line.
    assert shared(teach, session=session).start().found_better
    for event in session.select_all(GepaMutationProposed):
        assert "\n" not in event.after


def test_one_of_two_replies_that_cannot_be_used_leaves_the_other() -> None:
    def reply(rendered: Rendered) -> str:
        return note(rendered) if "missing w1\n" not in rendered.text else "hm"

    session = Session()
    result = shared(reply, session=session).start()
    assert result.found_better
    refused = [one for one in session.select_all(GepaMutationRejected) if one.step == 1]
    assert [one.final for one in refused if one.text == "hm"] == [False, False]  # with a repair


@pytest.mark.parametrize("count", [0, 4])
@pytest.mark.parametrize("limit", [1, 5, 12])
def test_shared_reflections_keep_to_their_limit_and_are_planned(limit: int, count: int) -> None:
    with ThreadPoolExecutor(max(1, count)) as executor:
        run = shared(
            reflections=3,
            executor=executor if count else None,
            max_reflections=limit,
            proposals_per_step=1 + count // 2,
        )
        result = run.start()
    assert run.reflection.calls == result.total_reflections <= limit == run.plan().reflections
    free = shared(reflections=3)
    assert free.start().total_reflections <= free.plan().reflections


def test_a_run_that_shares_reflections_is_the_same_when_it_is_resumed() -> None:
    journal = MemoryJournal()
    result = shared(journal=journal).start()
    again = shared(journal=journal)
    assert again.start() == result
    assert again.reflection.calls == again.task.calls == 0


@pytest.mark.parametrize("wrong", [0, -1, True, "2"])
def test_a_number_of_reflections_that_makes_no_sense_is_refused(wrong: int) -> None:
    with pytest.raises(
        ConfigError, match=r"^strategy\.reflections_per_module: expected an integer"
    ):
        shared(reflections=wrong)
