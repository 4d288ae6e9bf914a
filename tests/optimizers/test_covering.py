"""Which leaders are left when those are dropped that others could replace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizers.worlds import config, optimize
from promptgraft.algorithms.gepa import Full, Racing
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import digest_text
from promptgraft.overrides import PromptOverride
from promptgraft.search.frontier import FrontierPruning
from promptgraft.search.population import Pool
from promptgraft.search.scores import Score
from promptgraft.targets.types import Candidate

Row = tuple[Score, ...]

# Quarters have exact sums, so that the order of adding up does not decide a test.
scores = st.sampled_from((None, 0.0, 0.25, 0.5, 1.0, 1.0, 1.0)) | st.sampled_from((0.0, 1.0))
matrices = st.integers(1, 7).flatmap(
    lambda width: st.lists(st.tuples(*[scores] * width), min_size=1, max_size=16)
)


EMPTY = PromptOverride(ns="toy", prompt_key="words", tag="latest", sections={})


def join(pool: Pool, row: Row) -> Pool:
    pool.add(Candidate(changes={"a/b": EMPTY}, digest=digest_text(str(len(pool)))), row)
    return pool


def frontier_of(rows: Sequence[Row]) -> dict[int, int]:
    pool = Pool(pruning="redundant")
    for row in rows:
        join(pool, row)
    return dict(pool.frontier())


def leaders_of(rows: Sequence[Row]) -> list[set[int]]:
    """Who leads in each cell in which somebody is scored."""
    columns = (
        [(score, number) for number, score in enumerate(column) if score is not None]
        for column in zip(*rows, strict=True)
    )
    return [
        {one for score, one in column if score == max(column)[0]} for column in columns if column
    ]


def mean(row: Row) -> float:
    scored = [score for score in row if score is not None]
    return sum(scored) / len(scored)


def is_replaceable(one: int, left: set[int], leaders: Sequence[set[int]]) -> bool:
    return all(group & left - {one} for group in leaders if one in group)


def expected(rows: Sequence[Row]) -> dict[int, int]:
    """What the authors' code does: drop the first that can be, and begin again."""
    leaders = leaders_of(rows)
    left = set().union(*leaders)
    while True:
        order = sorted(left, key=lambda one: (mean(rows[one]), one))
        found = next((one for one in order if is_replaceable(one, left, leaders)), None)
        if found is None:
            break
        left.remove(found)
    return {one: sum(one in group for group in leaders) for one in sorted(left)} or {0: 1}


@given(matrices)
@settings(max_examples=60, deadline=None)
def test_one_after_the_other_is_dropped_that_the_rest_can_replace(rows: list[Row]) -> None:
    pool = Pool(pruning="redundant")
    for count, row in enumerate(rows, start=1):
        found = join(pool, row).frontier()
        assert list(found.items()) == list(expected(rows[:count]).items())


@given(matrices)
@settings(max_examples=50, deadline=None)
def test_those_who_are_left_lead_everywhere_and_none_in_vain(rows: list[Row]) -> None:
    leaders, left = leaders_of(rows), set(frontier_of(rows))
    assert all(group & left for group in leaders)
    assert not leaders or not any(is_replaceable(one, left, leaders) for one in left)


def test_where_many_lead_together_few_are_left() -> None:
    rows: list[Row] = [(1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (0.0, 1.0, 1.0), (1.0, 0.0, 1.0)]
    assert frontier_of(rows) == {2: 2, 3: 2}
    assert frontier_of([*rows, (1.0, 1.0, 1.0)]) == {4: 3}


def test_of_equals_the_younger_is_left() -> None:
    assert frontier_of([(0.5, 0.5)] * 3) == {2: 2}


def test_where_nothing_is_scored_the_baseline_is_left() -> None:
    assert frontier_of([(None, None), (None, None)]) == {0: 1}
    assert frontier_of([(None, None), (None, 0.0)]) == {1: 1}


def test_each_preset_has_its_rule_and_races_have_one_that_needs_no_mean() -> None:
    assert config(preset="paper").frontier_pruning == "redundant"
    assert config(preset="lean").frontier_pruning == "dominated"
    racing = config(preset="paper", validation=Racing())
    assert racing.frontier_pruning == "dominated"
    lean = config(preset="lean", validation=Full(), frontier_pruning="redundant")
    assert lean.frontier_pruning == "redundant"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"preset": "lean", "frontier_pruning": "redundant"},
            r"^strategy.frontier_pruning: expected 'dominated' with strategy.validation=Racing\(\)",
        ),
        (
            {"frontier_pruning": "most"},
            "frontier_pruning: expected one of `dominated`, `redundant`, found 'most'",
        ),
    ],
)
def test_rules_that_cannot_be_used_are_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


def test_a_run_draws_parents_from_those_who_are_left() -> None:
    results = {
        rule: optimize(config(frontier_pruning=rule, rollout_budget=400))
        for rule in get_args(FrontierPruning)
    }
    redundant, dominated = (results[rule] for rule in reversed(get_args(FrontierPruning)))
    rows = [tuple(row) for row in redundant.scores_matrix]
    assert redundant.frontier == tuple(expected(rows))
    assert len(dominated.frontier) >= len(redundant.frontier)
