"""What a step, an attempt and a mirror cost does not grow with the run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy

from jobs.job_world import work_off, write_project
from promptgraft.service.database import Database
from promptgraft.service.jobs import Job, JobManager, Worker
from promptgraft.service.jobs.lines import LineKind
from promptgraft.service.jobs.reporting import run_events
from promptgraft.service.jobs.rows import Claim, JobRows

SHORT, LONG = 1_000, 8_000
MOST = 1.2


class Counting:
    """A database of SQLite that counts the instructions of its statements, by tens."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        engine = sqlalchemy.create_engine(f"sqlite:///{path}")
        sqlalchemy.event.listen(engine, "connect", self._listen)
        self.database = Database(engine)

    def _listen(self, connection: sqlite3.Connection, _: object) -> None:
        connection.set_progress_handler(self._add, 10)

    def _add(self) -> int:
        self.count += 1
        return 0

    def cost(self, work: Callable[[], object]) -> int:
        before = self.count
        work()
        return self.count - before


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Counting]:
    made = Counting(tmp_path / "jobs.db")
    yield made
    made.database.close()


@pytest.fixture
def manager(counting: Counting, tmp_path: Path) -> JobManager:
    return JobManager(counting.database, projects={"support": write_project(tmp_path / "own")})


def claimed(manager: JobManager) -> Claim:
    claim = Worker(manager, name="w").claim()
    assert claim is not None
    return claim


def add_answers(manager: JobManager, number: int, count: int) -> None:
    answers = manager.database.tables.answers
    with manager.database.reading() as connection:
        first = JobRows(manager.database).answers(connection, number)
    rows = [
        {"job": number, "position": first + at, "key_digest": f"{at}", "line": b"{}"}
        for at in range(count)
    ]
    manager.database.write(lambda connection: connection.execute(sqlalchemy.insert(answers), rows))


def begun(manager: JobManager, lines: int) -> Claim:
    """Return a job that has so many answers and events, claimed."""
    claim = (manager.create("support", "triage", {"store": False}), claimed(manager))[1]
    tables, number = manager.database.tables, claim.job.number
    add_answers(manager, number, lines)

    def fill(connection: sqlalchemy.Connection) -> None:
        events = [
            {"job": number, "number": at + 3, "kind": "numbered", "line": b'{"event":"x","n":1}'}
            for at in range(lines)
        ]
        connection.execute(sqlalchemy.insert(tables.events), events)
        JobRows(manager.database).put(connection, number, events=lines + 2)

    manager.database.write(fill)
    return claim


def lose(manager: JobManager, job: Job) -> None:
    rows = JobRows(manager.database)
    manager.database.write(
        lambda connection: rows.put_back(connection, rows.load(connection, job.number), "lost")
    )


def attempt(manager: JobManager, claim: Claim) -> None:
    lose(manager, claim.job)
    claimed(manager)


def replay(manager: JobManager, claim: Claim) -> None:
    next(run_events(manager.database, claim.job.number, [LineKind.NUMBERED]))


def tell(manager: JobManager, claim: Claim) -> None:
    rows = JobRows(manager.database)
    manager.database.write(lambda connection: rows.publish(connection, claim.job.number, "x"))
    manager.database.write(lambda connection: rows.renew(connection, claim))


@pytest.mark.parametrize("what", [attempt, replay, tell])
def test_it_costs_the_same_in_a_long_run(
    counting: Counting, manager: JobManager, what: Callable[[JobManager, Claim], object]
) -> None:
    found = []
    for lines in (SHORT, LONG):
        claim = begun(manager, lines)
        found.append(counting.cost(lambda: what(manager, claim)))  # noqa: B023
        manager.cancel(claim.job.id)
        lose(manager, manager.get(claim.job.id))
    short, long = found
    assert 0 < long < MOST * short


def test_a_mirror_that_is_up_to_date_is_not_copied_again(
    counting: Counting, manager: JobManager, tmp_path: Path
) -> None:
    job = manager.create("support", "triage", {"store": False, "budget": 60})
    work_off(manager)
    add_answers(manager, job.number, LONG)
    copied = counting.cost(lambda: manager.mirror(job.id, tmp_path))
    again = counting.cost(lambda: manager.mirror(job.id, tmp_path))
    assert 3 * again < copied


def test_a_mirror_grows_to_what_one_that_is_made_at_once_would_be(
    manager: JobManager, tmp_path: Path
) -> None:
    job = manager.create("support", "triage", {"store": False, "budget": 90})
    for budget in (110, 140):
        claim = claimed(manager)
        manager.pause(job.id)
        Worker(manager).run_here(claim)
        manager.mirror(job.id, tmp_path / "grown")
        manager.change(job.id, {"budget": budget})
        manager.resume(job.id)
    work_off(manager)
    kinds = [line.split(b'"', 4)[3] for _, _, line in manager.events(job.id)]
    assert b"rewound" in kinds
    grown, made = (manager.mirror(job.id, tmp_path / name) for name in ("grown", "made"))
    paths = {path.relative_to(made) for path in made.rglob("*") if path.is_file()}
    assert paths == {path.relative_to(grown) for path in grown.rglob("*") if path.is_file()}
    for path in paths:
        assert (grown / path).read_bytes() == (made / path).read_bytes(), path
    # A file that somebody has cut is not appended to.
    (grown / "events.jsonl").write_bytes(b"")
    manager.mirror(job.id, tmp_path / "grown")
    assert (grown / "events.jsonl").read_bytes() == (made / "events.jsonl").read_bytes()
