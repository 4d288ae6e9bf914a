"""The desk example: its cases, its loop, and that a gradient search improves it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from programs import Programs
from promptgraft import Dataset

FOLDER = Path(__file__).parents[2] / "examples" / "desk"
SEEDS = int(os.environ.get("PROMPTGRAFT_SEEDS", "1"))
"""Seeds of the test; the example is held to ``PROMPTGRAFT_SEEDS=10``."""

Improved = Callable[[int], list[str]]
"""Runs the program with a seed, once; returns what it prints."""


@pytest.fixture(scope="module")
def improved(programs: Programs) -> Improved:
    return cache(
        lambda seed: programs.output(FOLDER / "improve.py", str(seed), folder=FOLDER).splitlines()
    )


def test_the_cases_are_many_and_all_different() -> None:
    cases = Dataset.load(FOLDER / "cases.jsonl").cases
    assert len(cases) >= 240
    assert len({str(case.input) for case in cases}) == len(cases)
    for name in ("desk", "wish", "mood", "haste"):
        counts = Counter(case.expected[name] for case in cases if isinstance(case.expected, dict))
        assert min(counts.values()) >= 24


def test_the_program_ends_with_what_its_page_shows(improved: Improved) -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    shown = page.partition("```text\n")[2].partition("```")[0].splitlines()
    assert [line for line in improved(0) if not line.startswith("round")] == shown


@pytest.mark.parametrize("seed", range(SEEDS))
def test_held_out_cases_gain_and_each_patch_names_its_failures(
    seed: int, improved: Improved
) -> None:
    told = improved(seed)
    [held_out] = [line.split() for line in told if line.startswith("held-out:")]
    assert float(held_out[3]) - float(held_out[1]) >= 0.2
    patches = [line for line in told if "#instruction, for ride-" in line]
    assert {line.split("/")[2].partition("#")[0] for line in patches} >= {"wish", "mood", "haste"}
