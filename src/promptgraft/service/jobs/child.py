"""``python -m promptgraft.service.jobs.child``: the process of one job."""

from __future__ import annotations

import gc
import json
import logging
import sys
from pathlib import Path
from typing import Any

from promptgraft.errors import CallerError
from promptgraft.project import Project, open_project
from promptgraft.service.database import Database, DatabaseError
from promptgraft.service.jobs.logs import told, writing_logs
from promptgraft.service.jobs.preparing import in_database, submitted_digest
from promptgraft.service.jobs.rows import LEASE_SECONDS, Claim, JobRows
from promptgraft.service.jobs.running import carry_out
from promptgraft.service.jobs.types import Job
from promptgraft.service.jobs.worker import HAS_CHANGED, LACKS_SOMETHING

_logger = logging.getLogger("promptgraft.service.jobs")


def main() -> None:
    """Run the job that standard input describes."""
    # All that was imported stays, so looking for garbage in it, above all at the end, is futile.
    gc.freeze()
    task = json.loads(sys.stdin.buffer.read())
    with writing_logs(task["log"]):
        _carry_out(task)


def _carry_out(task: dict[str, Any]) -> None:
    # After a lease without the database the job belongs to another worker anyway.
    database = Database(task["url"], prefix=task["prefix"], patience_seconds=LEASE_SECONDS)
    rows = JobRows(database)
    with database.reading() as connection:
        job = rows.load(connection, task["job"])
    claim = Claim(job=job, fence=task["fence"])
    try:
        project = in_database(_as_submitted(Path(task["project"]), job), job.project, database)
        lacking = carry_out(database, claim, project, calls=task["calls"])
    except DatabaseError as error:
        told(_logger, logging.ERROR, "database_lost", str(error), job=job.id)
        sys.exit(1)
    finally:
        database.close()
    if lacking:
        told(_logger, logging.WARNING, "project_left", lacking, job=job.id)
        sys.exit(LACKS_SOMETHING)


def _as_submitted(path: Path, job: Job) -> Project:
    """Return the project of a job; exit if it is no longer the version that was submitted."""
    try:
        project = open_project(path)
        if submitted_digest(project, job.prompt) == job.digest:
            return project
        why = "it has changed since its worker began"
    except CallerError as error:
        why = str(error)
    told(_logger, logging.WARNING, "project_changed", f"project {path}: {why}", job=job.id)
    sys.exit(HAS_CHANGED)


if __name__ == "__main__":
    main()
