"""A real command, killed before each of its effects; the same command completes it."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from apply.world import NEW, OLD, World
from killing import error_text, folder_in_memory
from programs import Programs

DRIVER = Path(__file__).with_name("cli_crash_driver.py")


@attrs.frozen
class Kills:
    """Where the runs were made, and what was said of each; the last one was not killed."""

    folder: Path
    step: int
    runs: Sequence[Mapping[str, Any]]

    def of(self, command: str) -> Sequence[Mapping[str, Any]]:
        found = [run for run in self.runs if run["command"] == command]
        assert {run["signal"] for run in found[:-1]} == {signal.SIGKILL}
        assert found[-1]["signal"] == 0
        assert {run["code"] for run in found} == {0}
        return found


@pytest.fixture(scope="module", params=[3, pytest.param(1, marks=pytest.mark.thorough)])
def kills(request: pytest.FixtureRequest, built: Path, programs: Programs) -> Iterator[Kills]:
    """A command of each kind, killed before each n-th effect and given once more."""
    with folder_in_memory() as folder:
        project = World(folder / "project")
        shutil.copytree(built, project.folder)
        project.let_the_winner_say(*project.both())
        said = error_text(programs, DRIVER, project.folder, folder, str(request.param))
        runs = [json.loads(line) for line in said]
        yield Kills(folder, request.param, runs)


def test_killed_anywhere_the_files_hold_old_or_new_texts_and_the_same_command_completes_it(
    kills: Kills,
) -> None:
    runs = kills.of("--to-source")

    assert len(runs) * kills.step > 16
    for run in runs:
        for name, text in run["between"].items():
            assert text in (OLD[name], NEW[name]), run["copy"]
        assert World(Path(run["copy"])).texts == NEW
    assert any(run["between"] not in (OLD, NEW) for run in runs)
    assert list(kills.folder.rglob("*.tmp")) == []


def test_killed_anywhere_the_tag_holds_the_old_or_the_new_and_the_same_command_completes_it(
    kills: Kills,
) -> None:
    runs = kills.of("apply")

    assert len(runs) * kills.step > 8
    for run in runs:
        world = World(Path(run["copy"]))
        assert run["between"] == OLD == world.texts
        assert set(world.held()) == {"section teams", "tool lookup"}
        assert len(world.history()) == 1
