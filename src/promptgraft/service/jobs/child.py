"""``python -m promptgraft.service.jobs.child``: the process of one job."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from promptgraft.errors import CallerError, LeaseLostError
from promptgraft.project import Project, open_project
from promptgraft.service.database import Database, DatabaseError
from promptgraft.service.jobs.logs import told, writing_logs
from promptgraft.service.jobs.paths import relative_paths
from promptgraft.service.jobs.preparing import in_database, submitted_digest
from promptgraft.service.jobs.rows import LEASE_SECONDS, Claim, JobRows
from promptgraft.service.jobs.running import carry_out
from promptgraft.service.jobs.worker import HAS_CHANGED, LACKS_SOMETHING, exit_reason

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
        project = _as_submitted(Path(task["project"]), claim, database)
        project = in_database(project, job.project, database)
        lacking = carry_out(database, claim, project, calls=task["calls"])
    except DatabaseError as error:
        told(_logger, logging.ERROR, "database_lost", str(error), job=job.id)
        sys.exit(1)
    finally:
        database.close()
    if lacking:
        told(_logger, logging.WARNING, "project_left", lacking, job=job.id)
        sys.exit(LACKS_SOMETHING)


def _as_submitted(path: Path, claim: Claim, database: Database) -> Project:
    """Return the project of a job; exit if it is no longer the version that was submitted."""
    job, fault = claim.job, ""
    try:
        project = open_project(path)
        if submitted_digest(project, job.prompt) == job.digest:
            return project
    except CallerError as error:
        fault = relative_paths(str(error), [path.parent])
    why = exit_reason(HAS_CHANGED, fault)
    told(_logger, logging.WARNING, "project_changed", f"{path}: {why}", job=job.id)

    def note(connection: Connection) -> None:
        rows = JobRows(database)
        rows.check(connection, claim)
        rows.put(connection, job.number, reason=why.encode())

    # The worker knows only the exit code. Unless another one has the job.
    with contextlib.suppress(LeaseLostError):
        database.write(note)
    sys.exit(HAS_CHANGED)


if __name__ == "__main__":
    main()
