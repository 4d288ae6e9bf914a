"""A gain is reported with its interval, its cases and its unscored cases."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence

import pytest

from promptgraft.errors import ConfigError
from promptgraft.evals.gains import Gain, Outcome, Statement, gain

Scores = Mapping[str, Sequence[float | None]]


def one_each(*scores: float | None) -> Scores:
    return {f"c{number}": (score,) for number, score in enumerate(scores)}


def sides(won: int, lost: int, tied: int) -> tuple[Scores, Scores]:
    before = one_each(*[0.0] * won, *[1.0] * lost, *[1.0] * tied)
    after = one_each(*[1.0] * won, *[0.0] * lost, *[1.0] * tied)
    return before, after


def test_a_clear_gain_is_an_improvement_and_fits_on_one_line() -> None:
    found = gain(*sides(17, 5, 64))

    assert found.verdict is Outcome.IMPROVED
    assert found.mean_before == pytest.approx(69 / 86)
    assert found.mean_after == pytest.approx(81 / 86)
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low < 12 / 86 < found.high < 0.3
    assert found.line() == (
        f"gain +0.140 (95 % interval {found.low:+.3f} to {found.high:+.3f}) "
        "on 86 cases, 17 better, 5 worse, 64 the same"
    )


def test_a_gain_that_may_be_chance_is_no_improvement() -> None:
    found = gain(*sides(10, 6, 20))
    assert found.mean_gain is not None
    assert found.mean_gain > 0
    assert found.verdict is Outcome.NOT_SHOWN

    assert found.meaning == (
        "not significant at 95 %; about 160 cases would show a gain of this size"
    )
    most = gain(*sides(10 * 5, 6 * 5, 20 * 5))
    assert most.verdict is Outcome.IMPROVED


def test_a_clear_loss_is_worse_and_the_mirror_of_the_gain() -> None:
    before, after = sides(9, 1, 2)
    forth, back = gain(before, after), gain(after, before)

    assert back.verdict is Outcome.WORSE
    assert (back.won, back.lost, back.tied) == (forth.lost, forth.won, forth.tied)
    assert forth.low is not None
    assert forth.high is not None
    assert (back.low, back.high) == pytest.approx((-forth.high, -forth.low), abs=1e-6)
    assert back.meaning == (
        "significantly worse at 95 %: worse on 9 of 10 cases that differ (p = 0.011); "
        "mean -0.667, interval below 0"
    )
    assert back.mean_gain == -(forth.mean_gain or 0)


def test_a_handful_of_cases_improves_nothing_however_well_it_went() -> None:
    found = gain(*sides(5, 0, 0))
    assert found.verdict is Outcome.NOT_SHOWN
    assert found.line() == (
        "gain +1.000 (95 % interval -0.044 to +1.000) on 5 cases, 5 better, 0 worse, 0 the same"
    )
    assert found.meaning == (
        "not significant: 5 cases cannot prove a gain, use 6 or more, better 50"
    )
    assert gain(*sides(1, 0, 0)).meaning.startswith("not significant: 1 case cannot prove")
    assert gain(*sides(5, 0, 0), level=0.9).verdict is Outcome.IMPROVED


def test_repeated_answers_are_averaged_so_that_cases_count_and_not_answers() -> None:
    before = {"a": (0.0, 1.0, None), "b": (0.1, 0.2, 0.3)}
    after = {"a": (1.0, 1.0, 1.0), "b": (0.3, 0.1, 0.2)}
    found = gain(before, after)

    assert (found.won, found.tied, found.cases) == (("a",), ("b",), 2)
    assert found.mean_gain == pytest.approx(0.25)
    many = gain({id_: s * 50 for id_, s in before.items()}, {i: s * 50 for i, s in after.items()})
    assert (many.low, many.high) == (found.low, found.high)


def test_unscored_cases_are_named_and_in_no_mean() -> None:
    before: Scores = {"a": (0.0,), "b": (None,), "c": (1.0,), "d": ()}
    after: Scores = {"a": (1.0,), "b": (1.0,), "e": (1.0,), "d": (1.0,)}
    found = gain(before, after)

    assert found.unscored == ("b", "c", "d", "e")
    assert (found.mean_before, found.mean_after) == (0.0, 1.0)
    assert found.line().endswith("on 1 case, 1 better, 0 worse, 0 the same; 4 unscored")


@pytest.mark.parametrize("scores", [{}, {"a": (None,)}])
def test_without_a_pair_the_gain_is_not_known(scores: Scores) -> None:
    found = gain(scores, scores)
    assert (found.mean_before, found.mean_gain, found.low) == (None, None, None)
    assert found.verdict is Outcome.NOT_SHOWN
    assert found.line().startswith("gain unknown: no case has a score before and after")


def test_the_same_scores_give_the_same_gain_whatever_the_order() -> None:
    chance = random.Random(1)
    before = {f"c{n}": (chance.random(),) for n in range(60)}
    after = {f"c{n}": (chance.random() + 0.1,) for n in range(60)}
    ids = sorted(before, key=lambda _: chance.random())

    def figures(found: Gain) -> tuple[object, ...]:
        return found.low, found.high

    assert gain(before, after) == gain(before, after)
    shuffled = gain({id_: before[id_] for id_ in ids}, {id_: after[id_] for id_ in ids})
    assert figures(shuffled) == figures(gain(before, after))


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_is_a_share(level: float) -> None:
    with pytest.raises(ConfigError, match="level: expected a number above 0 and below 1, found"):
        gain({}, {}, level=level)


def test_a_gain_has_its_interval_in_a_plain_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert gain(*sides(6, 0, 0)).interval == "95 % interval +0.081 to +1.000"


def test_scores_beyond_0_to_1_widen_what_a_case_could_have_gained() -> None:
    before, after = one_each(1.0, 8.0, 4.0), one_each(10.0, 9.0, 4.5)
    small = gain(
        one_each(*(score[0] / 10 for score in before.values() if score[0] is not None)),
        one_each(*(score[0] / 10 for score in after.values() if score[0] is not None)),
    )
    found = gain(before, after)
    assert small.low is not None
    assert small.high is not None
    assert (found.low, found.high) == pytest.approx((10 * small.low, 10 * small.high), abs=1e-5)


def test_for_machines_a_gain_is_its_numbers() -> None:
    before, after = sides(6, 0, 2)
    found = gain({**before, "x": (None,)}, after)
    assert found.to_json() == {
        "gain": 0.75,
        "low": found.low,
        "high": found.high,
        "level": 0.95,
        "won": 6,
        "lost": 0,
        "tied": 2,
        "unscored": 1,
        "p_value": 2**-6,
        "shown_by": ["more cases", "mean"],
        "cases_to_show": None,
    }


def small_gains(gained: Sequence[float]) -> Gain:
    """Return the gain of cases that score 0.5 before."""
    return gain(one_each(*[0.5] * len(gained)), one_each(*(0.5 + more for more in gained)))


def test_many_small_gains_are_shown_by_the_cases_and_not_by_the_worst_case_interval() -> None:
    found = small_gains([0.1] * 18 + [0.0] * 6)
    assert found.low is not None
    assert found.low < 0
    assert found.verdict is Outcome.IMPROVED
    assert found.shown_by == (Statement.CASES,)
    assert found.meaning == (
        "significant at 95 %: better on 18 of 18 cases that differ (p < 0.001); mean +0.075"
    )


def test_few_large_gains_are_shown_by_the_mean_and_not_by_the_number_of_cases() -> None:
    found = small_gains([0.5] * 30 + [-0.01] * 25)
    assert found.shown_by == (Statement.MEAN,)
    assert found.meaning == "significant at 95 %: mean +0.268, interval above 0"


def test_more_cases_won_show_nothing_if_the_mean_may_be_a_loss() -> None:
    outweighed = small_gains([0.01] * 23 + [-0.3])
    assert outweighed.verdict is Outcome.NOT_SHOWN
    # The mean is above 0, but one more such case would put it below.
    barely = small_gains([0.02] * 23 + [-0.4])
    assert barely.mean_gain is not None
    assert barely.mean_gain > 0
    assert barely.verdict is Outcome.NOT_SHOWN
    assert barely.meaning == (
        "not significant at 95 %: better on 23 of 24 cases that differ (p < 0.001), but the mean "
        "gain may be the opposite"
    )
    assert small_gains([0.1] * 23 + [-0.1]).verdict is Outcome.IMPROVED


def test_the_number_of_cases_that_would_show_a_gain_does_and_fewer_do_not() -> None:
    found = gain(*sides(3, 1, 8))
    needed = found.cases_to_show
    assert needed is not None
    times = -(-needed // 12)
    assert gain(*sides(3 * times, times, 8 * times)).verdict is Outcome.IMPROVED
    fewer = needed // 12 - 2
    assert gain(*sides(3 * fewer, fewer, 8 * fewer)).verdict is Outcome.NOT_SHOWN
    assert gain(*sides(3, 3, 8)).cases_to_show is None


def test_each_statement_has_its_error_so_that_an_old_run_is_read_as_it_was() -> None:
    before, after = one_each(*[0.5] * 18), one_each(*[0.6] * 18)
    assert gain(before, after).verdict is Outcome.IMPROVED
    assert gain(before, after, spent_on_cases=0.0).verdict is Outcome.NOT_SHOWN
    assert gain(before, after, spent_on_cases=2**-18).verdict is Outcome.IMPROVED
    assert gain(before, after, spent_on_cases=2**-19).verdict is Outcome.NOT_SHOWN
