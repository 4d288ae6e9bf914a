"""Progress that feedback shows and scores do not: answers that are right or wrong as a whole."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from json_replies import json_reply
from optimizers.several_world import NAMES, Rendered, prompt_of, several
from optimizers.worlds import Run, asked, bound, section, twins
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import GepaExample, GepaMutationProposed, RolloutFeedback
from promptgraft.algorithms.gepa.additions.lines.credit import Effect, FeedbackTerms
from promptgraft.algorithms.gepa.prompts import WHOLE
from promptgraft.ground.text import folded_words
from promptgraft.journal import MemoryJournal
from promptgraft.runtime import Session, SessionProtocol
from promptgraft.search.scores import Scorer
from promptgraft.targets.types import RolloutRecord

THREE = NAMES[:3]
RIGHT = THREE[1]
COUNT = 16
LESSON = re.compile(r"- say (\w+)")
FIRST = re.compile(r"(?ms)^\*\*(P\d+):\*\* section apples\n\n```\n(.*?)\n```$")


def needs_two(rendered: Rendered) -> str:
    """Answer with what is missing: each question needs its own word and that of a neighbour."""
    own = asked(rendered)
    neighbour = f"w{int(own[1:]) ^ 1}"
    known = LESSON.findall(section(rendered, (RIGHT,)).text)
    return " ".join(word for word in (own, neighbour) if word not in known)


def first_alone(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Complain of the first thing that is missing."""
    missing = response.text.split()
    told = f"missing {missing[0]}" if missing else "right"
    return RolloutFeedback(score=float(not missing), feedback=told)


def unhelpful(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Complain of the same thing until all is right."""
    return RolloutFeedback(score=float(not response.text), feedback=f"missing {example.label}")


def misplace(rendered: Rendered) -> str:
    """Note the first lesson in the first part, whichever it is about."""
    first = FIRST.search(bound(rendered, "current")) if rendered.key == WHOLE.key else None
    missing = re.findall(r"missing (\w+)", bound(rendered, "examples"))
    if first is None or not missing:
        return "I would rather not."
    mark, text = first.groups()
    return json_reply(edits=[{"part": mark, "reason": "x", "text": f"{text}\n- say {missing[0]}"}])


def run_of(
    feedback: Any, *, journal: MemoryJournal | None = None, **sizes: Any
) -> tuple[Run, Session, MemoryJournal]:
    session, journal = Session(), journal or MemoryJournal()
    settings: dict[str, Any] = {
        "rollout_budget": 800,
        "minibatch_size": 4,
        "whole_prompt": 1.0,
        "feedback_fn": feedback,
        "training_examples": twins(COUNT),
        "pareto_set_size": COUNT,
    }
    run = Run(
        several(THREE, **(settings | sizes)),
        task=needs_two,
        reflection=misplace,
        prompt=prompt_of(THREE),
        journal=journal,
        session=session,
    )
    return run, session, journal


def moved(session: Session) -> set[str]:
    """Return the parts that lines were moved to."""
    proposed = session.select_all(GepaMutationProposed)
    return {event.module for event in proposed if "moved" in event.reason}


@pytest.mark.thorough
def test_lines_of_which_none_is_enough_alone_are_found_and_placed_by_several_proposals() -> None:
    run, session, _ = run_of(first_alone, proposals_per_step=2)
    assert run.start().found_better
    assert f"section {RIGHT}" in moved(session)


def test_feedback_that_does_not_move_on_leads_nowhere() -> None:
    run, session, _ = run_of(unhelpful)
    assert not run.start().found_better
    assert not moved(session)


def test_lines_of_which_none_is_enough_alone_are_found_placed_and_seen_by_a_resumed_run() -> None:
    run, session, journal = run_of(first_alone)
    first = run.start()
    assert first.found_better
    assert f"section {RIGHT}" in moved(session)
    again, _, _ = run_of(first_alone, journal=journal)
    assert again.start().candidates == first.candidates
    assert not again.task.requests
    assert not again.reflection.requests


def record(feedback: str | None, *, score: float = 0.0) -> RolloutRecord:
    return RolloutRecord(
        example_id="e",
        inputs_repr="",
        output_repr="",
        tool_trace_repr="",
        feedback=None if feedback is None else RolloutFeedback(score=score, feedback=feedback),
        fault="" if feedback is not None else "no answer",
    )


LINE = ["route", "refunds", "to", "billing"]


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        ("refunds belong to billing", "invoices belong to sales", True),
        ("refunds belong to billing", "refunds belong to billing", False),
        ("Refunds belong to billing", "still not BILLING", False),
        ("refunds belong to billing", "that belongs to", False),
        ("refunds belong to billing", "", False),
        ("refunds belong to billing", None, False),
        ("belongs to sales", "belongs to support", False),
        (None, "belongs to support", False),
    ],
)
def test_feedback_moves_on_from_what_a_line_addresses_to_something_particular(
    before: str | None, after: str | None, moved: bool
) -> None:
    stop_words = frozenset({"belong", "belongs", "that", "to"})
    effect = Effect.of(Scorer({}), record(before), record(after), stop_words=stop_words)
    assert (effect is not None and effect.is_help_of(LINE, enough=0.5)) is moved


@pytest.mark.parametrize(
    ("score", "helped"), [(0.0, True), (0.1, False), (-0.1, False), (0.5, False), (0.6, True)]
)
def test_feedback_that_moves_on_counts_at_the_same_score_alone(score: float, helped: bool) -> None:
    before, after = record("refunds belong to billing"), record("invoices late", score=score)
    effect = Effect.of(Scorer({}), before, after, stop_words=frozenset())
    assert effect is not None
    assert effect.is_help_of(LINE, enough=0.5) is helped


@given(st.lists(st.lists(st.text("abc ", max_size=6), max_size=5), max_size=30))
def test_words_are_stop_words_if_more_than_a_tenth_of_all_feedback_has_them(
    batches: list[list[str]],
) -> None:
    terms, said = FeedbackTerms(), list[set[str]]()
    for batch in batches:
        terms.learn([record(None), *map(record, batch)])
        said += [set(folded_words(text)) for text in batch]
        counts = Counter(word for words in said for word in words)
        most = max(3, 0.1 * len(said))
        assert terms.stop_words == {word for word, count in counts.items() if count > most}
