"""Whether a critical case is lost: at once when answers never vary, rarely by chance."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.evals.gains import is_lost

scores = st.floats(0, 1).map(lambda value: round(value, 2))


@given(scores, scores, st.integers(1, 5))
def test_without_variation_any_lower_score_is_a_loss(
    before: float, after: float, count: int
) -> None:
    assert is_lost((before,), (after,) * count) is (after < before)


@given(st.lists(scores, min_size=1, max_size=5), st.lists(scores, min_size=1, max_size=5))
def test_no_case_is_lost_both_ways(before: list[float], after: list[float]) -> None:
    assert not (is_lost(before, after) and is_lost(after, before))


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize(
    "draw",
    [
        lambda chance: float(chance.random() < 0.9),
        lambda chance: chance.gauss(0.6, 0.1),
        lambda chance: round(0.5 + chance.uniform(-0.3, 0.3), 1),
    ],
    ids=["passes nine times of ten", "normal", "tenths"],
)
def test_a_case_that_has_not_changed_is_seldom_lost(
    runs: int, draw: Callable[[random.Random], float]
) -> None:
    chance, lost, trials = random.Random(1), 0, 2_000
    for _ in range(trials):
        before = [draw(chance) for _ in range(runs)]
        lost += is_lost(before, [draw(chance) for _ in range(3)])
    assert lost <= 0.05 * trials


def test_a_case_that_hardly_ever_passes_any_more_is_mostly_found() -> None:
    chance = random.Random(2)
    found = [is_lost((1.0,), [float(chance.random() < 0.1) for _ in range(3)]) for _ in range(500)]
    assert sum(found) > 0.6 * len(found)
