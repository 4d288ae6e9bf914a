"""Lines that were put into the wrong part of a prompt."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from json_replies import json_reply
from optimizers.several_world import NAMES, Rendered, lacking, prompt_of, several
from optimizers.worlds import Run, answers, bound, twins
from promptgraft import Paired
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import GepaExample, GepaMutationProposed, RolloutFeedback
from promptgraft.algorithms.gepa.prompts import WHOLE
from promptgraft.journal import MemoryJournal
from promptgraft.runtime import Session, SessionProtocol

FOUR = NAMES[:4]
RIGHT = FOUR[2]


def judge(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Score an answer without saying which part is at fault."""
    return RolloutFeedback(score=float(not response.text), feedback=f"missing {example.label}")


FIRST = re.compile(r"(?ms)^\*\*(P\d+):\*\* section apples\n\n```\n(.*?)\n```$")
SIZES: dict[str, Any] = {
    "rollout_budget": 400,
    "minibatch_size": 6,
    "whole_prompt": 1.0,
    "feedback_fn": judge,
}


def misplace(rendered: Rendered) -> str:
    """Note the first lesson in the first part, whichever it is about."""
    first = FIRST.search(bound(rendered, "current")) if rendered.key == WHOLE.key else None
    missing = re.search(r"missing (\w+)", bound(rendered, "examples"))
    if first is None or missing is None:
        return "I would rather not."
    mark, text = first.groups()
    return json_reply(edits=[{"part": mark, "reason": "x", "text": f"{text}\n- say {missing[1]}"}])


def reword(rendered: Rendered) -> str:
    """Note the first lesson at the end of the last line of the first part."""
    return misplace(rendered).replace("\\n- say", ", and say")


def search(
    journal: MemoryJournal,
    session: Session,
    reflection: Callable[[Rendered], str] = misplace,
    text: str = "Words:",
    **sizes: Any,
) -> Run:
    # Only one of the four parts has any effect.
    return Run(
        several(FOUR, **(SIZES | sizes)),
        task=lacking((RIGHT,)),
        reflection=reflection,
        prompt=prompt_of(FOUR, text),
        journal=journal,
        session=session,
    )


def moved(journal: MemoryJournal) -> set[str]:
    """Return the steps that tried lines in other parts."""
    return {key.split("/")[1] for key in answers(journal) if "/move/" in key}


def test_lines_that_do_nothing_in_their_part_are_found_the_one_where_they_help() -> None:
    journal, session = MemoryJournal(), Session()
    run = search(journal, session)
    result = run.start()
    assert result.found_better
    assert result.total_rollouts <= 400
    proposed = session.select_all(GepaMutationProposed)
    accepted = {one.module for one in proposed if one.reason.startswith("lines moved")}
    assert accepted == {f"section {RIGHT}"}
    steps = moved(journal)
    assert steps
    # A relocation asks the reflection model nothing.
    assert not {
        key for key in answers(journal) if "/reflect/" in key and key.split("/")[1] in steps
    }
    assert result.total_reflections == len(run.reflection.requests)


def test_another_wording_of_a_line_stays_where_the_line_was() -> None:
    journal, session = MemoryJournal(), Session()
    search(journal, session, reword, text="Mind all of the words").start()
    proposed = session.select_all(GepaMutationProposed)
    assert any(", and say" in event.after for event in proposed)
    assert not moved(journal)


def test_a_resumed_run_relocates_the_same_lines() -> None:
    journal = MemoryJournal()
    first = search(journal, Session()).start()
    again = search(journal, Session())
    result = again.start()
    assert not again.task.requests
    assert not again.reflection.requests
    assert (result.candidates, result.total_rollouts) == (first.candidates, first.total_rollouts)


@pytest.mark.parametrize(
    "given", [{"preset": "paper"}, {"whole_prompt": 0.0}, {"acceptance": Paired(max_repeats=1)}]
)
def test_nothing_is_relocated_by_single_questions_and_by_tests_of_significance(given: Any) -> None:
    journal = MemoryJournal()
    run = search(journal, Session(), **given)
    run.start()
    assert not moved(journal)


def judge_object(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    assert isinstance(example.label, dict)
    return judge(attrs.evolve(example, label=example.label["word"]), response, session)


def test_examples_with_objects_are_learned_from_as_examples_with_texts_are() -> None:
    """Objects do not hash, and lines move on account of the examples that they were written for."""
    texts, objects = MemoryJournal(), MemoryJournal()
    plain = search(texts, Session()).start()
    examples = tuple(attrs.evolve(one, label={"word": one.label}) for one in twins(8))
    result = search(
        objects, Session(), training_examples=examples, feedback_fn=judge_object
    ).start()
    assert moved(objects)
    assert moved(objects) == moved(texts)
    assert result.found_better == plain.found_better
    assert result.total_rollouts == plain.total_rollouts
