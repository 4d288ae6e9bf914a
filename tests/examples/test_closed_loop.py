"""The closed loop as its workflow runs it: the gate on a change, the search at night."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from promptgraft.cli.main import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "closed_loop"
WORKFLOW = EXAMPLE / ".github" / "workflows" / "prompt.yml"
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "prompt bot"), ("EMAIL", "bot@example.org"))
}


def environment(folder: Path) -> dict[str, str]:
    """The scripts find `promptgraft` where this Python is; git reads no settings of the user."""
    return {
        **os.environ,
        **IDENTITY,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GITHUB_OUTPUT": str(folder.parent / "output"),
    }


def script(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The example in a repository of its own."""
    folder = tmp_path / "desk"
    unwanted = shutil.ignore_patterns("__pycache__", "runs", ".promptgraft", "gate.xml")
    shutil.copytree(EXAMPLE, folder, ignore=unwanted)
    begun = script(folder, "git init -q -b main . && git add . && git commit -q -m First")
    assert begun.returncode == 0, begun.stderr
    return folder


def test_the_night_leaves_a_branch_with_the_diff_and_the_gate_passes_it(checkout: Path) -> None:
    night = script(checkout, "sh ci/nightly.sh")
    assert night.returncode == 0, night.stderr
    branch = night.stdout.splitlines()[-1].removeprefix("branch ")
    assert re.fullmatch(r"promptgraft/\d{8}-\d{6}-desk", branch)
    assert (checkout.parent / "output").read_text("utf-8") == f"branch={branch}\n"

    changed = script(checkout, f"git diff --stat main {branch} -- && git status --short")
    assert re.findall(r"^ (\S+) +\|", changed.stdout, re.MULTILINE) == [
        "baseline.json",
        "prompts/desk.md",
    ]
    assert "??" not in changed.stdout
    gate = script(checkout, "sh ci/gate.sh")
    assert gate.returncode == 0, gate.stderr
    page = (EXAMPLE / "README.md").read_text("utf-8")
    shown = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert shown
    assert all(block in night.stdout for block in shown)


def test_the_gate_stops_a_prompt_that_got_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "desk", ignore=shutil.ignore_patterns("runs"))
    monkeypatch.chdir(tmp_path / "desk")
    prompt = Path("prompts", "desk.md")
    text = prompt.read_text("utf-8")
    worse = text.replace("prescription: medicine, tablets", "prescription: other")
    prompt.write_text(worse, "utf-8")
    lines = Path("ci", "gate.sh").read_text("utf-8").splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("promptgraft ")]

    assert [run(command[1:]) for command in commands] == [1]
    assert "critical cases: worse than the baseline: m-26 (1 -> 0)" in capsys.readouterr().out
    root = ET.parse("gate.xml").getroot()
    assert int(root.get("failures", "0")) > 2


def test_the_workflow_runs_the_two_scripts() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text("utf-8"))
    commands = {
        name: [step["run"] for step in job["steps"] if "run" in step]
        for name, job in workflow["jobs"].items()
    }
    assert "sh ci/gate.sh" in commands["gate"]
    assert "sh ci/nightly.sh" in commands["nightly"]
    assert workflow["jobs"]["nightly"]["permissions"] == {
        "contents": "write",
        "pull-requests": "write",
    }
