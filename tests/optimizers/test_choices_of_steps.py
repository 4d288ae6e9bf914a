"""Which parents and parts a step takes, where settings say more than the two strategies do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import pytest

from optimizers.several_world import NAMES, search
from optimizers.test_gepa_merge import Run
from optimizers.test_gepa_selection import MODULES, pool_of
from optimizers.worlds import answers
from promptgraft.algorithms.gepa import (
    GepaMergeAttempted,
    GepaMutationAccepted,
    GepaMutationProposed,
)
from promptgraft.algorithms.gepa.select import Explored, Parents, Turn, Turns
from promptgraft.journal import MemoryJournal
from promptgraft.runtime import Session
from promptgraft.search import StopReason
from promptgraft.search.population import Pool
from promptgraft.targets.types import Module

ONE_PART: dict[str, Any] = {"preset": "paper", "published_question": False}


def changed_by_step(session: Session) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for event in session.select_all(GepaMutationProposed):
        found.setdefault(event.step, []).append(event.module)
    return found


def test_all_changes_every_part_in_each_step() -> None:
    session, journal = Session(), MemoryJournal()
    context = {"session": session, "journal": journal}
    run = search(NAMES, context=context, **ONE_PART, module_choice="all")
    result = run.start()
    steps = changed_by_step(session)
    assert steps
    for changed in steps.values():
        assert sorted(changed) == [f"section {name}" for name in NAMES]
    questions = {key for key in answers(journal) if key.startswith("step/1/reflect/")}
    assert questions == {f"step/1/reflect/{2 * number}" for number in range(len(NAMES))}
    assert result.total_reflections <= run.plan().reflections


def test_random_changes_one_part_and_each_of_them_at_some_time() -> None:
    orders = set()
    for seed in range(3):
        session = Session()
        context = {"session": session}
        result = search(
            NAMES[:4], context=context, **ONE_PART, module_choice="random", seed=seed
        ).start()
        steps = changed_by_step(session)
        assert {len(found) for found in steps.values()} == {1}
        orders.add(tuple(name for [name] in steps.values()))
        assert result.accepted_mutations
    assert len(orders) == 3
    assert len({name for order in orders for name in order}) == 4


def test_a_part_that_is_drawn_is_as_likely_as_any_other() -> None:
    turns = Turns(5, MODULES, example_rate=0.3, are_drawn=True)
    counts: Counter[Module] = Counter()
    for _ in range(3_000):
        turn = turns.at(0)
        first = tuple(module for module in turn.first if module != MODULES[0])
        found = attrs.evolve(turn, first=first).drawn
        counts.update(found)
        turns.took(turn, found)
    assert set(counts) == set(MODULES[1:])
    assert all(abs(count / 3_000 - 0.5) < 0.05 for count in counts.values())


def test_nothing_is_drawn_where_nothing_is_worth_a_change() -> None:
    assert Turn(draw=0.9).drawn == ()


ROWS = [
    (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    *(tuple(1.0 if place in (number, 6) else 0.0 for place in range(7)) for number in range(1, 6)),
    (0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5),
    (0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2),
]


def test_a_parent_comes_from_the_frontier_its_leaders_or_the_whole_pool() -> None:
    pool = pool_of(ROWS)
    assert drawn_from(pool, "frontier") == {0: 1, 1: 2, 2: 2, 3: 2, 4: 2, 5: 2}
    assert drawn_from(pool, "leaders") == dict.fromkeys(range(1, 6), 1)
    assert drawn_from(pool, "pool") == dict.fromkeys(range(8), 1)


def drawn_from(pool: Pool, explored: Explored) -> dict[int, int]:
    """Return the parents that are chosen, with their shares of the smallest of them."""
    parents = Parents(3, exploration=1.0, explored=explored)
    counts = Counter(parents.choose(pool) for _ in range(6_000))
    least = min(counts.values())
    return {parent: round(counts[parent] / least) for parent in sorted(counts)}


def test_a_search_takes_parents_of_the_whole_pool() -> None:
    def parents(explored: str) -> set[int]:
        session = Session()
        search(NAMES, context={"session": session}, **ONE_PART, explored=explored).start()
        return {event.parent for event in session.select_all(GepaMutationAccepted)}

    best = {len(parents(explored)) for explored in ("frontier", "pool")}
    assert len(best) == 2  # what leads everywhere leaves no other parent on the frontier


@pytest.mark.parametrize("learns", [False, True])
def test_perfect_minibatches_are_reflected_on_where_that_is_asked_for(learns: bool) -> None:
    """Of eight training examples and a minibatch of one, many are perfect from the first step."""
    result = search(
        NAMES[:2],
        **ONE_PART,
        minibatch_size=1,
        learn_from_perfect=learns,
        max_idle_steps=4,
        rollout_budget=400,
    ).start()
    assert (result.total_reflections >= result.steps) is learns
    assert result.stop_reason in (StopReason.PERFECT, StopReason.NO_PROGRESS, StopReason.BUDGET)


@pytest.mark.parametrize(("overlap", "merges"), [(10, True), (11, False)])
def test_nothing_is_merged_that_shares_too_few_examples(overlap: int, merges: bool) -> None:
    run = Run(merge=True, overlap=overlap)
    assert (run.told(GepaMergeAttempted) > 0) is merges
