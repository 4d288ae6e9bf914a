"""Every shape of data, prompt and writer ends in a result or in one typed line."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from further import some
from grid.pairs import pairs_in, pairwise
from grid.world import FACTORS, check

CELLS = pairwise(FACTORS)

FAILED_ONCE = [
    # Lines moved to another part, on account of examples that did not hash.
    {
        "input": "text",
        "expected": expected,
        "parts": parts,
        "search": "lean",
        "writer": "wrong",
        "run": run,
    }
    for expected, parts, run in (
        ("object", "2", "killed and resumed"),
        ("object", "8", "four workers"),
        ("list", "4", "one worker"),
    )
]
"""Cells that once ended in a traceback, with the cause."""


def name_of(cell: dict[str, str]) -> str:
    return ", ".join(cell.values())


def test_each_pair_of_values_occurs() -> None:
    factors = list(FACTORS.items())
    wanted = {
        ((one, a), (two, b))
        for (one, first), (two, second) in itertools.combinations(factors, 2)
        for a in first
        for b in second
    }
    assert set().union(*map(pairs_in, CELLS)) == wanted
    assert len(CELLS) < 60  # there are 14,580 in all


@pytest.mark.filterwarnings("ignore:.*only .* examples")
@pytest.mark.parametrize(
    "cell",
    [*FAILED_ONCE, *some(CELLS)],
    ids=name_of,
)
def test_every_cell_ends_in_a_result(cell: dict[str, str], tmp_path: Path) -> None:
    assert check(cell, tmp_path).result is not None


def test_good_writers_find_something_whatever_the_data() -> None:
    """Otherwise the grid would hold runs of which nothing comes."""
    cell = {**FAILED_ONCE[0], "writer": "good", "run": "one worker"}
    for shape, expected in zip(FACTORS["input"], FACTORS["expected"], strict=True):
        result = check({**cell, "input": shape, "expected": expected}, Path()).result
        assert result is not None
        assert result.found_better, (shape, expected)
