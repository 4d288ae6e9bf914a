"""The lease of a job whose process cannot reach the database for a while."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import OperationalError

from jobs.job_world import expire, work_off, write_project
from promptgraft.service.database import Database
from promptgraft.service.jobs import JobManager, JobState, Worker
from promptgraft.service.jobs.reporting import SECONDS_BETWEEN_RENEWALS, Heartbeat
from promptgraft.service.jobs.rows import LEASE_SECONDS
from promptgraft.testing import FakeClock


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


def test_a_job_of_which_an_event_could_not_be_written_is_carried_out_at_once(
    tmp_path: Path,
) -> None:
    """As after a commit of which nobody knows whether it succeeded: its lease is not over."""
    engine = create_engine(f"sqlite:///{tmp_path}/graft.db")
    project = write_project(tmp_path / "project")
    faults = [OperationalError("", {}, sqlite3.OperationalError("disk I/O error"))]

    def fail(connection: Connection, _: object, statement: str, *__: object) -> None:
        if faults and "promptgraft_events" in statement and "INSERT" in statement:
            raise faults.pop()

    with contextlib.closing(Database(engine)) as database:
        manager = JobManager(database, projects={"support": project})
        job = manager.create("support", "triage", {"store": False, "budget": 60})
        claim = Worker(manager, name="first").claim()
        assert claim is not None
        event.listen(engine, "before_cursor_execute", fail)
        Worker(manager, name="first").run_here(claim)
        assert not faults
        assert work_off(manager) == 1
        assert manager.get(job.id).state is JobState.COMPLETED
        first, second = manager.attempts(job.id)
        assert "disk I/O error" in first.error
        assert second.error == ""
