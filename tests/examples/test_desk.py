"""The desk example: its cases, its loop, and that a gradient search improves it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import attrs
import pytest

from programs import Programs
from promptgraft import Data, Dataset
from promptgraft.project.python_source import load_file

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


def test_a_small_search_gains_on_held_out_cases_by_patches_of_several_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    program = load_file(FOLDER / "improve.py", name="improve_desk", what="example")
    monkeypatch.setattr(program, "VALIDATION", 20)
    monkeypatch.setattr(program, "TRAINING", 40)
    whole = program.config(0)
    small = attrs.evolve(
        whole,
        rollout_budget=300,
        train_batch=30,
        data=Data(held_out=whole.data.held_out[:40]),
    )
    monkeypatch.setattr(program, "config", lambda _: small)
    program.main(0)
    check_gain(capsys.readouterr().out.splitlines(), least=0.1)


@pytest.mark.thorough
def test_the_program_ends_with_what_its_page_shows(improved: Improved) -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    shown = page.partition("```text\n")[2].partition("```")[0].splitlines()
    assert [line for line in improved(0) if not line.startswith("round")] == shown


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(SEEDS))
def test_held_out_cases_gain_and_each_patch_names_its_failures(
    seed: int, improved: Improved
) -> None:
    check_gain(improved(seed), least=0.2)


def check_gain(told: list[str], *, least: float) -> None:
    [held_out] = [line.split() for line in told if line.startswith("held-out:")]
    assert float(held_out[3]) - float(held_out[1]) >= least
    patches = [line for line in told if "#instruction, for ride-" in line]
    assert {line.split("/")[2].partition("#")[0] for line in patches} >= {"wish", "mood", "haste"}
