"""Steps that change several blamed parts at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from further import thorough
from optimizers.several_world import NAMES, Rendered, moody, search, teach
from optimizers.worlds import answers, bound, current_text, instruction
from promptgraft.algorithms.gepa import (
    GepaMutationAccepted,
    GepaMutationProposed,
    GepaMutationRejected,
)
from promptgraft.journal import MemoryJournal
from promptgraft.runtime import Session
from promptgraft.search import RejectionReason, StopReason
from promptgraft.targets.part_kinds import SectionModule


def by_step(
    events: tuple[GepaMutationProposed, ...] | tuple[GepaMutationRejected, ...],
) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for event in events:
        found.setdefault(event.step, []).append(event)
    return found


def test_a_step_changes_all_that_is_blamed_at_once_and_no_more_than_four() -> None:
    session, journal = Session(), MemoryJournal()
    run = search(NAMES, context={"session": session, "journal": journal})
    result = run.start()
    steps = by_step(session.select_all(GepaMutationProposed))
    assert {1, 4} <= {len(found) for found in steps.values()} <= {1, 2, 3, 4}
    for found in steps.values():
        assert len({event.module for event in found}) == len(found)
    big = [found for found in result.candidates if len(found.modules) == 4]
    assert big
    for candidate in big:
        elder = result.candidates[candidate.parents[0]].section_bodies
        changed = {
            path for path, text in candidate.section_bodies.items() if elder.get(path) != text
        }
        assert changed == {one.path for one in candidate.modules if isinstance(one, SectionModule)}
    told = {event.candidate: event.module for event in session.select_all(GepaMutationAccepted)}
    for position, candidate in enumerate(result.candidates[1:], 1):
        assert told[position] == candidate.changed
        assert told[position] == ", ".join(one.name for one in candidate.modules)
    one = next(number for number, found in steps.items() if len(found) == 4)
    keys = [key for key in answers(journal) if key.startswith(f"step/{one}/reflect/")]
    assert keys == [f"step/{one}/reflect/{turn}" for turn in (0, 2, 4, 6)]


def test_published_steps_change_one_part_whatever_is_blamed() -> None:
    result = search(preset="paper").start()
    assert result.accepted_mutations
    assert {len(candidate.modules) for candidate in result.candidates[1:]} == {1}


def test_a_rejected_child_tells_each_of_its_changes() -> None:
    session = Session()

    def useless(rendered: Rendered) -> str:
        return instruction(f"{current_text(rendered)} {random.Random(rendered.text).random()}")

    result = search(reflection=useless, context={"session": session}).start()
    assert not result.found_better
    proposed = by_step(session.select_all(GepaMutationProposed))
    rejected = by_step(session.select_all(GepaMutationRejected))
    assert {len(found) for found in proposed.values()} == {1, 2}
    for step, changes in proposed.items():
        told = [one for one in rejected[step] if one.reason is RejectionReason.NOT_BETTER]
        assert [(one.module, one.text, one.before) for one in told] == [
            (one.module, one.after, one.before) for one in changes
        ]
        assert [one.final for one in told] == [False] * (len(told) - 1) + [True]
        for one in told:
            others = ", ".join(other.module for other in told if other is not one)
            assert (f"; changed together with {others}" in one.detail) == bool(others)
        assert {(one.parent_score, one.child_score) for one in told} == {
            (told[0].parent_score, told[0].child_score)
        }


def test_one_reply_that_cannot_be_used_leaves_the_other_change() -> None:
    session, journal = Session(), MemoryJournal()
    context = {"session": session, "journal": journal}
    result = search(reflection=only(NAMES[1]), context=context).start()
    assert result.found_better
    changed = {one.name for candidate in result.candidates for one in candidate.modules}
    assert changed == {f"section {NAMES[1]}"}
    refused = by_step(session.select_all(GepaMutationRejected))
    tried = set(by_step(session.select_all(GepaMutationProposed)))
    unparsable = {
        step: [one for one in found if one.reason is RejectionReason.UNPARSABLE]
        for step, found in refused.items()
    }
    both = [found for step, found in unparsable.items() if found and step in tried]
    assert both
    for unusable in both:
        assert {one.module for one in unusable} == {f"section {NAMES[0]}"}
        assert not any(one.final for one in unusable)
        assert len(unusable) == 2  # a repair was asked for
    alone = [found for step, found in refused.items() if step not in tried]
    assert alone
    for found in alone:
        assert [one.final for one in found] == [False] * (len(found) - 1) + [True]


def only(name: str) -> Callable[[Rendered], str]:
    """Return a reflection model whose replies can be used for one section only."""

    def reply(rendered: Rendered) -> str:
        return teach(rendered) if bound(rendered, "part") == f"section {name}" else "hm"

    return reply


def test_the_last_of_several_refusals_ends_the_step() -> None:
    session = Session()
    search(reflection=lambda _: "hm", context={"session": session}).start()
    refused = by_step(session.select_all(GepaMutationRejected))
    assert {len(found) for found in refused.values()} >= {4}
    for found in refused.values():
        assert [one.final for one in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.thorough
@given(seed=st.integers(0, 99), k=st.sampled_from((1, 2, 5)), parts=st.integers(2, 6))
@settings(max_examples=1, deadline=None)
def test_resumed_side_by_side_and_overlapping_it_is_the_same_run(
    seed: int, k: int, parts: int
) -> None:
    journal = MemoryJournal()
    sizes = {"seed": seed, "proposals_per_step": k, "rollout_budget": 120}
    chosen: dict[str, Any] = {"names": NAMES[:parts], "reflection": moody, **sizes}
    result = search(**chosen, context={"journal": journal}).start()
    again = search(**chosen, context={"journal": journal})
    assert again.start() == result
    assert again.task.calls == again.reflection.calls == 0
    with ThreadPoolExecutor(4) as executor:
        assert search(**chosen, context={"executor": executor}).start() == result
    half = MemoryJournal()
    search(**{**chosen, "rollout_budget": 60}, context={"journal": half}).start()
    assert search(**chosen, context={"journal": half}).start() == result


@pytest.mark.parametrize("k", [1, 4])
def test_reflections_for_several_parts_are_used_up_exactly(k: int) -> None:
    for limit in (1, 3, 12):
        with ThreadPoolExecutor(4) as executor:
            run = search(
                NAMES,
                moody,
                max_reflections=limit,
                proposals_per_step=k,
                rollout_budget=400,
                context={"executor": executor},
            )
            result = run.start()
        assert run.reflection.calls == result.total_reflections == limit
        assert result.stop_reason is StopReason.REFLECTIONS
        assert run.plan().reflections == limit


@pytest.mark.parametrize(("parts", "most"), [(1, 2), (6, 8), *thorough([(2, 4), (4, 8)])])
def test_the_plan_counts_the_reflections_of_every_part(parts: int, most: int) -> None:
    patient = {"max_failed_reflections": 10_000, "max_unscored_share": 1.0}
    run = search(NAMES[:parts], lambda _: "hm", rollout_budget=80, **patient)
    result, plan = run.start(), run.plan()
    assert result.stop_reason is StopReason.BUDGET
    assert plan.reflections == most * plan.proposals.steps
    assert result.total_reflections <= plan.reflections
    assert result.steps <= plan.proposals.steps
    one = search(NAMES[:parts], preset="paper").plan()
    assert one.reflections == 2 * one.proposals.steps


def test_gains_tell_of_kinds_and_not_of_each_part() -> None:
    result = search().start()
    assert result.found_better
    assert set(result.gains) == {"section"}
    assert result.baseline_pareto_mean is not None
    assert result.best_pareto_mean is not None
    total = result.best_pareto_mean - result.baseline_pareto_mean
    assert sum(result.gains.values()) == pytest.approx(total)
