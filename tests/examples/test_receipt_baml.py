"""The BAML example: it gains on held-out tests, its patch applies, and BAML agrees."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from cli.console import Console
from programs import Programs
from promptgraft import Prompt
from promptgraft.ground.text import fenced
from promptgraft.project.python_source import load_file
from promptgraft.runtime import Session
from promptgraft.targets.part_questions import PART_QUESTIONS, ReflectionParams
from promptgraft.targets.replies import new_text
from promptgraft.targets.types import MetaPrompt

BamlRuntime = pytest.importorskip("baml_py").BamlRuntime

FOLDER = Path(__file__).parents[2] / "examples" / "receipt_baml"


@pytest.fixture(scope="module")
def model() -> Iterator[dict[str, str]]:
    """The model of ``offline.py``; the environment says where it is."""
    module = load_file(FOLDER / "offline.py", name="receipt_offline", what="example")
    with ThreadingHTTPServer(("127.0.0.1", 0), module.Model) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        yield {"RECEIPT_URL": f"http://127.0.0.1:{server.server_port}/v1", "PATH": path}
        server.shutdown()
        thread.join()


def passed(folder: Path) -> set[str]:
    """Return the tests that BAML itself lets pass, with the model as users run it."""
    command = ("baml-cli", "test", "--from", "baml_src", "--parallel", "16")
    told = [sys.executable, "offline.py", *command]
    ran = subprocess.run(told, cwd=folder, capture_output=True, text=True, check=False)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", ran.stdout)
    return set(re.findall(r"PASSED +ExtractReceipt::(\w+)", plain))


def passed_here(evaluated: str) -> set[str]:
    document = json.loads(evaluated)
    return {one["id"] for one in document["cases"] if one["passed"]}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example") / "receipt_baml"
    ignored = shutil.ignore_patterns("runs", "__pycache__", ".promptgraft")
    shutil.copytree(FOLDER, folder, ignore=ignored)
    return folder


def test_held_out_tests_gain_and_the_patch_does_what_apply_does(
    project: Path, model: dict[str, str], programs: Programs
) -> None:
    run = partial(programs.promptgraft, folder=project, environment=model)
    before = passed(project)
    ended = run("optimize", "--quiet")
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

    patch = run("apply", "--patch").stdout
    source = project / "baml_src" / "receipt.baml"
    original = source.read_bytes()
    subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
    subprocess.run(["git", "apply", "-"], cwd=project, input=patch, text=True, check=True)
    patched = source.read_text("utf-8")
    assert 'date string @description("As ISO 8601, YYYY-MM-DD") // how we book it' in patched
    assert "total float @description(" in patched
    source.write_bytes(original)
    assert run("apply", "--to-source").returncode == 0
    assert source.read_text("utf-8") == patched

    after = passed(project)
    assert before == set()
    assert len(after) == 47
    assert passed_here(run("eval", "receipt", "--split", "all", "--json").stdout) == after


@pytest.mark.thorough
def test_a_command_makes_the_project_file(
    project: Path, tmp_path: Path, model: dict[str, str], programs: Programs
) -> None:
    folder = tmp_path / "fresh"
    shutil.copytree(
        project, folder, ignore=shutil.ignore_patterns("runs", ".*", "promptgraft.yaml")
    )
    shutil.copy(FOLDER / "baml_src" / "receipt.baml", folder / "baml_src")
    told = ("--baml", "baml_src", "--function", "ExtractReceipt")
    more = ("--test", "::Train*", "--auto", "light", "--reflection", "rewriter.py:make")
    weights = ("--weights", "accuracy=0.8,completion_tokens=0.2")
    run = partial(programs.promptgraft, folder=folder, environment=model)
    ended = run("optimize", *told, *more, *weights)
    assert ended.returncode in (0, 1), ended.stderr  # few tests are held out to show a gain
    assert "wrote promptgraft.yaml" in ended.stderr
    written = (folder / "promptgraft.yaml").read_text("utf-8")
    assert '{"score": 0.8, "completion_tokens": 0.2}' in written
    assert run("check").returncode == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--test", "::A"), "--test: is for a BAML project; name it with --baml"),
        (
            ("--baml", "none-at-all"),
            "--baml: expected a folder of BAML files, found none at none-at-all",
        ),
        (("receipt", "--baml", "baml_src"), "--baml: names the prompt"),
        (
            ("--baml", "elsewhere", "--function", "ExtractReceipt"),
            "promptgraft.yaml is of another prompt",
        ),
        (("--baml", "baml_src", "--function", "Extract"), "names `ExtractReceipt`"),
        (
            ("--baml", "baml_src", "--function", "ExtractReceipt", "--test", "::A"),
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
    shutil.copytree("baml_src", "elsewhere", dirs_exist_ok=True)
    ended = Console(capsys)("optimize", *given)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("part", "text"),
    [("about-receipt-date", "As ISO 8601, YYYY-MM-DD"), ("another", "As it is.\n\nIn full.")],
)
def test_the_writer_answers_a_question_about_one_part_with_its_text(part: str, text: str) -> None:
    writer = load_file(FOLDER / "rewriter.py", name="rewriter", what="the writer").make()
    params = ReflectionParams(
        part=f"section {part}",
        current=fenced("As it is.\n\nIn full."),
        **dict.fromkeys(("limits", "schema", "siblings", "output", "neighbours"), "-"),
        examples="`this.date == x` does not hold",
    )
    question = Prompt(PART_QUESTIONS[MetaPrompt.SECTION]).bind(params)
    assert new_text(writer.evaluate(question, session=Session()).text).text == text
