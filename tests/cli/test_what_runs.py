"""The page *What runs when* tells of every command whether it runs the project's Python."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
import yaml

from cli.console import Console, process
from promptgraft.cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "what-runs.md"
MARK = 'open(__file__ + ".ran", "w").close()\n'
FILES = {
    "promptgraft.yaml": """\
version: 1
prompts: {words: prompt.py:PROMPT}
dataset: {path: cases.jsonl}
metrics: [{name: own, kind: python, function: "metric.py:judge"}]
models: {task: {python: "model.py:ADAPTER"}, reflection: {python: "model.py:ADAPTER"}}
optimizer: {rollout_budget: 60}
""",
    "prompt.py": MARK
    + """
from promptgraft import MarkdownSection, PromptTemplate
SECTION = MarkdownSection(title="Rules", key="rules", template="Answer $text.")
PROMPT = PromptTemplate(ns="a", key="words", name="Words", sections=[SECTION])
""",
    "metric.py": f"{MARK}def judge(case, answer):\n    return 1.0\n",
    "model.py": MARK
    + """
from promptgraft import ScriptedAdapter
ADAPTER = ScriptedAdapter(lambda rendered: "light", identity="m")
""",
    "cases.jsonl": "".join(
        json.dumps({"id": f"c{n}", "input": f"w {n}", "expected": "light"}) + "\n"
        for n in range(40)
    ),
}
JOBS = "sqlite:///jobs.db"
# Command: its lines; the first run is there after `optimize`.
LINES: dict[str, list[list[str]]] = {
    "check": [["check"]],
    "plan": [["plan"]],
    "optimize": [["optimize", "-q"]],
    "resume": [["resume", "latest", "-q"]],
    "eval": [["eval", "-q"]],
    "describe": [["describe", "words"]],
    "render": [["render", "words"]],
    "export": [["export", "words"]],
    "runs": [["runs"]],
    "watch": [["watch", "latest"]],
    "report": [["report", "latest"]],
    "compare": [["compare", "latest", "latest"]],
    "replay": [["replay"]],
    "show": [["show"], ["show", "latest"], ["show", "a/words"]],
    "diff": [["diff", "words"]],
    "history": [["history", "words"]],
    "rollback": [["rollback", "words"]],
    "meta": [["meta", "list"], ["meta", "write", "meta"]],
    "tokens": [["tokens", "list", "--jobs", JOBS]],
    "docs": [["docs"]],
    "completion": [["completion", "bash"]],
    "init": [["init", "fresh"]],
    "import": [["import", "cases.jsonl"]],
}


def table() -> dict[str, str]:
    """Return what the page says of each command's Python."""
    rows = re.findall(r"(?m)^\| `(\w+)` \| ([^|]+) \|", PAGE.read_text("utf-8"))
    assert len(rows) == len(dict(rows))
    return dict(rows)


def test_the_table_has_every_command() -> None:
    assert sorted(table()) == sorted(app.list_commands(click.Context(app)))


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert process("optimize", "-q", folder=tmp_path).returncode in (0, 1)
    return tmp_path


def ran(folder: Path) -> set[str]:
    """Return which Python files were imported since the last call."""
    found = list(folder.glob("*.ran"))
    for path in found:
        path.unlink()
    return {path.name.removesuffix(".py.ran") for path in found}


def test_commands_run_the_python_that_the_table_says(planted: Path, console: Console) -> None:
    assert ran(planted) == {"prompt", "metric", "model"}
    says = table()
    for name, lines in LINES.items():
        for line in lines:
            console(*line)
            found = ran(planted)
            if says[name] == "none" or name == "show":  # of no prompt of the project here
                assert found == set(), line
            elif says[name].startswith("project"):
                assert {"prompt", "metric"} <= found, line
            else:
                assert found == {"prompt"}, line


def test_the_action_refuses_pull_request_target_before_anything_else() -> None:
    first = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))["runs"]["steps"][0]
    assert first["if"] == "github.event_name == 'pull_request_target'"
    assert first["run"].rstrip().endswith("exit 1")
