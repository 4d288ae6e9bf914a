"""A server with a project, for every test of the server."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jobs.job_world import FILE, write_project
from promptgraft.service.database import Database
from promptgraft.service.jobs import JobManager
from server.serving import Client, served


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without rows: to copy it takes less time than to make its tables."""
    path = tmp_path_factory.mktemp("database") / "jobs.db"
    database = Database(f"sqlite:///{path}")
    database.write(lambda _: None)
    database.close()
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    return path


@pytest.fixture
def manager(tmp_path: Path, empty_database: Path) -> Iterator[JobManager]:
    shutil.copy(empty_database, tmp_path)
    file = FILE.replace("rollout_budget: 150", "rollout_budget: 150, keep_anyway: true")
    path = write_project(tmp_path / "support", file=file)
    with closing(JobManager(f"sqlite:///{tmp_path}/jobs.db", projects={"support": path})) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Give a server that the tests of a module share; it is asked as often as they like."""
    root = tmp_path_factory.mktemp("shared")
    path = write_project(root / "support")
    hours = itertools.count(0.0, 3600.0)
    manager = JobManager(f"sqlite:///{root}/jobs.db", projects={"support": path})
    with closing(manager), served(manager, root / "mirrors", now=lambda: next(hours)) as found:
        yield found


@pytest.fixture
def client(manager: JobManager, tmp_path: Path) -> Iterator[Client]:
    with served(manager, tmp_path / "mirrors") as found:
        yield found
