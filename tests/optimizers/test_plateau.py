"""Stopping where another gain has become improbable: the chance, and the runs that it ends."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizers.worlds import config, instruction, optimize
from promptgraft import GepaResult, MemoryJournal, Stopper, StopReason
from promptgraft.errors import ConfigError
from promptgraft.prompt import RenderedPrompt
from promptgraft.search import Plateau
from promptgraft.search.stopping import Leader, chance_of_first, chance_of_more


def right(share: float, of: int = 20) -> list[float | None]:
    return [1.0 if place < share * of else 0.0 for place in range(of)]


def jump(at: int) -> list[Leader]:
    """Return leaders of a run whose first text has everything."""
    return [Leader(0, right(0.2)), Leader(at, right(0.9))]


def climb(*, until: int, end: int) -> list[Leader]:
    """Return leaders of a run that gains the same with every step of 20 rollouts."""
    return [Leader(at, right(at / end)) for at in range(0, until + 1, 20)]


# The chance


def test_a_run_whose_first_text_has_everything_soon_has_little_chance_of_more() -> None:
    chances = [chance_of_more(jump(20), now, 600, 0.02) for now in (40, 100, 200)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.05 > chances[-1]


def test_a_run_that_still_climbs_has_a_good_chance_of_more() -> None:
    assert chance_of_more(climb(until=280, end=600), 290, 600, 0.02) > 0.5


def test_a_larger_gain_is_less_probable_and_more_budget_makes_each_more_probable() -> None:
    leaders = climb(until=100, end=600)
    small, large = (chance_of_more(leaders, 110, 600, gain) for gain in (0.02, 0.5))
    assert small > large
    assert chance_of_more(leaders, 110, 6_000, 0.02) > chance_of_more(leaders, 110, 120, 0.02)


@given(
    scores=st.lists(
        st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=8), min_size=2, max_size=6
    ),
    pauses=st.lists(st.integers(1, 1_000), min_size=8, max_size=8),
)
def test_any_scores_give_a_chance(scores: list[list[float | None]], pauses: list[int]) -> None:
    times = [0, *itertools.accumulate(pauses)]
    leaders = [Leader(*pair) for pair in zip(times, scores, strict=False)]
    assert 0 <= chance_of_more(leaders, times[6], times[7], 0.02) <= 1


def test_the_chance_of_a_first_gain_is_that_of_the_model_by_simulation() -> None:
    draw, failed, more = random.Random(0), 6, 12
    went_on = gained = 0
    while went_on < 2_000:
        success = draw.random() if draw.random() < 0.5 else 0.0
        if all(draw.random() >= success for _ in range(failed)):
            went_on += 1
            gained += any(draw.random() < success for _ in range(more))
    assert gained / went_on == pytest.approx(12 / (8 * 19), abs=0.03)
    assert chance_of_first(failed, more / failed) == pytest.approx(12 / (8 * 19))


# Runs


class Unhelpful:
    """A reflection model whose texts are new, and never better."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, rendered: RenderedPrompt[object]) -> str:
        self.asked += 1
        return instruction(f"Known words: none, as said {self.asked} times.")


def run(
    *stoppers: Stopper, budget: int | str = 400, journal: MemoryJournal | None = None
) -> GepaResult:
    settings = config(stoppers=stoppers, rollout_budget=budget)
    return optimize(settings, reflection=Unhelpful(), journal=journal or MemoryJournal())


def test_a_run_that_gains_nothing_says_so_and_gives_its_budget_back() -> None:
    result = run(Plateau())
    assert result.stop_reason is StopReason.PLATEAU
    assert re.fullmatch(
        r"none of \d+ new texts was better; less than 5% chance of another \+0.02, so \d+ calls "
        "are not used",
        result.stop_detail,
    )
    assert result.total_rollouts < 200


def test_a_size_as_budget_has_the_stopper_and_a_number_has_not() -> None:
    assert run(budget="heavy").stop_reason is StopReason.PLATEAU
    assert run().stop_reason is not StopReason.PLATEAU


def test_a_risk_of_none_never_stops_even_where_a_size_is_the_budget() -> None:
    assert run(Plateau(risk=0), budget="heavy").stop_reason is not StopReason.PLATEAU


def test_a_run_is_continued_without_the_stopper_and_ends_like_one_that_never_had_it() -> None:
    journal = MemoryJournal()
    assert run(Plateau(), journal=journal).stop_reason is StopReason.PLATEAU
    assert run(journal=journal) == run()


def test_a_run_that_stopped_stops_there_again_without_a_call() -> None:
    journal = MemoryJournal()
    stopped, count = run(Plateau(), journal=journal), len(list(journal.records()))
    assert run(Plateau(), journal=journal) == stopped
    assert len(list(journal.records())) == count


def test_a_run_that_gains_with_every_step_is_not_stopped() -> None:
    assert optimize(config(stoppers=(Plateau(),))).stop_reason is StopReason.PERFECT


@pytest.mark.parametrize("name", ["gain", "risk"])
@pytest.mark.parametrize("value", [-0.1, 1.1, "0.1", None, True])
def test_a_share_that_makes_no_sense_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^Plateau: {name}: expected a number from 0 to 1"):
        Plateau(**{name: value})
