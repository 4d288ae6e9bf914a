"""What the demo promises, measured on the tickets that the search never saw."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from promptgraft.cli.main import run

TAG_FILE = ".promptgraft/overrides/examples/support/triage/triage-demo.json"


def demo(store: Path, seed: int) -> dict[str, dict[str, float]]:
    """Run the demo in a process of its own and return its scores."""
    command = [sys.executable, "-m", "promptgraft", "demo", "--json", "--quiet"]
    done = subprocess.run(
        [*command, "--seed", str(seed), "--store", str(store)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["rollouts"]["used"] <= document["rollouts"]["budget"]
    scores: dict[str, dict[str, float]] = document["scores"]
    return scores


@pytest.fixture(scope="module")
def by_default(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """The store and the held-out scores of a demo with the default seed."""
    store = tmp_path_factory.mktemp("demo")
    return store, demo(store, 0)["held_out"]


def test_the_default_seed_gains_a_quarter_on_held_out_tickets(
    by_default: tuple[Path, dict[str, float]],
) -> None:
    _, held_out = by_default
    assert held_out["best"] - held_out["baseline"] >= 0.25


@pytest.mark.parametrize("seed", range(1, 6))
def test_every_seed_improves_on_held_out_tickets(
    tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["demo", "--json", "--quiet", "--seed", str(seed), "--store", str(tmp_path)])

    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert document["rollouts"]["used"] <= document["rollouts"]["budget"]
    held_out = document["scores"]["held_out"]
    assert held_out["best"] > held_out["baseline"]


def test_the_same_seed_gives_byte_identical_winners(
    tmp_path: Path, by_default: tuple[Path, dict[str, float]]
) -> None:
    demo(tmp_path, 0)
    one, two = (json.loads((store / TAG_FILE).read_text()) for store in (by_default[0], tmp_path))
    assert one["sections"] == two["sections"]
    assert one["sections"]
