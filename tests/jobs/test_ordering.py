"""Orders of lists of jobs, on every database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import attrs
import pytest
from sqlalchemy import Connection, update

from jobs.job_world import write_project
from promptgraft.errors import ConfigError
from promptgraft.service.database import Database
from promptgraft.service.jobs import Job, JobManager
from promptgraft.service.jobs.lines import encoded_plain
from promptgraft.service.jobs.ordering import COLUMNS, Order
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
def jobs(manager: JobManager) -> list[Job]:
    """Jobs with these statuses, and costs and times that fall and rise from job to job."""
    prompts = ("triage", "other") * 3
    jobs = [manager.create("support", prompt) for prompt in prompts]
    table = manager.database.tables.jobs
    for at, (job, status) in enumerate(zip(jobs, STATUSES, strict=True)):
        values = {"status": encoded_plain(attrs.asdict(status)), "spent": 10 - at}
        values |= {"started": 1.0, "ended": None if at == 2 else 5.0 + at}
        change = update(table).where(table.c.number == job.number).values(values)
        manager.database.write(partial(Connection.execute, statement=change))
    return jobs


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


def test_an_unknown_column_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"sort: expected one of .*found 'gian'.*gain"):
        Order.of("gian")
    assert [Order.of(f"-{name}").is_rising for name in COLUMNS] == [True] * len(COLUMNS)
