"""Orders of lists of jobs, on every database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import attrs
import pytest
from sqlalchemy import Connection, insert, update

from jobs.job_world import write_project
from promptgraft.errors import ConfigError
from promptgraft.service.database import Database
from promptgraft.service.jobs import Job, JobFilter, JobManager
from promptgraft.service.jobs.lines import encoded_plain
from promptgraft.service.jobs.rows import COLUMNS, JobRows, Order
from promptgraft.service.jobs.types import Status

STATUSES = (
    Status(verdict="not improved", gain=-0.25),
    Status(verdict="improved", gain=0.5),
    Status(),
    Status(verdict="improved", gain=0.0625, unstored="„a \U0001f9ea “"),
    Status(verdict="gamed?", gain=1.5e-7),
    Status(verdict="worse", gain=-10.0),
)
BY_GAIN = [1, 3, 4, 0, 5]
BY_VERDICT = [5, 0, 3, 1, 4]


@pytest.fixture
def manager(database: Database, tmp_path: Path) -> Iterator[JobManager]:
    project = write_project(tmp_path / "support")
    with closing(JobManager(database, projects={"support": project})) as manager:
        yield manager


@pytest.fixture
def jobs(manager: JobManager, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Jobs with these statuses, and costs and times that fall and rise from job to job."""
    prompts = ("triage", "other") * 3
    # What they would do is of no interest, and so is planned for none of them.
    monkeypatch.setattr("promptgraft.service.jobs.preparing.planned", lambda *_: None)
    jobs = [manager.create("support", prompt) for prompt in prompts]
    table = manager.database.tables.jobs
    for at, (job, status) in enumerate(zip(jobs, STATUSES, strict=True)):
        values = {"status": encoded_plain(attrs.asdict(status)), "spent": 10 - at}
        change = update(table).where(table.c.number == job.number).values(values)
        manager.database.write(partial(Connection.execute, statement=change))
        if at != 2:  # the longer at work, the shorter the pause
            work_at(manager, job, (1.0, 2.0), (900.0 - at, 905.0))
    return jobs


def work_at(manager: JobManager, job: Job, *times: tuple[float, float | None]) -> None:
    """Let a job have had attempts at these times; the last may be under way."""
    table = manager.database.tables.attempts
    same = {"job": job.number, "worker": "w", "answers": 0, "error": b""}
    rows = [
        {**same, "number": number, "started": started, "ended": ended}
        for number, (started, ended) in enumerate(times, 1)
    ]
    manager.database.write(partial(Connection.execute, statement=insert(table).values(rows)))


ORDERS = {
    "gain": [*BY_GAIN, 2],
    "-gain": [*BY_GAIN[::-1], 2],
    "verdict": [*BY_VERDICT, 2],
    "-verdict": [4, 3, 1, 0, 5, 2],
    "cost": [0, 1, 2, 3, 4, 5],
    "time": [5, 4, 3, 1, 0, 2],
    "-time": [0, 1, 3, 4, 5, 2],
    "created": [5, 4, 3, 2, 1, 0],
    "prompt": [4, 2, 0, 5, 3, 1],
}


def test_jobs_are_ordered_alike_in_every_database(manager: JobManager, jobs: list[Job]) -> None:
    ids = [job.id for job in jobs]

    def ordered(sort: str) -> list[int]:
        pages = [manager.list(limit=4, order=Order.of(sort, offset)) for offset in (0, 4)]
        return [ids.index(job.id) for page in pages for job in page]

    assert {sort: ordered(sort) for sort in ORDERS} == ORDERS


def test_the_time_of_a_job_is_that_at_work(manager: JobManager, jobs: list[Job]) -> None:
    paused, waiting, running = (manager.get(jobs[at].id) for at in (5, 2, 2))
    assert (paused.seconds, paused.resumed, paused.seconds_until(2_000.0)) == (11.0, None, 11.0)
    assert (waiting.seconds, waiting.resumed) == (0.0, None)
    work_at(manager, running, (10.0, 12.5), (900.0, None))
    running = manager.get(running.id)
    assert (running.seconds, running.resumed) == (2.5, 900.0)
    assert running.seconds_until(1_000.0) == 102.5
    # One under way has taken longest, since it began long ago.
    assert manager.list(order=Order.of("time"))[0].id == running.id


def test_an_unknown_column_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"sort: expected one of .*found 'gian'.*gain"):
        Order.of("gian")
    assert [Order.of(f"-{name}").is_rising for name in COLUMNS] == [True] * len(COLUMNS)


def test_only_dry_runs_are_claimed_of_a_project_that_lacks_something(
    manager: JobManager, database: Database
) -> None:
    note = {"note": '"dry_run":true'}
    jobs = [manager.create("support", "triage", one) for one in (note, {"dry_run": True}, {})]
    rows, digests = JobRows(database), [("support", jobs[0].digest)]

    def claimed(project: str) -> str | None:
        claim = database.write(lambda link: rows.claim(link, digests, "w", only_dry={project}))
        return None if claim is None else claim.job.id

    assert [claimed("support"), claimed("support"), claimed("other")] == [
        *(jobs[1].id, None),
        jobs[0].id,
    ]


def test_jobs_are_found_by_when_they_ended(manager: JobManager, jobs: list[Job]) -> None:
    table = manager.database.tables.jobs
    for at, job in enumerate(jobs[:3]):
        change = update(table).where(table.c.number == job.number).values(ended=at + 0.5)
        manager.database.write(partial(Connection.execute, statement=change))
    where = JobFilter(ended_by=2, project="support")
    assert [job.id for job in manager.list(where)] == [jobs[1].id, jobs[0].id]
    assert sum(manager.counts(where).values()) == 2
