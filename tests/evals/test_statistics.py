"""Paired tests keep their level, and intervals contain the gain as often as they claim."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from further import thorough
from promptgraft.errors import ConfigError
from promptgraft.evals.gains import interval, outweighs, paired_test, sign_test

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


@settings(max_examples=8)
@given(st.lists(st.integers(-16, 16).map(lambda n: n / 16), max_size=7))
def test_few_pairs_are_tested_exactly(gains: list[float]) -> None:
    assert p_of(gains) == pytest.approx(counted(gains))


@settings(max_examples=20)
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


@settings(max_examples=15)
@given(PAIRS)
def test_gains_and_losses_are_treated_alike(pairs: list[tuple[float, float]]) -> None:
    before, after = [b for b, _ in pairs], [a for _, a in pairs]
    forth, back = paired_test(before, after), paired_test(after, before)

    assert forth.mean_gain == -back.mean_gain
    # The flip that is as good in both directions is counted twice.
    assert forth.p_value + back.p_value >= 1


@settings(max_examples=6)
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


@pytest.mark.parametrize(
    ("world", "pairs", "runs"), [("binary", 24, 50), ("bounded", 5, 200), ("tied", 10, 120)]
)
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


def of_one_size(won: int, lost: int, tied: int) -> list[float]:
    return [1.0] * won + [-1.0] * lost + [0.0] * tied


def binomial(cases: int, won: int, share: float) -> float:
    return math.comb(cases, won) * share**won * (1 - share) ** (cases - won)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from((0.8, 0.95, 0.99)))
def test_an_interval_of_gains_of_two_values_is_that_of_clopper_and_pearson(
    won: int, lost: int, level: float
) -> None:
    if not won + lost:
        return
    from scipy import stats  # takes a second, which modules that only collect tests need not pay

    exact = stats.binomtest(won, won + lost).proportion_ci(confidence_level=level, method="exact")
    found = interval(of_one_size(won, lost, 0), level)
    assert found == pytest.approx((2 * exact.low - 1, 2 * exact.high - 1), abs=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_an_interval_excludes_zero_just_when_the_two_sided_sign_test_does(
    won: int, lost: int, tied: int
) -> None:
    if not won + lost + tied:
        return
    low, high = interval(of_one_size(won, lost, tied), 0.95)
    assert (low > 0) == (sum(binomial(won + lost, n, 0.5) for n in range(lost + 1)) <= 0.025)
    assert (high < 0) == (sum(binomial(won + lost, n, 0.5) for n in range(won + 1)) <= 0.025)


@settings(max_examples=10, deadline=None)
@given(st.lists(BOUNDED.map(lambda score: 2 * score - 1), min_size=1, max_size=12))
def test_ends_are_quantiles_of_means_with_one_case_at_the_bound(gains: list[float]) -> None:
    low, high = interval(gains, 0.9)
    weights = np.random.default_rng(1).dirichlet(np.ones(len(gains) + 1), 4_000)
    # Five standard errors of the simulation, for the draws as for those just beside them.
    for means, end in ((weights @ [*gains, -1.0], low), (-weights @ [*gains, 1.0], -high)):
        assert (means < end - 1e-6).mean() - 0.018 < 0.05 < (means <= end + 1e-6).mean() + 0.018


@pytest.mark.parametrize("cases", [1, 2, *thorough([5])])
def test_the_gain_of_right_and_wrong_answers_is_held_as_often_as_the_interval_says(
    cases: int,
) -> None:
    ends = {
        (won, lost): interval(of_one_size(won, lost, cases - won - lost), 0.95)
        for won in range(cases + 1)
        for lost in range(cases + 1 - won)
    }
    for wins, losses in itertools.product(range(11), repeat=2):
        won_share, lost_share = wins / 10, (1 - wins / 10) * losses / 10
        gain = won_share - lost_share
        held = sum(
            binomial(cases, won, won_share) * binomial(cases - won, lost, losses / 10)
            for (won, lost), (low, high) in ends.items()
            if low - 1e-6 <= gain <= high + 1e-6
        )
        assert held >= 0.95


def skewed(chance: random.Random) -> dict[str, tuple[Callable[[], float], float]]:
    """Return how graded gains may lie, with their means."""
    return {
        "even": (lambda: chance.random() * 0.8 - 0.3, 0.1),
        "rarely lost": (lambda: -1.0 if chance.random() < 0.05 else 0.1, 0.045),
        "many small, few large": (lambda: chance.random() ** 6 - 0.1, 1 / 7 - 0.1),
        "thirds": (lambda: chance.choice((-1, 0, 0, 1, 2)) / 3, 2 / 15),
    }


@pytest.mark.parametrize(
    ("world", "cases"),
    [("rarely lost", 40), ("thirds", 12), *thorough([("even", 12), ("many small, few large", 4)])],
)
def test_an_interval_holds_the_true_gain_as_often_as_it_says(world: str, cases: int) -> None:
    draw, mean = skewed(random.Random(f"{world} {cases}"))[world]
    held = 0
    for _ in range(30):
        low, high = interval([draw() for _ in range(cases)], 0.9)
        held += low <= mean <= high
    assert held >= 27


@settings(max_examples=4, deadline=None)
@given(st.lists(st.integers(-8, 8).map(lambda n: n / 8), min_size=1, max_size=9))
def test_an_interval_of_losses_mirrors_that_of_gains(gains: list[float]) -> None:
    low, high = interval(gains, 0.9)
    assert -1 <= low <= high <= 1
    assert low <= sum(gains) / len(gains) <= high
    assert interval([-g for g in gains], 0.9) == pytest.approx((-high, -low), abs=1e-6)
    wide = interval([5 * g for g in gains], 0.9, reach=5.0)
    assert wide == pytest.approx((5 * low, 5 * high), abs=1e-6)


def test_a_lower_level_gives_a_narrower_interval_around_the_same_gain() -> None:
    chance = random.Random(3)
    gains = [chance.random() - 0.4 for _ in range(50)]
    lows, highs = zip(*(interval(gains, level) for level in (0.5, 0.8, 0.95, 0.99)), strict=True)
    mean = sum(gains) / len(gains)
    assert sorted(lows, reverse=True) == [*lows]
    assert sorted(highs) == [*highs]
    assert lows[0] < mean < highs[0]


def test_six_cases_that_were_all_won_are_more_than_luck_and_five_are_not() -> None:
    assert interval([1.0] * 6, 0.95)[0] > 0 > interval([1.0] * 5, 0.95)[0]
    assert interval([0.0] * 30, 0.95) == pytest.approx((-0.1157, 0.1157), abs=1e-3)


@pytest.mark.parametrize(("won", "lost", "p"), [(0, 0, 1.0), (6, 0, 1 / 64), (3, 1, 5 / 16)])
def test_the_sign_test_counts_coin_tosses(won: int, lost: int, p: float) -> None:
    assert sign_test(won, lost) == p
    # Both tails together count the outcome itself twice.
    both = sign_test(won, lost) + sign_test(lost, won)
    assert both == pytest.approx(1 + math.comb(won + lost, won) / 2 ** (won + lost))


def test_a_gain_outweighs_as_the_interval_says() -> None:
    chance = random.Random(1)
    for _ in range(25):
        gains = [chance.choice([-0.5, 0.0, 0.1, 0.4, 1.0]) for _ in range(chance.randint(3, 30))]
        low, _ = interval(gains, 0.95)
        assert outweighs(gains, 0.025, worst=-1.0) is (low > 0)
    assert outweighs([0.1, 0.0], 0.025, worst=0.0)
    assert not outweighs([0.0, 0.0], 0.025, worst=0.0)
