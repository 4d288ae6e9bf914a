"""Fixtures for the tests of run directories."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from promptgraft.runs import RunFolder
from runs.toy_runs import kept_run, make_job, sulky


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that nobody changes, each of whose steps has a rejected proposal."""
    return kept_run(tmp_path_factory.mktemp("whole"), make_job(reflection=sulky))


@pytest.fixture
def folder(whole: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of it."""
    return RunFolder(shutil.copytree(whole.path, tmp_path / whole.id))
