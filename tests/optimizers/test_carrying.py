"""Lines that helped in a child that was lost."""

from __future__ import annotations

import re
from typing import Any

import attrs

from json_replies import json_reply
from optimizers.worlds import (
    RULES,
    TEMPLATE,
    Run,
    asked,
    bound,
    config,
    examples,
    section,
    shown_rules,
)
from promptgraft.algorithms.gepa import GepaMutationProposed
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import MarkdownSection, Prompt, RenderedPrompt
from promptgraft.runtime import Session

Rendered = RenderedPrompt[object]

KNOWN = " ".join(f"w{number}" for number in range(6))
PROMPT = Prompt[object](
    attrs.evolve(
        TEMPLATE,
        sections=(
            MarkdownSection(title="Rules", key="rules", template=f"Known words: {KNOWN}"),
            *TEMPLATE.sections[1:],
        ),
    )
)
RUIN = "- forget everything above"
SPOILED = f"{RUIN}\n- know {{}}"
HARMFUL = f"{RUIN} but {{}}"


def known(rendered: Rendered) -> str:
    """Answer as the task model: all that stands above the line that ruins it is forgotten."""
    return (
        "ok" if asked(rendered) in section(rendered, RULES).text.split(RUIN)[-1].split() else "no"
    )


class Teacher:
    """A reflection model that teaches each word once, the first ones in forms of their own."""

    def __init__(self, *forms: str) -> None:
        self.forms = list(forms)
        self.taught: list[str] = []

    def __call__(self, rendered: Rendered) -> str:
        shown = shown_rules(rendered)
        missing = re.findall(r"missing (\w+)", bound(rendered, "examples"))
        new = [word for word in missing if word not in self.taught]
        if shown is None or not new:
            return "I would rather not."
        self.taught.append(new[0])
        mark, text = shown
        form = self.forms.pop(0) if self.forms else "- know {}"
        lesson = form.format(new[0])
        return json_reply(edits=[{"part": mark, "reason": "x", "text": f"{text}\n{lesson}"}])


def search(teacher: Teacher, journal: MemoryJournal, session: Session, **sizes: Any) -> Run:
    # The validation set asks for what is known, the training set for what is not.
    settings: dict[str, Any] = {
        "preset": "lean",
        "whole_prompt": 1.0,
        "minibatch_size": 4,
        "rollout_budget": 300,
        "training_examples": examples(14),
        "pareto_set_size": 6,
    }
    return Run(
        config(**(settings | sizes)),
        task=known,
        reflection=teacher,
        prompt=PROMPT,
        journal=journal,
        session=session,
    )


def proposed(session: Session) -> list[str]:
    return [one.after for one in session.select_all(GepaMutationProposed)]


def test_a_line_that_helped_in_a_lost_child_is_carried_into_the_next() -> None:
    teacher, session = Teacher(SPOILED), Session()
    search(teacher, MemoryJournal(), session).start()
    first, second, third = proposed(session)[:3]
    word = teacher.taught[0]
    assert RUIN in first
    # No reply had both words without the line that ruined the first child.
    assert RUIN not in second
    assert second.split("\n")[-2:] == [f"- know {teacher.taught[1]}", f"- know {word}"]
    # What has it in the end is the parent of what follows.
    assert third.startswith(second)


def test_a_resumed_run_carries_the_same_lines() -> None:
    journal = MemoryJournal()
    first = search(Teacher(SPOILED, SPOILED), journal, Session()).start()
    again = search(Teacher(SPOILED, SPOILED), journal, Session())
    result = again.start()
    assert not again.task.requests
    assert (result.candidates, result.total_rollouts) == (first.candidates, first.total_rollouts)


def test_a_line_that_helps_on_one_failure_alone_is_given_up() -> None:
    teacher, session = Teacher(HARMFUL), Session()
    search(teacher, MemoryJournal(), session, training_examples=examples(30)).start()
    harmful, texts = HARMFUL.format(teacher.taught[0]), proposed(session)
    # It was tried once, and then carried twelve times.
    assert [harmful in text for text in texts] == [True] * 13 + [False] * (len(texts) - 13)
    assert len(texts) > 13


def test_proposals_of_one_step_carry_lines_too() -> None:
    teacher, session = Teacher(SPOILED), Session()
    search(teacher, MemoryJournal(), session, proposals_per_step=2).start()
    lost = [text for text in proposed(session) if f"- know {teacher.taught[0]}" in text]
    assert any(RUIN not in text for text in lost)


def test_a_line_is_not_carried_into_what_was_tried_before() -> None:
    """The second reply lacks only the line that helped in the first child."""
    session = Session()

    class Repetitive(Teacher):
        def __call__(self, rendered: Rendered) -> str:
            shown = shown_rules(rendered)
            if len(self.taught) != 1 or shown is None:
                return super().__call__(rendered)
            self.taught.append("nothing")
            text = f"{shown[1]}\n{RUIN}"
            return json_reply(edits=[{"part": shown[0], "reason": "x", "text": text}])

    search(Repetitive(SPOILED), MemoryJournal(), session).start()
    first, second = proposed(session)[:2]
    assert second == first.rpartition("\n")[0]
    assert len(proposed(session)) == len(set(proposed(session)))
