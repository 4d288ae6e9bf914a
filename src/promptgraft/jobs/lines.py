"""What belongs to a job, in tables of its own: attempts, answers and events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import attrs
from sqlalchemy import Connection, delete, func, insert, literal, select, update

from promptgraft.database import Database
from promptgraft.jobs.outbox import Outbox
from promptgraft.jobs.types import Attempt
from promptgraft.serde import Json

_AT_ONCE = 256


def encoded_plain(plain: Mapping[str, Json]) -> bytes:
    """Return an object as the tables keep it: JSON in ASCII."""
    return json.dumps(plain, separators=(",", ":")).encode()


class LineKind(StrEnum):
    """What a line of a job's events tells."""

    JOB = "job"
    """Something of the job itself."""
    NUMBERED = "numbered"
    """A line of the run that a replay tells again."""
    PASSING = "passing"
    """A line of the run that a replay leaves out."""
    PROGRESS = "progress"
    """Where the run stood; of no use once the job has ended."""
    REWOUND = "rewound"
    """From here on a replay tells something else."""
    UNTOLD = "untold"
    """A line of the run that a replay has taken back."""


OF_THE_RUN = (LineKind.NUMBERED, LineKind.PASSING, LineKind.PROGRESS)


@attrs.frozen
class Line:
    """A line of a job's events."""

    kind: LineKind
    text: bytes


class JobLines:
    """The tables of what jobs have. All methods take the connection of a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs = database.tables.jobs
        self._outbox = Outbox(database)

    def tell(self, connection: Connection, number: int, kind: str, **said: Json) -> None:
        """Add an event of the job itself, and keep it for the webhooks."""
        line = self.note(connection, number, kind, **said)
        jobs = self._jobs
        columns = (jobs.c.id, jobs.c.project, jobs.c.prompt, jobs.c.tag, jobs.c.state)
        row = connection.execute(select(*columns).where(jobs.c.number == number)).one()
        job = dict(zip(("job", "project", "prompt", "tag", "state"), row, strict=True))
        self._outbox.put(connection, number, encoded_plain({**job, **line}))

    def note(self, connection: Connection, number: int, kind: str, **said: Json) -> dict[str, Json]:
        """Add an event of the job itself, for its readers alone; return it with its number."""
        now = self._database.now(connection).isoformat()
        line: dict[str, Json] = {"event": kind, "time": now, **said}
        event = self.append(connection, number, [Line(LineKind.JOB, encoded_plain(line))])
        return {"number": event, **line}

    def append(self, connection: Connection, number: int, lines: Sequence[Line]) -> int:
        """Add lines to the events of a job, with the next numbers; return the last of them."""
        jobs = self._jobs
        self.put(connection, number, events=jobs.c.events + len(lines))
        last = connection.scalar(select(jobs.c.events).where(jobs.c.number == number)) or 0
        first = last - len(lines) + 1
        connection.execute(
            insert(self._database.tables.events),
            [
                {"job": number, "number": first + at, "kind": line.kind, "line": line.text}
                for at, line in enumerate(lines)
            ],
        )
        return last

    def events(
        self,
        connection: Connection,
        number: int,
        *,
        after: int,
        limit: int,
        kinds: Sequence[LineKind] = tuple(LineKind),
    ) -> list[tuple[int, bytes]]:
        """Return lines of the events of a job with their numbers."""
        events = self._database.tables.events
        rows = connection.execute(
            select(events.c.number, events.c.line)
            .where(events.c.job == number, events.c.number > after, events.c.kind.in_(kinds))
            .order_by(events.c.number)
            .limit(limit)
        )
        return [(row.number, row.line) for row in rows]

    def all_events(
        self, connection: Connection, number: int, *, after: int
    ) -> Iterator[tuple[int, Line]]:
        """Yield lines of the events of a job with their numbers, as they are at one moment."""
        events = self._database.tables.events
        query = select(events.c.number, events.c.kind, events.c.line).where(
            events.c.job == number, events.c.number > after
        )
        with connection.execution_options(yield_per=_AT_ONCE).execute(
            query.order_by(events.c.number)
        ) as rows:
            for row in rows:
                yield row.number, Line(LineKind(row.kind), row.line)

    def take_back(self, connection: Connection, number: int, start: int) -> None:
        """Mark the lines of the run from a number on as taken back by a replay."""
        events = self._database.tables.events
        behind = (events.c.job == number, events.c.number >= start)
        connection.execute(delete(events).where(*behind, events.c.kind == LineKind.PROGRESS))
        connection.execute(
            update(events)
            .where(*behind, events.c.kind.in_(OF_THE_RUN))
            .values(kind=LineKind.UNTOLD)
        )

    def thin(self, connection: Connection, number: int) -> None:
        """Remove the lines of progress of a job, but for the last."""
        events = self._database.tables.events
        progress = (events.c.job == number, events.c.kind == LineKind.PROGRESS)
        last = connection.scalar(select(func.max(events.c.number)).where(*progress))
        if last is not None:
            connection.execute(delete(events).where(*progress, events.c.number < last))

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
        # They were paid for on the day of the other job.
        spent = select(self._jobs.c.spent).where(self._jobs.c.number == source)
        self.put(connection, to, spent=connection.scalar(spent))

    def answers(self, connection: Connection, number: int) -> int:
        """Return how many lines the journal of a job has, without counting them."""
        answers = self._database.tables.answers
        last = connection.scalar(
            select(func.max(answers.c.position)).where(answers.c.job == number)
        )
        return 0 if last is None else last + 1

    def put(self, connection: Connection, number: int, **values: object) -> None:
        """Change columns of a job."""
        connection.execute(update(self._jobs).where(self._jobs.c.number == number).values(values))
