"""Fixtures for the tests of the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli.console import FIRST, SECOND, SOURCE, Console, write
from promptgraft.overrides import Revision


@pytest.fixture
def console(capsys: pytest.CaptureFixture[str]) -> Console:
    """Runs commands in this process."""
    return Console(capsys)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project that is the current folder, with the source of a prompt."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "prompts.py").write_text(SOURCE, "utf-8")
    monkeypatch.chdir(folder)
    # `--template prompts:TEMPLATE` imports it into this process.
    monkeypatch.delitem(sys.modules, "prompts", raising=False)
    return folder


@pytest.fixture
def revisions(project: Path) -> tuple[Revision, Revision]:
    """Two revisions of one tag in the project's store."""
    first = write(project, FIRST)
    return first, write(project, SECOND, note="GEPA, 120 rollouts, seed 0")
