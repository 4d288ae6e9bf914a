"""Paired tests hold their level, and agree with counting every sign flip."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from promptgraft.errors import ConfigError
from promptgraft.evals.statistics import interval, paired_test

TIED = st.sampled_from((0.0, 0.25, 0.5, 1.0))
BOUNDED = st.floats(0, 1, width=16)
PAIRS = st.lists(st.tuples(TIED, TIED) | st.tuples(BOUNDED, BOUNDED), max_size=9)


def p_of(gains: list[float]) -> float:
    return paired_test([0.0] * len(gains), gains).p_value


def counted(gains: list[float]) -> float:
    """Return the share of all sign flips that gain as much; sixteenths add up exactly."""
    flips = list(itertools.product((1, -1), repeat=len(gains)))
    reached = [sum(s * g for s, g in zip(f, gains, strict=True)) >= sum(gains) for f in flips]
    return sum(reached) / len(flips)


@settings(max_examples=40)
@given(st.lists(st.integers(-16, 16).map(lambda n: n / 16), max_size=9))
def test_few_pairs_are_tested_exactly(gains: list[float]) -> None:
    assert p_of(gains) == pytest.approx(counted(gains))


@settings(max_examples=40)
@given(PAIRS)
def test_a_p_value_is_a_share_and_ties_and_gaps_do_not_change_it(
    pairs: list[tuple[float, float]],
) -> None:
    before, after = [b for b, _ in pairs], [a for _, a in pairs]
    found = paired_test(before, after)

    assert 0 < found.p_value <= 1
    assert -1 <= found.mean_gain <= 1
    again = paired_test([*before, 0.5, None, 1.0, None], [*after, 0.5, 1.0, None, None])
    assert again.p_value == found.p_value
    assert again.pairs == found.pairs + 1


@settings(max_examples=30)
@given(PAIRS)
def test_gains_and_losses_are_treated_alike(pairs: list[tuple[float, float]]) -> None:
    before, after = [b for b, _ in pairs], [a for _, a in pairs]
    forth, back = paired_test(before, after), paired_test(after, before)

    assert forth.mean_gain == -back.mean_gain
    # The flip that is as good in both directions is counted twice.
    assert forth.p_value + back.p_value >= 1


@settings(max_examples=15)
@given(st.permutations([0.1 * n - 0.4 for n in range(15)]))
def test_the_order_of_the_examples_does_not_count(gains: list[float]) -> None:
    assert p_of(gains) == p_of(sorted(gains))


def test_what_is_a_tie_on_paper_is_one_in_floating_point() -> None:
    assert p_of([0.1, 0.2, -0.3]) == pytest.approx(5 / 8)
    third = (0.1 + 0.2 + 0.3) / 3
    assert paired_test([0.2], [third]).p_value == 1.0


@pytest.mark.parametrize("scores", [[], [None, 1.0], [0.5, 0.5]])
def test_without_a_difference_nothing_is_more_than_chance(scores: list[float | None]) -> None:
    assert paired_test(scores, scores).p_value == 1.0


def test_the_gain_is_the_mean_over_the_pairs_that_are_scored_on_both_sides() -> None:
    found = paired_test([0.0, 0.5, None, 1.0], [1.0, 0.5, 1.0, None])
    assert (found.pairs, found.mean_gain) == (2, 0.5)


def test_wins_and_losses_of_one_size_are_a_sign_test() -> None:
    assert p_of([1.0] * 17 + [-1.0] * 5 + [0.0] * 64) == pytest.approx(35443 / 2**22)
    assert p_of([1.0] * 300) == pytest.approx(2.0**-300)


def test_scores_may_be_of_any_finite_size() -> None:
    assert p_of([1e300, 2e300, -0.5e300]) == p_of([1e-300, 2e-300, -0.5e-300]) == 2 / 8
    with pytest.raises(ConfigError, match="expected finite numbers, found -1e"):
        paired_test([-1e308], [1e308])
    with pytest.raises(ConfigError, match="as many after as before, found 1 and 2"):
        paired_test([1.0], [1.0, 1.0])


def noise(chance: random.Random) -> dict[str, Callable[[], float]]:
    """Return worlds without a difference: how one pair of answers differs."""
    return {
        "binary": lambda: chance.choice((0.0, 0.0, 0.0, 1.0, -1.0)),
        "bounded": lambda: chance.random() ** 3 - chance.random() ** 3,
        "tied": lambda: chance.choice((0.0,) * 6 + (0.5, -0.5, 0.25, -0.25)),
    }


@pytest.mark.parametrize("world", ["binary", "bounded", "tied"])
@pytest.mark.parametrize(("pairs", "runs"), [(5, 200), (10, 120), (24, 50)])
def test_chance_alone_is_significant_no_more_often_than_the_level_says(
    world: str, pairs: int, runs: int
) -> None:
    draw = noise(random.Random(f"{world} {pairs}"))[world]
    found = [p_of([draw() for _ in range(pairs)]) for _ in range(runs)]

    for level in (0.05, 0.2):
        # Three standard errors of the simulation.
        slack = 3 * (level * (1 - level) / runs) ** 0.5
        assert sum(p <= level for p in found) / runs <= level + slack


def test_a_true_gain_is_found_among_many_pairs() -> None:
    chance = random.Random(1)
    found = [p_of([chance.gauss(0.2, 0.3) for _ in range(30)]) for _ in range(20)]
    assert sum(p <= 0.05 for p in found) >= 17


@pytest.mark.parametrize("count", [10, 40])
def test_an_interval_holds_the_true_gain_as_often_as_it_says(count: int) -> None:
    chance = random.Random(2)
    held = 0
    for _ in range(100):
        found = interval([chance.gauss(0.1, 0.3) for _ in range(count)], 0.9)
        held += found is not None and found[0] <= 0.1 <= found[1]
    assert 82 <= held <= 97


@settings(max_examples=30)
@given(st.lists(st.integers(-8, 8).map(lambda n: n / 8), min_size=6, max_size=9))
@example([0.0, 1 / 8, 1 / 8, 1 / 8, 1 / 8, -0.75])
def test_an_interval_excludes_zero_just_when_the_test_does(gains: list[float]) -> None:
    found = interval(gains, 0.9)

    if found is None:
        assert min(p_of(gains), p_of([-g for g in gains])) > 0.05
        return
    low, high = found
    assert min(gains) <= low <= high <= max(gains)
    assert (low > 0) == (p_of(gains) <= 0.05)
    assert (high < 0) == (p_of([-g for g in gains]) <= 0.05)
    assert interval([-g for g in gains], 0.9) == pytest.approx((-high, -low))


def test_a_lower_level_gives_a_narrower_interval_around_the_same_gain() -> None:
    chance = random.Random(3)
    gains = [chance.random() - 0.4 for _ in range(50)]
    ends = [interval(gains, level) for level in (0.5, 0.8, 0.95, 0.99)]
    lows, highs = zip(*(end for end in ends if end), strict=True)
    mean = sum(gains) / len(gains)
    assert sorted(lows, reverse=True) == [*lows]
    assert sorted(highs) == [*highs]
    assert lows[0] < mean < highs[0]


def test_few_changed_cases_have_no_interval() -> None:
    assert interval([1.0] * 5 + [0.0] * 30, 0.95) is None
    assert interval([1.0] * 6, 0.95) == (1.0, 1.0)
    assert interval([], 0.95) is None
