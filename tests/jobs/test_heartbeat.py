"""The lease of a job whose process cannot reach the database for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.job_world import expire, work_off, write_project
from promptgraft.ground.clock import FakeClock
from promptgraft.service.database import Database
from promptgraft.service.jobs import JobManager, JobState, Worker
from promptgraft.service.jobs.reporting import SECONDS_BETWEEN_RENEWALS, Heartbeat
from promptgraft.service.jobs.rows import LEASE_SECONDS


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[JobManager]:
    (folder := tmp_path / "kept").mkdir()
    # A write waits far longer for it than a test does.
    database = Database(f"sqlite:///{folder / 'graft.db'}", patience_seconds=3_600)
    with contextlib.closing(database):
        yield JobManager(database, projects={"support": write_project(tmp_path / "project")})


@contextlib.contextmanager
def away(manager: JobManager, tmp_path: Path) -> Iterator[None]:
    """Take the database away, with all connections to it."""
    manager.database.close()
    (tmp_path / "kept").rename(tmp_path / "elsewhere")
    try:
        yield
    finally:
        (tmp_path / "elsewhere").rename(tmp_path / "kept")


def test_a_lease_is_kept_when_the_database_comes_back_within_it(
    manager: JobManager, tmp_path: Path
) -> None:
    manager.create("support", "triage", {"store": False, "budget": 60})
    claim = Worker(manager, name="first").claim()
    assert claim is not None
    heartbeat = Heartbeat(manager.database, claim, clock=(clock := FakeClock()))

    with away(manager, tmp_path):
        clock.advance(LEASE_SECONDS - 1)
        heartbeat.beat()
    assert not heartbeat.lost
    expire(manager)
    heartbeat.beat()
    assert Worker(manager, name="second").claim() is None

    with away(manager, tmp_path):
        clock.advance(LEASE_SECONDS - 1)  # since it was renewed
        heartbeat.beat()
    assert not heartbeat.lost
    assert not heartbeat.cancellation.is_set


def test_a_run_is_ended_once_the_database_was_away_for_a_lease_and_another_worker_has_the_job(
    manager: JobManager, tmp_path: Path
) -> None:
    job = manager.create("support", "triage", {"store": False, "budget": 60})
    claim = Worker(manager, name="first").claim()
    assert claim is not None
    heartbeat = Heartbeat(manager.database, claim, clock=(clock := FakeClock()))
    clock.advance(SECONDS_BETWEEN_RENEWALS)
    heartbeat.beat()

    with away(manager, tmp_path):
        clock.advance(LEASE_SECONDS)
        heartbeat.beat()
    assert heartbeat.cancellation.is_set
    assert heartbeat.lost.startswith("the lease has expired, and database sqlite:///")

    expire(manager)
    assert work_off(manager) == 1
    assert manager.get(job.id).state is JobState.COMPLETED
    assert [one.worker for one in manager.attempts(job.id)] == ["first", "here"]
