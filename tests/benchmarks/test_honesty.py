"""The benchmark of verdicts tells a gain from noise."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from honesty import HELD_OUT, is_shown


def test_a_large_gain_is_shown_and_noise_is_not() -> None:
    gains = [is_shown("graded", 0.3, HELD_OUT, seed) for seed in range(5)]
    noise = [is_shown("graded", 0.0, HELD_OUT, seed) for seed in range(5)]
    assert (gains, noise) == ([True] * 5, [False] * 5)


@pytest.mark.thorough
def test_a_verdict_is_a_function_of_its_seed() -> None:
    assert [is_shown("right or wrong", 0.2, 24, seed) for seed in range(6)] == [
        is_shown("right or wrong", 0.2, 24, seed) for seed in range(6)
    ]


@pytest.mark.parametrize("seed", [16, 22, 25])
def test_families_that_are_declared_are_not_mistaken_for_a_gain(seed: int) -> None:
    assert is_shown("families of five cases", 0.0, HELD_OUT, seed)
    assert not is_shown("families of five cases, declared", 0.0, HELD_OUT, seed)
