"""The BAML example: it gains on held-out tests, its patch applies, and BAML agrees."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.console import Console

BamlRuntime = pytest.importorskip("baml_py").BamlRuntime

FOLDER = Path(__file__).parents[2] / "examples" / "receipt_baml"


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    told = [sys.executable, "offline.py", *command]
    return subprocess.run(told, cwd=folder, capture_output=True, text=True, check=False)


def passed(folder: Path) -> set[str]:
    """Return the tests that BAML itself lets pass."""
    ran = run(folder, "baml-cli", "test", "--from", "baml_src", "--parallel", "16")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", ran.stdout)
    return set(re.findall(r"PASSED +ExtractReceipt::(\w+)", plain))


def passed_here(folder: Path) -> set[str]:
    ran = run(folder, "promptgraft", "eval", "receipt", "--split", "all", "--json")
    document = json.loads(ran.stdout)
    return {one["id"] for one in document["cases"] if one["passed"]}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example") / "receipt_baml"
    ignored = shutil.ignore_patterns("runs", "__pycache__", ".promptgraft")
    shutil.copytree(FOLDER, folder, ignore=ignored)
    return folder


def test_held_out_tests_gain_and_the_patch_does_what_apply_does(project: Path) -> None:
    before = passed(project)
    ended = run(project, "promptgraft", "optimize", "--quiet")
    assert ended.returncode == 0, ended.stderr
    page = (FOLDER / "README.md").read_text("utf-8")
    shown = page.partition("```text\n")[2].partition("```")[0].splitlines()
    assert [line for line in ended.stdout.splitlines() if line in shown] == shown

    [kept] = (project / "runs").iterdir()
    alone = sorted((kept / "candidates").glob("*.baml"))
    assert [one.with_suffix(".md").exists() for one in alone] == [True] * 4
    for one in alone:
        BamlRuntime.from_files(".", {one.name: one.read_text("utf-8")}, {})
    assert "ISO 8601" in alone[-1].read_text("utf-8")

    patch = run(project, "promptgraft", "apply", "--patch").stdout
    source = project / "baml_src" / "receipt.baml"
    original = source.read_bytes()
    subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
    subprocess.run(["git", "apply", "-"], cwd=project, input=patch, text=True, check=True)
    patched = source.read_text("utf-8")
    assert 'date string @description("As ISO 8601, YYYY-MM-DD") // how we book it' in patched
    assert "total float @description(" in patched
    source.write_bytes(original)
    assert run(project, "promptgraft", "apply", "--to-source").returncode == 0
    assert source.read_text("utf-8") == patched

    after = passed(project)
    assert before == set()
    assert len(after) == 47
    assert passed_here(project) == after


def test_a_command_makes_the_project_file(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "fresh"
    shutil.copytree(
        project, folder, ignore=shutil.ignore_patterns("runs", ".*", "promptgraft.yaml")
    )
    shutil.copy(FOLDER / "baml_src" / "receipt.baml", folder / "baml_src")
    told = ("--baml", "baml_src", "--function", "ExtractReceipt")
    more = ("--test", "::Train*", "--auto", "light", "--reflection", "rewriter.py:make")
    weights = ("--weights", "accuracy=0.8,completion_tokens=0.2")
    ended = run(folder, "promptgraft", "optimize", *told, *more, *weights)
    assert ended.returncode in (0, 1), ended.stderr  # few tests are held out to show a gain
    assert "wrote promptgraft.yaml" in ended.stderr
    written = (folder / "promptgraft.yaml").read_text("utf-8")
    assert '{"score": 0.8, "completion_tokens": 0.2}' in written
    assert run(folder, "promptgraft", "check").returncode == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--auto", "light"), "--auto: is for a BAML project; name it with --baml"),
        (("--baml", "baml_src"), "--function: expected a function"),
        (("receipt", "--baml", "baml_src"), "--baml: names the prompt"),
        (("--baml", "none", "--function", "F"), "promptgraft.yaml is of another prompt"),
        (("--baml", "baml_src", "--function", "Extract"), "names `ExtractReceipt`"),
        (
            ("--baml", "baml_src", "--function", "ExtractReceipt", "--auto", "light"),
            "promptgraft.yaml already exists",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line(
    project: Path,
    given: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(project)
    ended = Console(capsys)("optimize", *given)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1
