"""A search that is stuck asks for a text as if there were none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from further import thorough
from optimizers.worlds import (
    NOTES,
    RULES,
    Run,
    answers,
    bound,
    config,
    instruction,
    propose,
    scored,
)
from promptgraft import EventBus
from promptgraft.algorithms.gepa import (
    Addition,
    GepaMutationAccepted,
    GepaMutationProposed,
    Restart,
)
from promptgraft.errors import ConfigError, JournalMismatchError
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt

EMPTY = "It has no text yet."


def writes_anew(rendered: RenderedPrompt[object]) -> str:
    """Write all missing words that are shown, but only where there is no text."""
    shown = bound(rendered, "current")
    missing = [line.split()[0] for line in bound(rendered, "examples").split("missing ")[1:]]
    return instruction(" ".join(dict.fromkeys(missing)) if shown == EMPTY else f"{shown} x")


def run_of(
    journal: MemoryJournal,
    strategy: Mapping[str, object] = {},
    *,
    executor: Executor | None = None,
    event_bus: EventBus | None = None,
) -> Run:
    settings = config(
        **{"additions": [Restart(after=2)], "reuse_rollouts": True, **strategy},
        target_section_paths=(RULES,),
        minibatch_size=2,
        max_failed_reflections=50,
    )
    return Run(
        settings,
        reflection=writes_anew,
        journal=journal,
        executor=executor,
        event_bus=event_bus or EventBus(),
    )


def test_it_begins_anew_after_some_steps_without_a_gain_and_shows_all_known_failures() -> None:
    bus = EventBus()
    accepted, proposed = list[GepaMutationAccepted](), list[GepaMutationProposed]()
    bus.subscribe(GepaMutationAccepted, accepted.append)
    bus.subscribe(GepaMutationProposed, proposed.append)
    run = run_of(MemoryJournal(), event_bus=bus)
    result = run.start()
    questions = [
        (bound(request, "current"), bound(request, "examples"))
        for request in run.reflection.requests
    ]
    first = next(place for place, (text, _) in enumerate(questions) if text == EMPTY)
    assert first >= 2
    assert questions[first][1].count("missing ") > questions[0][1].count("missing ") == 2
    assert result.accepted_mutations > 0
    [first_accepted] = [event for event in proposed if event.step == accepted[0].step]
    assert first_accepted.before.startswith("Known words:")


def test_an_example_of_the_minibatch_that_failed_before_is_shown_once() -> None:
    run = run_of(MemoryJournal(), {"minibatches": "teaching"})
    run.start()
    shown = [bound(request, "examples") for request in run.reflection.requests]
    headings = [re.findall(r"(?m)^### Example .*$", examples) for examples in shown]
    assert max(map(len, headings)) > 2
    assert all(len({*lines}) == len(lines) for lines in headings)


def test_it_begins_anew_where_no_rollouts_are_kept() -> None:
    run = run_of(MemoryJournal(), {"reuse_rollouts": False})
    run.start()
    assert EMPTY in [bound(request, "current") for request in run.reflection.requests]


class Patient(Addition):
    """An addition that is no attrs class."""

    name = "patient"

    def __init__(self, after: object) -> None:
        self.after = after


def test_the_settings_of_a_plain_class_belong_to_the_run() -> None:
    journal = MemoryJournal()
    first = run_of(journal, {"additions": [Patient(5)]}).start()
    assert run_of(journal, {"additions": [Patient(5)]}).start() == first
    with pytest.raises(JournalMismatchError, match="additions"):
        run_of(journal, {"additions": [Patient(50)]}).start()
    with pytest.raises(ConfigError, match="addition `patient`: after"):
        run_of(MemoryJournal(), {"additions": [Patient(lambda: 5)]}).start()


def test_a_search_that_gains_never_begins_anew() -> None:
    settings = config(additions=[Restart(after=2)], target_section_paths=(RULES, NOTES))
    run = Run(settings, reflection=propose)
    run.start()
    assert all(bound(request, "current") != EMPTY for request in run.reflection.requests)


@pytest.mark.parametrize(("score", "begins_anew"), [(0.4, True), (0.6, False)])
def test_a_text_that_is_mostly_right_is_not_written_anew(score: float, begins_anew: bool) -> None:
    run = run_of(MemoryJournal(), {"feedback_fn": scored(score)})
    run.start()
    shown = [request for request in run.reflection.requests if bound(request, "current") == EMPTY]
    assert bool(shown) == begins_anew
    assert all("rest of the prompt" in bound(request, "tried") for request in shown)


@pytest.mark.parametrize(
    "at_once", [{"steps_at_once": 3}, *thorough([{}, {"proposals_per_step": 2}])]
)
def test_its_search_is_the_same_with_workers_and_when_it_is_resumed(
    at_once: dict[str, int],
) -> None:
    journal, beside = MemoryJournal(), MemoryJournal()
    whole = run_of(journal, at_once).start()
    with ThreadPoolExecutor(4) as executor:
        assert run_of(beside, at_once, executor=executor).start().candidates == whole.candidates
    assert answers(beside) == answers(journal)
    again = run_of(journal, at_once)
    assert again.start() == whole
    assert again.task.calls == again.reflection.calls == 0


def test_it_is_found_by_its_name_and_needs_a_number_of_steps() -> None:
    assert config(additions=["restart"]).used_additions == (Restart(),)
    with pytest.raises(ConfigError, match="Restart: after: expected an integer of at least 1"):
        Restart(after=0)
