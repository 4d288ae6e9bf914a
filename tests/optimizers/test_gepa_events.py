"""What a run tells while it goes."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from optimizers.worlds import (
    RULES,
    Run,
    answer,
    config,
    instruction,
    numbered,
    optimize,
    propose,
    section,
)
from promptgraft.adapters.base import PromptAsked
from promptgraft.algorithms.gepa import (
    GepaCandidateAdded,
    GepaMutationAccepted,
    GepaMutationProposed,
    GepaMutationRejected,
    GepaOptimizationCompleted,
    GepaOptimizationStarted,
    GepaRolloutCompleted,
    GepaWorking,
)
from promptgraft.errors import PermanentProviderError, TransientProviderError
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import EventBus, Session
from promptgraft.runtime.session import CallsInFlight, publishing
from promptgraft.search import RejectionReason, StopReason
from promptgraft.search.events import NewBest, QuestionAsked, RoundStarted, RunPlanned
from promptgraft.targets.types import plain_changes


def test_a_run_is_told_from_its_start_to_its_end() -> None:
    session = Session()
    run = Run(session=session)
    result = run.start()
    [started, *_] = story = session.select_all(object)
    assert isinstance(started, GepaOptimizationStarted)
    assert started == GepaOptimizationStarted(
        run_id=result.run_id,
        prompt="toy/words",
        pareto_ids=tuple(f"e{number}" for number in range(6)),
        modules=("section rules", "section notes"),
        texts={"section rules": "Known words:", "section notes": "More words:"},
        seed=1,
        settings=started.settings,
    )
    expected = {"algorithm": "gepa", "strategy.exploration": 1.0, "task_model": "task", "seed": 1}
    assert expected.items() <= started.settings.items()
    plan = run.plan()
    assert story[1] == RunPlanned(
        budget=200,
        line=plan.line,
        warnings=plan.warnings,
        expected_cost=plan.expected_cost,
        proposals=plan.proposals.if_refused,
    )
    assert story[-1] == result.ended
    told = [type(event) for event in story]
    assert told.count(GepaOptimizationStarted) == told.count(GepaOptimizationCompleted) == 1


def test_every_rollout_is_told_once_and_counted() -> None:
    session = Session()
    result = optimize(session=session)
    rollouts = session.select_all(GepaRolloutCompleted)
    assert [event.total_rollouts for event in rollouts] == list(range(1, result.total_rollouts + 1))
    assert len({event.position for event in rollouts}) == len(rollouts)
    assert [event.position for event in rollouts[:10]] == [
        *(f"baseline/{index}" for index in range(6)),
        *(f"step/1/parent/{index}" for index in range(3)),
        "step/1/child/0",
    ]
    assert [event.record.score for event in rollouts[:6]] == list(result.scores_matrix[0])


def test_a_step_tells_parent_proposal_child_and_acceptance_in_this_order() -> None:
    session = Session()
    result = optimize(session=session)
    step = session.select_all(object)[9 : 9 + 1 + 3 + 1 + 3 + 6 + 3]
    assert [type(event) for event in step] == [
        RoundStarted,
        *[GepaRolloutCompleted] * 3,
        GepaMutationProposed,
        *[GepaRolloutCompleted] * 9,
        GepaCandidateAdded,
        NewBest,
        GepaMutationAccepted,
    ]
    after = result.candidates[1].section_bodies[RULES]
    assert step[4] == GepaMutationProposed(
        step=1, parent=0, module="section rules", before="Known words:", after=after
    )
    assert step[-1] == GepaMutationAccepted(
        step=1,
        candidate=1,
        parent=0,
        module="section rules",
        parent_score=0.0,
        child_score=1 / 3,
        pareto_mean=1 / 6,
        best_pareto_mean=1 / 6,
    )


def test_every_candidate_is_told_with_its_texts_its_scores_and_what_was_used_by_then() -> None:
    session = Session()
    result = optimize(session=session)
    story = session.select_all(object)
    added = session.select_all(GepaCandidateAdded)
    assert [event.entries for event in added] == [
        plain_changes(one.changes) for one in result.candidates
    ]
    assert [event.parents for event in added] == [one.parents for one in result.candidates]
    assert [event.candidate for event in added] == list(range(len(added)))
    assert tuple(event.scores for event in added) == result.scores_matrix
    assert tuple(event.objectives for event in added) == result.objectives
    assert (added[0].step, added[0].rollouts, added[0].reflections) == (0, 6, 0)
    assert added[-1].best == result.best_index
    for event in added[1:]:
        bodies = result.candidates[event.candidate].section_bodies
        rules = bodies.get(RULES, "Known words:")
        assert event.texts["section rules"] == rules
        before = story[: story.index(event)]
        used = [told for told in before if isinstance(told, GepaRolloutCompleted)]
        assert event.rollouts == len(used) == used[-1].total_rollouts


def test_refusals_are_told_with_their_reason_and_their_text() -> None:
    replies = ["I have no idea.", "Known words: w9", "More words: $nothing", ""]

    def reply(number: int, rendered: RenderedPrompt[object]) -> str:
        if number >= len(replies):
            return propose(rendered)
        return replies[number] if number in {0, 3} else instruction(replies[number])

    session = Session()
    result = optimize(reflection=numbered(reply), session=session)
    refused = session.select_all(GepaMutationRejected)
    assert refused == result.rejections
    told = [(event.step, event.reason, event.final, event.module) for event in refused[:4]]
    assert told == [
        (1, RejectionReason.UNPARSABLE, False, "section rules"),
        (1, RejectionReason.NOT_BETTER, True, "section rules"),
        (2, RejectionReason.INVENTED_PLACEHOLDER, False, "section notes"),
        (2, RejectionReason.UNPARSABLE, True, "section notes"),
    ]
    assert refused[0].text == "I have no idea."
    assert refused[1].text == "Known words: w9"
    assert refused[1].detail == "0.000 on its cases, the text before had 0.000"
    assert "$nothing" in refused[2].text
    assert "$nothing" in refused[2].detail
    assert refused[3].text == ""
    assert [event.before for event in refused[:4]] == ["Known words:"] * 2 + ["More words:"] * 2
    assert [(event.parent_score, event.child_score) for event in refused[:3]] == [
        (None, None),
        (0.0, 0.0),
        (None, None),
    ]
    assert len(session.select_all(GepaMutationAccepted)) == result.accepted_mutations
    proposed = session.select_all(GepaMutationProposed)
    final = [event for event in refused if event.reason is RejectionReason.NOT_BETTER]
    assert len(proposed) == result.accepted_mutations + len(final)


def test_a_candidate_without_a_common_score_is_refused_as_unscored() -> None:
    def fail_children(rendered: RenderedPrompt[object]) -> str:
        if section(rendered, RULES).text != "Known words:":
            raise TransientProviderError("overloaded")
        return answer(rendered)

    settings = config(target_section_paths=(RULES,), max_unscored_share=1.0, rollout_budget=24)
    session = Session()
    result = optimize(settings, task=fail_children, session=session)
    assert [event.reason for event in result.rejections] == [RejectionReason.UNSCORED] * 2
    assert result.rejections == session.select_all(GepaMutationRejected)
    assert result.unscored_rollouts == 6


def test_the_bus_is_told_the_same_as_the_session() -> None:
    session, bus = Session(), EventBus()
    heard: list[object] = []
    bus.subscribe(object, heard.append)
    optimize(session=session, event_bus=bus)
    notices = GepaWorking | CallsInFlight | PromptAsked | QuestionAsked
    events = tuple(event for event in heard if not isinstance(event, notices))
    assert events == session.select_all(object)


@pytest.mark.parametrize("workers", [1, 4])
def test_the_bus_alone_is_told_what_a_run_does_now_but_not_what_a_journal_answers(
    workers: int,
) -> None:
    bus, journal, heard = EventBus(), MemoryJournal(), list[GepaWorking]()
    bus.subscribe(GepaWorking, heard.append)
    with ThreadPoolExecutor(workers) as executor:
        first = optimize(event_bus=bus, journal=journal, executor=executor)
    assert [(one.position, one.done, one.total) for one in heard[:7]] == [
        ("baseline", done, 6) for done in range(7)
    ]
    phases = [one.position.split("/")[2] for one in heard if one.position.startswith("step/1/")]
    assert list(dict.fromkeys(phases)) == ["parent", "reflect", "child", "pareto"]
    assert heard[-1].rollouts == first.total_rollouts
    assert heard[-1].reflections == first.total_reflections
    assert heard[-1].cost == first.total_cost

    heard.clear()
    assert optimize(event_bus=bus, journal=journal) == first
    assert heard == []


def test_a_handler_that_fails_does_not_disturb_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(event: GepaRolloutCompleted) -> None:
        raise RuntimeError("the handler is broken")

    bus = EventBus()
    heard: list[GepaRolloutCompleted] = []
    bus.subscribe(GepaRolloutCompleted, fail)
    bus.subscribe(GepaRolloutCompleted, heard.append)
    with caplog.at_level(logging.ERROR, logger="promptgraft"):
        result = optimize(event_bus=bus)
    assert result == optimize()
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(heard) == result.total_rollouts > len(errors) == 1
    assert ".fail` of RolloutCompleted raised RuntimeError: the handler is broken (" in caplog.text
    assert "test_gepa_events.py:" in errors[0].getMessage()


def test_the_end_is_told_when_the_provider_ends_the_run() -> None:
    def refuse(rendered: RenderedPrompt[object]) -> str:
        raise PermanentProviderError("the key is not valid")

    session = Session()
    result = optimize(task=refuse, session=session)
    [completed] = session.select_all(GepaOptimizationCompleted)
    assert completed == result.ended
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert result.stop_detail == "the key is not valid"
    assert result.baseline_pareto_mean is None


def test_a_resumed_run_tells_its_whole_story_again() -> None:
    journal, first, second = MemoryJournal(), Session(), Session()
    optimize(journal=journal, session=first)
    optimize(journal=journal, session=second)
    assert second.select_all(object) == first.select_all(object)


def test_a_session_and_a_run_that_share_a_bus_tell_each_event_once() -> None:
    bus = EventBus()
    heard: list[object] = []
    bus.subscribe(object, heard.append)
    for session in (None, Session(), Session(bus=EventBus()), Session(bus=bus)):
        tell = publishing(session, bus)
        heard.clear()
        for event in ("first", "second", "second"):
            tell(event)
        assert heard == ["first", "second", "second"]
        if session is not None:
            assert session.select_all(str) == ("first", "second", "second")
    alone = Session(bus=bus)
    publishing(alone, None)("third")
    assert heard[-1] == alone.latest(str) == "third"
