"""Old jobs are removed by age and state, and their room is given back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy

from jobs.job_world import write_project
from promptgraft.cli.main import run
from promptgraft.service.database import Database
from promptgraft.service.jobs import Job, JobManager, JobState
from promptgraft.service.jobs.lines import JobLine, LineKind
from promptgraft.service.jobs.rows import JobRows

DAY = 86_400.0


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobManager]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    monkeypatch.setenv("PROMPTGRAFT_JOBS", url)
    path = write_project(tmp_path / "support")
    with closing(JobManager(url, projects={"support": path})) as found:
        yield found


def ended(manager: JobManager, state: JobState, *, days: float) -> Job:
    """Make a job that ended so many days ago."""
    job = manager.create("support", "triage")
    jobs = manager.database.tables.jobs
    change = sqlalchemy.update(jobs).where(jobs.c.number == job.number)
    values = {"state": state, "ended": manager.database.seconds - days * DAY}
    manager.database.write(lambda connection: connection.execute(change.values(values)))
    return job


def left(manager: JobManager) -> set[str]:
    return {job.id for job in manager.list(limit=100)}


def test_jobs_are_removed_by_age_and_state(
    manager: JobManager, capsys: pytest.CaptureFixture[str]
) -> None:
    old, older, failed = (
        ended(manager, JobState.COMPLETED, days=31),
        ended(manager, JobState.CANCELLED, days=400),
        ended(manager, JobState.FAILED, days=31),
    )
    young = ended(manager, JobState.COMPLETED, days=29)
    waiting = manager.create("support", "triage")
    everything = left(manager)
    assert run(["jobs", "prune", "--older-than", "30", "--dry-run"]) == 0
    listed = capsys.readouterr().out
    assert {job.id in listed for job in (old, older, failed)} == {True}
    assert left(manager) == everything
    assert run(["jobs", "prune", "--older-than", "30", "--state", "failed"]) == 0
    assert left(manager) == everything - {failed.id}
    assert run(["jobs", "prune", "--older-than", "30"]) == 0
    assert left(manager) == {young.id, waiting.id}


def test_more_jobs_than_a_page_are_removed(manager: JobManager) -> None:
    template = ended(manager, JobState.COMPLETED, days=9)
    jobs = manager.database.tables.jobs

    def fill(connection: sqlalchemy.Connection) -> None:
        row = connection.execute(sqlalchemy.select(jobs)).one()._asdict()
        rows = [{**row, "number": n, "id": f"{n:032x}"} for n in range(2, 251)]
        connection.execute(sqlalchemy.insert(jobs), rows)

    manager.database.write(fill)
    assert manager.get(template.id).has_ended
    assert run(["jobs", "prune", "--older-than", "8", "--state", "completed"]) == 0
    assert left(manager) == set()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "prune: name jobs, or give --older-than; not both"),
        (["3f2a", "--older-than", "3"], "prune: name jobs, or give --older-than; not both"),
        (["3f2a", "--state", "failed"], "--state: goes with --older-than"),
        (["--older-than", "3", "--state", "running"], "running"),
    ],
)
def test_what_is_to_be_removed_is_said_in_one_way(
    manager: JobManager, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["jobs", "prune", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_vacuum_gives_the_room_of_removed_jobs_back(
    manager: JobManager, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ended(manager, JobState.COMPLETED, days=1)
    rows, line = JobRows(manager.database), JobLine(LineKind.JOB, b"x" * 100_000)
    manager.database.write(lambda at: rows.append(at, job.number, [line] * 20))
    manager.delete(job.id)
    manager.close()
    before = sum(path.stat().st_size for path in tmp_path.glob("jobs.db*"))
    assert run(["jobs", "vacuum"]) == 0
    assert "vacuumed database sqlite:///" in capsys.readouterr().out
    after = sum(path.stat().st_size for path in tmp_path.glob("jobs.db*"))
    assert after < before - 1_500_000


def test_every_kind_of_database_is_vacuumed_and_used_afterwards(
    database: Database, tmp_path: Path
) -> None:
    manager = JobManager(database, projects={"support": write_project(tmp_path / "support")})
    manager.delete(ended(manager, JobState.FAILED, days=1).id)
    ended(manager, JobState.FAILED, days=1)
    database.vacuum()
    waiting = manager.create("support", "triage")
    assert manager.get(waiting.id) == waiting
    (totals,) = manager.totals(projects=["support", "other"])
    assert (totals.failed, totals.calls, totals.dollars) == (1, 0, 0.0)
    assert 0 <= totals.waiting < 600
