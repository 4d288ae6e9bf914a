"""Winners that game their metrics are marked, and honest ones are not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from further import some

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import gaming
from promptgraft.search.verdict import RunVerdict


@pytest.mark.parametrize("world", some(gaming.GAMED), ids=lambda world: world.name)
def test_a_gamed_metric_is_noticed(world: gaming.World) -> None:
    result = gaming.optimized(world, seed=1)
    assert (result.verdict, result.improved) == (RunVerdict.GAMED, False)
    assert result.held_out is not None
    assert result.held_out.signs
    assert all(f"gamed? {sign}" in result.remarks for sign in result.held_out.signs)


@pytest.mark.parametrize("world", some(gaming.HONEST), ids=lambda world: world.name)
def test_an_honest_gain_is_not_marked(world: gaming.World) -> None:
    result = gaming.optimized(world, seed=2, hidden=True)
    assert result.held_out is not None
    assert (result.held_out.doubts, result.verdict) == ((), RunVerdict.IMPROVED)
