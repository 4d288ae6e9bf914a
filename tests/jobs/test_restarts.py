"""A database that is restarted under its workers loses nothing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy

from database.database_servers import Server, missing, running
from jobs.job_world import RESTARTS, kept_lines, outcome, work_off, write_project
from programs import Programs
from promptgraft.service.database import Database, DatabaseError
from promptgraft.service.jobs import JobManager, JobState

WORKERS = 4 if RESTARTS > 1 else 1


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if why := missing("postgresql"):
        (pytest.fail if os.environ.get("PROMPTGRAFT_DATABASES") else pytest.skip)(why)
    with running("postgresql") as found:
        yield found


def ended(server: Server) -> None:
    """End the server as a crash would, whoever is connected."""
    server.process.end(signal.SIGQUIT)


def test_a_write_waits_for_a_database_that_is_away(server: Server) -> None:
    url = server.fresh()
    patient, hasty = Database(url, patience_seconds=60), Database(url)
    tokens = patient.tables.signing_in.tokens
    count = sqlalchemy.select(sqlalchemy.func.count()).select_from(tokens)

    def write(connection: sqlalchemy.Connection) -> None:
        row = {"digest": "d", "name": "n", "scopes": "", "projects": b"", "created": 1.0}
        connection.execute(sqlalchemy.insert(tokens).values(row))

    for database in (patient, hasty):
        with database.reading() as connection:
            assert connection.scalar(count) == 0
    ended(server)
    with pytest.raises(DatabaseError):
        hasty.write(write)
    thread = threading.Thread(target=patient.write, args=(write,))
    thread.start()
    server.process.start()
    thread.join(60)
    with hasty.reading() as connection:
        assert connection.scalar(count) == 1
    patient.close()
    hasty.close()


@pytest.mark.thorough
def test_every_job_ends_although_the_database_is_restarted(
    server: Server, tmp_path: Path, programs: Programs
) -> None:
    path = write_project(tmp_path / "support")
    url = server.fresh()
    with JobManager("sqlite://", projects={"support": path}) as straight:
        wanted = straight.create("support", "triage", {"store": False})
        work_off(straight)
        result = outcome(straight, wanted)
        lines = len(kept_lines(straight.database, wanted))
    with JobManager(url, projects={"support": path}) as manager, ExitStack() as started:
        jobs = [
            manager.create("support", "triage", {"store": False}) for _ in range(WORKERS * RESTARTS)
        ]
        command = ("-m", "promptgraft", "worker", "--until-idle", "--project", f"support={path}")
        environment = {"PROMPTGRAFT_JOBS": url}
        workers = [
            started.enter_context(programs.started(*command, environment=environment))
            for _ in range(WORKERS)
        ]
        for _ in range(RESTARTS):
            _wait_for_answers(manager)
            ended(server)
            server.process.start()
        assert [worker.wait() for worker in workers] == [0] * WORKERS
        # A worker that found nothing to do may have left before another lost its job.
        work_off(manager, most=len(jobs))
        for job in jobs:
            assert manager.get(job.id).state is JobState.COMPLETED
            assert outcome(manager, job) == result
            assert len(kept_lines(manager.database, job)) == lines
            numbers = [number for number, _, _ in manager.events(job.id)]
            assert numbers == sorted(set(numbers))


def _wait_for_answers(manager: JobManager) -> None:
    """Wait until there are 30 more answers than now, or nothing is left to do."""
    answers = manager.database.tables.answers
    query = sqlalchemy.select(sqlalchemy.func.count()).select_from(answers)
    goal = None
    for _ in range(2_400):
        with manager.database.reading() as connection:
            found = connection.scalar(query) or 0
        goal = found + 30 if goal is None else goal
        counts = manager.counts()
        if found >= goal or not counts["queued"] + counts["running"]:
            return
        threading.Event().wait(0.05)
    raise AssertionError("nobody works")
