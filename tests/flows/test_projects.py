"""A project with a graph, from the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.console import Console
from promptgraft import LocalPromptOverridesStore, OfflineAdapter
from promptgraft.graphs import Graph
from promptgraft.project import load_project

ADDRESSES = [f"fernhill/reports/{node}" for node in ("area", "green", "homes", "streets")]


@pytest.fixture
def used(improved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the improved project, which is the current folder."""
    folder = tmp_path / "used"
    shutil.copytree(improved, folder)
    monkeypatch.chdir(folder)
    return folder


def test_a_graph_is_described(used: Path, console: Console) -> None:
    ended = console("describe")
    assert ended.code == 0
    lines = ended.out.splitlines()
    words = [line.split() for line in lines]
    assert ["fernhill/reports/area#instruction", "section", "83", "yes"] in words
    assert ["fernhill/reports/area#section", "task", "section", "83", "no"] in words
    assert lines[-3:] == [f"  {ADDRESSES[0]} -> {ADDRESSES[index]}" for index in (3, 1, 2)]
    plain = json.loads(console("describe", "reports", "--json").out)
    assert [node["id"] for node in plain["nodes"]] == [ADDRESSES[i] for i in (0, 3, 1, 2)]
    assert plain["declared"] is True
    assert plain["entry"] == [ADDRESSES[0]]
    assert len(plain["structure_id"]) == 64
    ended = console("describe", "report")
    assert (ended.code, ended.err) == (
        2,
        (
            "promptgraft: promptgraft.yaml has no prompt `report` (did you mean `reports`?); "
            "there: `reports`\n"
        ),
    )


def test_a_run_changes_only_the_parts_that_are_named(used: Path, console: Console) -> None:
    part = f"{ADDRESSES[0]}#instruction"
    ended = console("optimize", "--part", part, "--budget", "260", "--json", "-q")
    assert ended.code in (0, 1), ended.err
    folder = max((used / "runs").iterdir())
    assert json.loads((folder / "config.json").read_text())["options"]["tuning"] == {
        "targets": {"parts": [part]}
    }
    result = json.loads((folder / "result.json").read_text())
    assert {row["part"] for row in result["parts"]} <= {part}
    applied = console("apply", "latest", "--keep-anyway", "--json")
    rows = [row for prompt in json.loads(applied.out).get("prompts", []) for row in prompt["parts"]]
    assert {row["part"] for row in rows} == {row["part"] for row in result["parts"]}
    # Resumed, the run has the parts that it was begun with.
    assert console("resume", "latest", "-q", "--budget", "270").code in (0, 1)
    refused = console("optimize", "--part", f"{part}s", "-q")
    assert refused.code == 2
    assert f"did you mean `{part}`" in refused.err


def test_the_winner_of_all_prompts_is_stored_and_answers(used: Path, console: Console) -> None:
    store = LocalPromptOverridesStore(used)
    project = load_project(used / "promptgraft.yaml")
    graph = project.prompt().graph
    assert isinstance(graph, Graph)
    assert {at for at, one in graph.by_address.items() if store.resolve(one.descriptor)} <= {
        *ADDRESSES
    }
    shown = console("show").out
    assert "fernhill/reports/area" in shown
    case = next(iter(project.splits.parts()["test"]))
    answer = graph.answer(case.input, adapter=OfflineAdapter(), store=store)
    assert answer.text in {"roads", "lighting", "waste", "parks", "water", "noise"}


def test_the_texts_of_a_graph_are_rendered_and_its_prompts_compared(
    used: Path, console: Console
) -> None:
    applied = console("export").out
    assert "## area" in applied
    assert applied != console("export", "--source").out
    assert console("diff", "fernhill/reports/area").code == 0
    stored_prompts = [tag["prompt"] for tag in json.loads(console("show", "--json").out)["tags"]]
    for command in ("diff", "history"):
        compared = json.loads(console(command, "reports", "--json").out)["prompts"]
        assert [document["prompt"] for document in compared] == stored_prompts
        shown = console(command)
        assert shown.code == 0
        assert all(f"prompt `{prompt}`" in shown.out for prompt in stored_prompts)
    for arguments in (["rollback", "reports"], ["diff", "reports", "--from", "1"]):
        ended = console(*arguments)
        assert ended.code == 2
        assert "name one of" in ended.err
        assert "`fernhill/reports/area`" in ended.err


