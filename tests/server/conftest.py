"""A server with a project, for every test of the server."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from jobs.job_world import FILE, work_off, write_project
from promptgraft.service.database import Database
from promptgraft.service.jobs import Job, JobManager
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


@contextmanager
def managing(root: Path) -> Iterator[JobManager]:
    file = FILE.replace("rollout_budget: 150", "rollout_budget: 150, keep_anyway: true")
    path = write_project(root / "support", file=file)
    with closing(JobManager(f"sqlite:///{root}/jobs.db", projects={"support": path})) as made:
        yield made


@pytest.fixture(scope="session")
def database_with_a_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a job that has ended: a copy takes less time than a run."""
    root = tmp_path_factory.mktemp("ended")
    with managing(root) as manager:
        manager.create("support", "triage", {"budget": 120})
        assert work_off(manager) == 1
    return root / "jobs.db"


@pytest.fixture
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JobManager]:
    has_job = "done" in request.fixturenames
    prepared = "database_with_a_job" if has_job else "empty_database"
    shutil.copy(request.getfixturevalue(prepared), tmp_path)
    with managing(tmp_path) as made:
        yield made


@pytest.fixture
def done(manager: JobManager) -> Job:
    """The job of :func:`database_with_a_job`, which the manager has from the beginning."""
    (job,) = manager.list()
    return job


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
