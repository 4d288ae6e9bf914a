"""What the demo promises, measured on the tickets that the search never saw."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from promptgraft.cli.main import run

SEEDS = int(os.environ.get("PROMPTGRAFT_SEEDS", "2"))


@pytest.mark.parametrize(("seed", "least"), [(0, 0.25), *((seed, 0) for seed in range(1, SEEDS))])
def test_every_seed_improves_on_held_out_tickets(
    tmp_path: Path, seed: int, least: float, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["demo", "--json", "--quiet", "--seed", str(seed), "--store", str(tmp_path)])

    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert document["rollouts"]["used"] <= document["rollouts"]["budget"]
    held_out = document["scores"]["held_out"]
    assert held_out["best"] > held_out["baseline"]
    assert held_out["best"] - held_out["baseline"] >= least
