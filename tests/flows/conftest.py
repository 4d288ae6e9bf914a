"""A project with a graph that has been improved and applied, made once."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from cli.console import Console
from promptgraft.cli.main import run


@pytest.fixture(scope="session")
def improved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of ``init --graph`` after a short run, whose winner is applied."""
    folder = tmp_path_factory.mktemp("graph") / "reports"
    assert run(["init", "--graph", str(folder)]) == 0
    file = folder / "promptgraft.yaml"
    text = file.read_text("utf-8")
    file.write_text(text.replace("rollout_budget: 1500", "rollout_budget: 400"), "utf-8")
    with contextlib.chdir(folder):
        assert run(["optimize", "--seed", "1"]) == 0
        assert run(["apply"]) == 0
    return folder


@pytest.fixture
def console(capsys: pytest.CaptureFixture[str]) -> Console:
    """Runs commands in this process."""
    return Console(capsys)
