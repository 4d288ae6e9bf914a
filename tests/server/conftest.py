"""A server with a project, for every test of the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jobs.job_world import FILE, write_project
from promptgraft.jobs import JobManager
from server.serving import Client, served


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[JobManager]:
    file = FILE.replace("rollout_budget: 150", "rollout_budget: 150, keep_anyway: true")
    path = write_project(tmp_path / "support", file=file)
    with closing(JobManager(f"sqlite:///{tmp_path}/jobs.db", projects={"support": path})) as made:
        yield made


@pytest.fixture
def client(manager: JobManager, tmp_path: Path) -> Iterator[Client]:
    with served(manager, tmp_path / "mirrors") as found:
        yield found
