"""Looking at jobs: one, many, their events, answers and results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from promptgraft.database import Database
from promptgraft.errors import ConfigError
from promptgraft.jobs.interface import LARGEST_PAGE, MOST_EVENTS, Jobs
from promptgraft.jobs.mirror import mirror
from promptgraft.jobs.rows import JobRows
from promptgraft.jobs.types import ALL_JOBS, Attempt, Job, JobFilter
from promptgraft.project import Project
from promptgraft.runs.event_file import decoded
from promptgraft.search.notices import Event
from promptgraft.serde import Json, parse_json


class JobReader(Jobs):
    """Jobs in a database, for reading.

    Attributes:
        database: where.
        projects: projects by the names that jobs have for them.
    """

    def __init__(self, database: Database, projects: Mapping[str, Project]) -> None:
        self.database = database
        self.projects = projects
        self._rows = JobRows(database)

    def get(self, job: str) -> Job:
        with self.database.reading() as connection:
            return self._rows.find(connection, job)

    def list(
        self,
        where: JobFilter = ALL_JOBS,
        *,
        before: int | None = None,
        limit: int = 20,
        projects: Collection[str] | None = None,
    ) -> Sequence[Job]:
        """Return jobs, the newest first; see :meth:`Jobs.list`.

        ``projects``: only those of one of these; None for all.
        """
        if not 1 <= limit <= LARGEST_PAGE:
            raise ConfigError(f"limit: expected an integer from 1 to {LARGEST_PAGE}, found {limit}")
        with self.database.reading() as connection:
            return self._rows.page(connection, where, before=before, limit=limit, projects=projects)

    def counts(self) -> dict[str, int]:
        """Return how many jobs are in each state."""
        with self.database.reading() as connection:
            return self._rows.counts(connection)

    def attempts(self, job: str) -> Sequence[Attempt]:
        with self.database.reading() as connection:
            return self._rows.attempts(connection, self._rows.find(connection, job).number)

    def events(
        self, job: str, *, after: int = 0, limit: int = MOST_EVENTS
    ) -> Sequence[tuple[int, Event, bytes]]:
        with self.database.reading() as connection:
            found = self._rows.find(connection, job)
            rows = self._rows.events(connection, found.number, after=after, limit=limit)
        where = f"job {found.id}, event"
        return [(number, decoded(line, f"{where} {number}"), line) for number, line in rows]

    def look(self, job: Job) -> tuple[int, bool]:
        """Return the number of a job's latest event, and whether it has ended; in one statement.

        Raises:
            JobNotFoundError: it was removed.
        """
        with self.database.reading() as connection:
            return self._rows.look(connection, job.number)

    def lines(self, job: str, *, after: int = 0, limit: int = 100) -> Sequence[tuple[int, bytes]]:
        """Return lines of a job's journal behind a position, with their positions."""
        with self.database.reading() as connection:
            found = self._rows.find(connection, job)
            lines = self._rows.lines(connection, found.number, after + 1, limit=limit)
        return list(enumerate(lines, after + 1))

    def result(self, job: str) -> dict[str, Json] | None:
        with self.database.reading() as connection:
            found = self._rows.find(connection, job)
            document = self._rows.document(connection, found.number, "result")
        plain = parse_json(document or b"null", where=f"job {found.id}: result")
        return plain if isinstance(plain, dict) else None

    def mirror(self, job: str, folder: Path) -> Path:
        found = self.get(job)
        return mirror(self.database, found, folder, project=self.projects.get(found.project))

    def close(self) -> None:
        self.database.close()
