"""Rows of workers: which there are, what they can run, and when each was last seen."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence

import attrs
from sqlalchemy import Connection, delete, insert, select, update

from promptgraft import __version__
from promptgraft.service.database import Database
from promptgraft.service.jobs.lines import encoded_plain

_SECONDS_BETWEEN_SIGNS = 10.0
_SECONDS_OF_SILENCE = 35.0
"""Three signs have failed to come by then."""
_SECONDS_KEPT = 86_400.0


def dry_runs_of(project: str) -> str:
    """Return the key of a project's dry runs in what a worker avoids; no project has that name."""
    return f"{project} (dry runs)"


@attrs.frozen(kw_only=True)
class WorkerRow:
    """A worker as it last described itself. Times are seconds since 1970.

    Attributes:
        version: its version of promptgraft.
        processes: number of jobs that it runs at a time.
        projects: the projects that it has.
        avoids: why it runs no jobs of some of them, by project.
        avoids_dry: why it runs no dry runs of some of them either.
        started: when it began.
        seen: when it last gave a sign of life, every 10 seconds.
        is_alive: whether that is recent enough.
    """

    name: str
    version: str
    processes: int
    projects: Sequence[str]
    avoids: Mapping[str, str]
    avoids_dry: Mapping[str, str]
    started: float
    seen: float
    is_alive: bool


class Presence:
    """Keeps the row of a worker.

    Args:
        name: the name of the worker.
        processes: number of jobs that it runs at a time.
    """

    def __init__(self, database: Database, *, name: str, processes: int) -> None:
        self._database, self._table = database, database.tables.workers
        self._name, self._processes = name, processes
        self._shown: Mapping[str, str] | None = None
        self._at = 0.0

    def show(self, projects: Collection[str], avoids: Mapping[str, str]) -> None:
        """Write the row if that is due, or if the worker avoids other projects than before."""
        now = time.monotonic()
        if self._shown == avoids and now - self._at < _SECONDS_BETWEEN_SIGNS:
            return
        self._database.write(
            lambda connection: self._write(connection, list(projects), avoids), durable=False
        )
        self._shown, self._at = dict(avoids), now

    def _write(
        self, connection: Connection, projects: list[str], avoids: Mapping[str, str]
    ) -> None:
        table, seconds = self._table, self._database.seconds
        row = {
            "version": __version__,
            "processes": self._processes,
            "projects": json.dumps(projects).encode(),
            "avoids": encoded_plain(avoids),
            "seen": seconds,
        }
        condition = table.c.name == self._name
        if not connection.execute(update(table).where(condition).values(row)).rowcount:
            # Those of workers that were killed would otherwise stay for ever.
            old = table.c.seen < seconds - _SECONDS_KEPT
            connection.execute(delete(table).where(old))
            connection.execute(insert(table).values(name=self._name, started=seconds, **row))

    def end(self) -> None:
        """Delete the row, if there is one."""
        if self._shown is None:
            return
        table = self._table
        self._database.write(
            lambda connection: connection.execute(delete(table).where(table.c.name == self._name))
        )


def worker_rows(database: Database, projects: Collection[str] | None = None) -> Sequence[WorkerRow]:
    """Return the workers by name; of some projects only, and with nothing of others."""
    table = database.tables.workers
    with database.reading() as connection:
        rows = connection.execute(
            select(table, database.seconds.label("now")).order_by(table.c.name)
        ).all()
    workers = []
    for row in rows:
        names: list[str] = json.loads(row.projects)
        seen_names = [name for name in names if projects is None or name in projects]
        avoids: dict[str, str] = json.loads(row.avoids)
        if seen_names or projects is None:
            workers.append(
                WorkerRow(
                    name=row.name,
                    version=row.version,
                    processes=row.processes,
                    projects=seen_names,
                    avoids={name: avoids[name] for name in seen_names if name in avoids},
                    avoids_dry={
                        name: avoids[key]
                        for name in seen_names
                        if (key := dry_runs_of(name)) in avoids
                    },
                    started=row.started,
                    seen=row.seen,
                    is_alive=row.now - row.seen < _SECONDS_OF_SILENCE,
                )
            )
    return workers
