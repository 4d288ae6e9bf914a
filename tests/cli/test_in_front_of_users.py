"""Integrations around the command: shell completion, a GitHub action, a hook, an image."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.console import Console

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "promptgraft"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str, console: Console) -> None:
    found = console("completion", shell)
    assert found.code == 0
    assert f"_PROMPTGRAFT_COMPLETE={shell}_complete" in found.out


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["re"], {"resume", "replay", "report", "render", "restore"}),
        (["optimize", "--bud"], {"--budget"}),
        (["completion", "z"], {"zsh"}),
    ],
)
def test_commands_options_and_choices_are_completed(words: list[str], completed: set[str]) -> None:
    typed = {"COMP_WORDS": " ".join(["promptgraft", *words]), "COMP_CWORD": str(len(words))}
    asked = {**os.environ, **typed, "_PROMPTGRAFT_COMPLETE": "bash_complete"}
    ended = subprocess.run(COMMAND, env=asked, capture_output=True, text=True, check=True)
    assert {line.removeprefix("plain,") for line in ended.stdout.splitlines()} == completed


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_after_it_has_read_its_script(console: Console) -> None:
    script = console("completion", "bash").out + "complete -p promptgraft"
    ended = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    assert ended.stdout.endswith(" promptgraft\n")


def published(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def test_what_the_action_runs_passes_in_a_new_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    monkeypatch.chdir(tmp_path)
    assert console("init", ".").code == 0
    action = published("action.yml")
    steps = [step for step in action["runs"]["steps"] if "promptgraft " in step.get("run", "")]
    inputs = {name: given["default"] for name, given in action["inputs"].items()}
    ran = []
    for step in steps:
        names = {
            name: re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)
            for name, value in step["env"].items()
        }
        # Each is a plain command, whose variables are inputs.
        text = step["run"]
        for name, match in names.items():
            assert match is not None
            text = text.replace(f'"${name}"', inputs[match[1]]).replace(
                f"${name}", inputs[match[1]]
            )
        program, *arguments = text.split()
        assert (program, console(*arguments).code) == ("promptgraft", 0), text
        ran.append(arguments[0])
    assert ran == ["check", "eval"]


def test_what_the_hook_runs_finds_a_broken_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    monkeypatch.chdir(tmp_path)
    assert console("init", ".").code == 0
    (hook,) = published(".pre-commit-hooks.yaml")
    program, *arguments = hook["entry"].split()
    assert (program, hook["pass_filenames"]) == ("promptgraft", False)
    assert console(*arguments).code == 0
    project = tmp_path / "promptgraft.yaml"
    assert re.search(hook["files"], project.name)
    project.write_text(project.read_text("utf-8").replace("metrics:", "metric:"), "utf-8")
    assert console(*arguments).code == 2


def _has_docker() -> bool:
    try:
        asked = subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def test_the_image_has_the_command_line() -> None:
    if not _has_docker():
        pytest.skip("docker is not running")
    tag = "promptgraft-test"
    subprocess.run(["docker", "build", "--quiet", "--tag", tag, str(ROOT)], check=True)
    ended = subprocess.run(
        ["docker", "run", "--rm", tag, "--version"], capture_output=True, text=True, check=True
    )
    assert ended.stdout.startswith("promptgraft ")
