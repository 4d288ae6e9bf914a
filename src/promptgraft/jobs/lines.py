"""What belongs to a job, in tables of its own: attempts, answers and events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, delete, func, insert, literal, select, update

from promptgraft.database import Database
from promptgraft.jobs.types import Attempt
from promptgraft.serde import Json


def encoded_plain(plain: Mapping[str, Json]) -> bytes:
    """Return an object as the tables keep it: JSON in ASCII."""
    return json.dumps(plain, separators=(",", ":")).encode()


class JobLines:
    """The tables of what jobs have. All methods take the connection of a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs = database.tables.jobs

    def tell(self, connection: Connection, number: int, kind: str, **said: Json) -> None:
        """Add an event of the job itself."""
        line: dict[str, Json] = {"event": kind, "time": self._database.now(connection).isoformat()}
        self.append(connection, number, [encoded_plain({**line, **said})])

    def append(self, connection: Connection, number: int, lines: Sequence[bytes]) -> None:
        """Add lines to the events of a job, with the next numbers."""
        if not lines:
            return
        jobs = self._jobs
        self._update(connection, number, events=jobs.c.events + len(lines))
        last = connection.scalar(select(jobs.c.events).where(jobs.c.number == number)) or 0
        first = last - len(lines) + 1
        connection.execute(
            insert(self._database.tables.events),
            [{"job": number, "number": first + at, "line": line} for at, line in enumerate(lines)],
        )

    def events(
        self, connection: Connection, number: int, *, after: int, limit: int
    ) -> list[tuple[int, bytes]]:
        """Return lines of the events of a job with their numbers."""
        events = self._database.tables.events
        rows = connection.execute(
            select(events.c.number, events.c.line)
            .where(events.c.job == number, events.c.number > after)
            .order_by(events.c.number)
            .limit(limit)
        )
        return [(row.number, row.line) for row in rows]

    def last_event(self, connection: Connection, number: int) -> int:
        """Return the number of the latest line of a job's events; 0 for none."""
        return (
            connection.scalar(select(self._jobs.c.events).where(self._jobs.c.number == number)) or 0
        )

    def forget_events(self, connection: Connection, number: int, which: Iterable[int]) -> None:
        """Remove some lines of the events of a job."""
        events = self._database.tables.events
        connection.execute(
            delete(events).where(events.c.job == number, events.c.number.in_(list(which)))
        )

    def attempts(self, connection: Connection, number: int) -> list[Attempt]:
        """Return each time that a worker took a job."""
        attempts = self._database.tables.attempts
        rows = connection.execute(
            select(attempts).where(attempts.c.job == number).order_by(attempts.c.number)
        )
        return [
            Attempt(
                number=row.number,
                worker=row.worker,
                started=row.started,
                ended=row.ended,
                answers=row.answers,
                error=row.error.decode(),
            )
            for row in rows
        ]

    def lines(
        self, connection: Connection, number: int, start: int, *, limit: int | None = None
    ) -> list[bytes]:
        """Return the lines of a job's journal from a position on."""
        answers = self._database.tables.answers
        rows = connection.execute(
            select(answers.c.line)
            .where(answers.c.job == number, answers.c.position >= start)
            .order_by(answers.c.position)
            .limit(limit)
        )
        return [row.line for row in rows]

    def copy_answers(self, connection: Connection, source: int, to: int) -> None:
        """Give a job the answers of another one."""
        answers = self._database.tables.answers
        names = ["job", "position", "key_digest", "line"]
        copied = [answers.c[name] if name != "job" else literal(to) for name in names]
        connection.execute(
            insert(answers).from_select(names, select(*copied).where(answers.c.job == source))
        )

    def answers(self, connection: Connection, number: int) -> int:
        """Return how many answers a job has."""
        answers = self._database.tables.answers
        return connection.scalar(select(func.count()).where(answers.c.job == number)) or 0

    def _update(self, connection: Connection, number: int, **values: object) -> None:
        connection.execute(update(self._jobs).where(self._jobs.c.number == number).values(values))