def test_a_graph_is_evaluated_as_it_is_and_as_a_run_has_it(used: Path, console: Console) -> None:
    scores = {
        how: json.loads(console("eval", "--json", *how).out)["mean_score"]
        for how in [(), ("--source",), ("--run", "latest"), ("--run", "latest", "--candidate", "0")]
    }
    assert scores["--source",] == scores["--run", "latest", "--candidate", "0"]
    assert scores[()] == scores["--run", "latest"]
    assert scores[()] > scores["--source",]


@pytest.mark.thorough
def test_the_gate_for_pytest_runs_on_a_graph(used: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests"],
        cwd=used,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 passed" in ended.stdout, ended.stdout


def test_what_each_node_did_with_a_case_is_shown(used: Path, console: Console) -> None:
    case = load_project(used / "promptgraft.yaml").splits.parts()["validation"].cases[0].id
    shown = console("show", "latest", "--case", case, "--candidate", "0").out
    assert "  step 1: area\n" in shown
    assert ", after 1\n" in shown
    plain = json.loads(console("show", "latest", "--case", case, "--json").out)
    steps = plain["rollouts"][0]["steps"]
    assert [step["id"] for step in steps] == ["1", "2"]
    assert [*steps[0]["parts"]] == ["fernhill/reports/area#instruction"]


def test_a_run_of_a_graph_is_resumed_compared_watched_and_planned(
    used: Path, console: Console
) -> None:
    before = (used / "promptgraft.yaml").read_text("utf-8")
    [folder] = [path for path in (used / "runs").iterdir() if path.is_dir()]
    assert console("compare", "latest", "latest").code == 0
    assert "improved" in console("watch", "latest").out
    assert "fernhill/reports: what a run will use" in console("plan").out
    [whole] = [(folder / "journal.jsonl").read_bytes()]
    lines = whole.splitlines(keepends=True)
    # As a kill leaves it: half of the answers, and no result yet.
    (folder / "journal.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
    (folder / "result.json").unlink()
    assert console("resume", folder.name).code == 0
    again = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    assert sorted(again) == sorted(lines)
    assert (used / "promptgraft.yaml").read_text("utf-8") == before


BROKEN = [
    ("graphs: {reports: agent.py:GRAPHS}", "graphs.reports: "),
    ("graphs: {reports: agent.py:AREA}", "graphs.reports: expected `agent.py:AREA` to be a Graph"),
    ("graphs: {reports: agent.md}", "graphs.reports: expected `file.py:NAME` or `module:NAME`"),
    ("graphs: {}", "graphs: expected an object with at least one graph"),
    ("runs: runs", "expected `prompts` or `graphs`, found neither"),
    (
        "prompts: {reports: agent.py:AREA}\ngraphs: {reports: agent.py:GRAPH}",
        "graphs: `reports` is the name of a prompt too; give it another one",
    ),
]


@pytest.mark.parametrize(("written", "said"), BROKEN)
def test_a_broken_project_file_is_refused_with_its_place(
    used: Path, console: Console, written: str, said: str
) -> None:
    file = used / "promptgraft.yaml"
    text = file.read_text("utf-8").replace("graphs:\n  reports: agent.py:GRAPH\n", f"{written}\n")
    file.write_text(text, "utf-8")
    ended = console("check")
    assert ended.code == 2
    assert said in ended.out + ended.err


def test_earlier_messages_and_the_input_are_one_text(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "reports"
    assert console("init", "--graph", str(folder)).code == 0
    monkeypatch.chdir(folder)
    code, data = folder / "agent.py", folder / "data/reports.jsonl"
    cases = [json.loads(line) for line in data.read_text("utf-8").splitlines()]
    message = {"role": "user", "content": "Good morning."}
    talks = [{**case, "context": [message]} for case in cases]
    data.write_text("\n".join(map(json.dumps, talks)), "utf-8")
    source = code.read_text("utf-8")
    seen = 'def team_of(run: Run, report: str) -> str:\n    assert "Good morning." in report\n'
    code.write_text(source.replace("def team_of(run: Run, report: str) -> str:\n", seen), "utf-8")
    assert console("check").code == 0
    assert console("eval", "--split", "test").code == 0
