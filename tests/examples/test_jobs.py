"""The examples as jobs of the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from promptgraft.cli.main import run
from promptgraft.project.python_source import beside, load_file

EXAMPLES = Path(__file__).parents[2] / "examples"


def job_of(example: str) -> str:
    return f"{EXAMPLES / example / 'optimize.py'}:job"


@pytest.mark.parametrize(
    ("example", "prompt", "budget"),
    [
        ("triage", "examples/support/triage", 1714),
        ("code_search", "examples/code/search", 2000),
    ],
)
def test_the_plan_of_an_example_is_a_good_one(
    example: str,
    prompt: str,
    budget: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["plan", job_of(example), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["prompt"], plan["rollouts"]) == (prompt, budget)
    assert plan["warnings"] == []


def test_a_dry_run_of_triage_improves_and_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["optimize", job_of("triage"), "--dry-run", "--json", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (document["dry_run"], document["improved"]) == (True, True)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_code_search_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = EXAMPLES / "code_search" / "optimize.py"
    module = load_file(script, name="code_search_optimize", what="example")
    with beside(script.parent):
        result = module.job(0, 100).dry().run()
    assert result.total_rollouts > 0
    assert not result.persisted
    assert list(tmp_path.iterdir()) == []
