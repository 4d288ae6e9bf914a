"""Workers wait for a database that is away for a while, and end where waiting is in vain."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import OperationalError

from jobs.job_world import write_project
from programs import Programs
from promptgraft.cli.main import run
from promptgraft.errors import Lasting
from promptgraft.service.database import Database, DatabaseError
from promptgraft.service.database.faults import lasting_of
from promptgraft.service.jobs import JobManager, JobState, Worker


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("project"))


def ruin_notes(path: Path) -> None:
    path.write_text("these are notes, not a database" * 100)


def ruin_folder(path: Path) -> None:
    path.mkdir()


def ruin_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE promptgraft_schema (version INTEGER, hooks TEXT)")
        connection.execute("INSERT INTO promptgraft_schema VALUES (1, '')")


@pytest.mark.parametrize("ruin", [ruin_notes, ruin_folder, ruin_tables])
def test_a_worker_on_a_broken_database_ends_with_code_2_and_says_why(
    tmp_path: Path, project: Path, ruin: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "jobs.db"
    ruin(path)
    assert run(["worker", "--project", f"support={project}", "--jobs", f"sqlite:///{path}"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"promptgraft: database sqlite:///{path}: ")


def test_a_full_database_is_named_as_that_and_lasts(tmp_path: Path, project: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/jobs.db")
    manager = JobManager(Database(engine), projects={"support": project})
    manager.create("support", "triage")

    @event.listens_for(engine, "begin")
    def fill(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count=1")  # at most its present size

    def submit_many() -> None:
        for _ in range(200):
            manager.create("support", "triage", {"note": "n" * 1000})

    with pytest.raises(DatabaseError, match=r"full; make room on its disk") as refused:
        submit_many()
    assert refused.value.lasting is Lasting.PERMANENT
    manager.close()


class Failing(Database):
    """Fails some writes with an error of the driver."""

    def __init__(self, url: str, faults: list[sqlite3.Error]) -> None:
        super().__init__(url)
        self.faults = faults

    def write(self, work, *, durable=True):  # type: ignore[no-untyped-def]  # as its base
        if self.faults:
            with self._translated():
                raise OperationalError("", {}, self.faults.pop())
        return super().write(work, durable=durable)


def fault(code: int, words: str) -> sqlite3.Error:
    made = sqlite3.OperationalError(words)
    made.sqlite_errorcode = code
    return made


def test_a_database_that_comes_back_is_waited_for_and_both_are_logged(
    tmp_path: Path, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    locked = fault(sqlite3.SQLITE_LOCKED, "the table is locked")
    manager = JobManager(
        Failing(f"sqlite:///{tmp_path}/jobs.db", [locked] * 1000), projects={"support": project}
    )
    with caplog.at_level(logging.INFO, "promptgraft.service.jobs"):
        Worker(manager, seconds=0).run(until_idle=True)
    lost, back = (record.getMessage() for record in caplog.records)
    assert "the table is locked" in lost
    assert back == "the database is back after 1,000 failed looks"


def test_a_job_whose_claim_broke_at_its_commit_is_taken_at_once(
    tmp_path: Path, project: Path
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/jobs.db")
    manager = JobManager(Database(engine), projects={"support": project})
    job = manager.create("support", "triage", {"store": False, "budget": 60})
    claims: list[str] = []

    def see(*arguments: object) -> None:
        if "INSERT INTO promptgraft_attempts" in str(arguments[2]):
            claims.append(str(arguments[2]))

    def break_off(connection: Connection) -> None:
        if len(claims) == 1:
            claims.append("broken")
            connection.connection.commit()  # done, but its answer gets lost
            raise OperationalError("", {}, sqlite3.OperationalError("disk I/O error"))

    event.listen(engine, "before_cursor_execute", see)
    event.listen(engine, "commit", break_off)
    worker, other = Worker(manager, name="first"), Worker(manager, name="second")
    other_job = manager.create("support", "triage", {"store": False, "priority": -1})
    with pytest.raises(DatabaseError):
        worker.claim()
    assert manager.get(job.id).state is JobState.RUNNING
    other_claim = other.claim()
    assert other_claim is not None
    assert other_claim.job.id == other_job.id
    claim = worker.claim()
    assert claim is not None
    assert claim.job.id == job.id
    # Jobs of others, and those that it has claimed in order, stay where they are.
    assert worker.claim() is None
    assert manager.get(other_job.id).attempts == 1
    worker.run_here(claim)
    assert manager.get(job.id).state is JobState.COMPLETED
    manager.close()


def test_a_worker_whose_database_is_full_ends_at_once(tmp_path: Path, project: Path) -> None:
    full = fault(sqlite3.SQLITE_FULL, "database or disk is full")
    database = Failing(f"sqlite:///{tmp_path}/jobs.db", [full] * 1000)
    with pytest.raises(DatabaseError, match="database or disk is full; make room on its disk"):
        Worker(JobManager(database, projects={"support": project}), seconds=0).run()
    assert len(database.faults) == 999


def test_a_fault_of_unknown_length_is_not_borne_for_ever(tmp_path: Path, project: Path) -> None:
    broken = fault(sqlite3.SQLITE_IOERR, "disk I/O error")
    database = Failing(f"sqlite:///{tmp_path}/jobs.db", [broken] * 1000)
    manager = JobManager(database, projects={"support": project})
    with pytest.raises(DatabaseError, match="disk I/O error"):
        Worker(manager, seconds=0).run()
    assert 700 < len(database.faults) < 800


def test_jobs_that_are_taken_end_or_get_lost_are_logged(
    tmp_path: Path, project: Path, programs: Programs
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    manager = JobManager(url, projects={"support": project})
    good = manager.create("support", "triage", {"dry_run": True, "budget": 60})
    bad = manager.create("support", "other", {"dry_run": True, "budget": 60})
    jobs = manager.database.tables.jobs
    # What no version of promptgraft writes, so that this job fails.
    request = json.dumps({"tuning": {"trace_formatter": "os:environ"}}).encode()
    manager.database.write(
        lambda at: at.execute(
            sqlalchemy.update(jobs).where(jobs.c.id == bad.id).values(request=request)
        )
    )
    command = ("worker", "--project", f"support={project}", "--jobs", url, "--until-idle")
    ended = programs.promptgraft(*command, "--log", "json")
    assert ended.returncode == 0
    lines = [json.loads(line) for line in ended.stderr.splitlines()[1:]]
    events = [(line["event"], line["job"], line["level"]) for line in lines]
    assert events == [
        ("job_taken", good.id, "info"),
        ("job_completed", good.id, "info"),
        ("job_taken", bad.id, "info"),
        ("job_failed", bad.id, "error"),
    ]
    assert manager.get(bad.id).state is JobState.FAILED


class _PgError(Exception):
    def __init__(self, words: str, sqlstate: str | None = None) -> None:
        super().__init__(words)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("error", "lasting"),
    [
        (_PgError("disk full", "53100"), Lasting.PERMANENT),
        (_PgError("too many connections", "53300"), Lasting.TRANSIENT),
        (_PgError("the database system is starting up", "57P03"), Lasting.TRANSIENT),
        (_PgError("no such table", "42P01"), Lasting.PERMANENT),
        (_PgError("deadlock", "40P01"), Lasting.TRANSIENT),
        (_PgError('password authentication failed for user "x"'), Lasting.PERMANENT),
        (_PgError('database "x" does not exist'), Lasting.PERMANENT),
        (_PgError("connection to server failed: Connection refused"), Lasting.TRANSIENT),
        (_PgError("something else"), Lasting.UNKNOWN),
        (Exception(1045, "Access denied"), Lasting.PERMANENT),
        (Exception(1049, "Unknown database"), Lasting.PERMANENT),
        (Exception(1114, "The table is full"), Lasting.PERMANENT),
        (Exception(2003, "Can't connect"), Lasting.TRANSIENT),
        (Exception(2013, "Lost connection"), Lasting.TRANSIENT),
        (fault(sqlite3.SQLITE_BUSY | 2 << 8, "busy"), Lasting.TRANSIENT),
        (fault(sqlite3.SQLITE_READONLY | 4 << 8, "moved"), Lasting.PERMANENT),
        (fault(sqlite3.SQLITE_IOERR | 3 << 8, "write"), Lasting.UNKNOWN),
    ],
)
def test_how_long_a_fault_lasts_is_read_from_the_codes_of_drivers(
    error: Exception, lasting: Lasting
) -> None:
    assert lasting_of(OperationalError("", {}, error)) is lasting
