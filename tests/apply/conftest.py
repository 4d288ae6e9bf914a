"""What the tests of ``apply`` start from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from apply.world import World, build
from cli.console import Console


@pytest.fixture
def console(capsys: pytest.CaptureFixture[str]) -> Console:
    """Runs commands in this process."""
    return Console(capsys)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project and a run of it; not to be changed."""
    return build(tmp_path_factory.mktemp("built") / "project")


@pytest.fixture
def world(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A copy of it, which is the current folder."""
    folder = tmp_path / "project"
    shutil.copytree(built, folder)
    monkeypatch.chdir(folder)
    return World(folder)
