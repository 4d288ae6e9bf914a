"""What belongs to a job, in tables of its own: attempts, answers, events and money spent."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum

import attrs
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    case,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)

from promptgraft.ground.serde import Json
from promptgraft.journal.records import LOST, SENT, record_kind
from promptgraft.service.database import Database
from promptgraft.service.jobs.types import Attempt, JobNotFoundError, JobState

_ROWS_PER_FETCH = 256
_SECONDS_PER_DAY = 86_400
MILLION = 1_000_000


def encoded_plain(plain: Mapping[str, Json]) -> bytes:
    """Return an object as the tables store it: JSON in ASCII."""
    return json.dumps(plain, separators=(",", ":")).encode()


def spent_for_today(project: str, most: Decimal) -> str:
    """Return why a project may not spend more today."""
    return f"max_cost_per_day: {most} US dollars of project `{project}` are used today (UTC)"


class LineKind(StrEnum):
    """Kind of a line in the events of a job."""

    JOB = "job"
    """An event of the job itself."""
    NUMBERED = "numbered"
    """An event of the run that a replay repeats."""
    PASSING = "passing"
    """An event of the run that a replay does not repeat."""
    PROGRESS = "progress"
    """The state of the run at one moment; useless once the job has ended."""
    REWOUND = "rewound"
    """From here on, a replay diverged from the lines recorded before it."""
    RETRACTED = "untold"
    """An event of the run that a diverging replay has retracted."""


OF_THE_RUN = (LineKind.NUMBERED, LineKind.PASSING, LineKind.PROGRESS)


@attrs.frozen
class JobLine:
    """A line in the events of a job."""

    kind: LineKind
    text: bytes


class JobLines:
    """Statements on what belongs to jobs. All methods take the connection of a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs = database.tables.jobs

    def columns(self, connection: Connection, number: int, *names: str) -> Row[object]:
        """Return some columns of a job.

        Raises:
            JobNotFoundError: the job was deleted.
        """
        query = select(*(self._jobs.c[name] for name in names))
        row = connection.execute(query.where(self._jobs.c.number == number)).one_or_none()
        if row is None:
            raise JobNotFoundError(f"job {number} is gone")
        return row

    def put(self, connection: Connection, number: int, **values: object) -> None:
        """Update columns of a job."""
        connection.execute(update(self._jobs).where(self._jobs.c.number == number).values(values))

    # Events

    def publish(self, connection: Connection, number: int, kind: str, **details: Json) -> None:
        """Add an event of the job itself, and queue it for every webhook."""
        event = self.add_event(connection, number, kind, **details)
        names = ("project", "prompt", "tag", "state")
        row = self.columns(connection, number, "id", *names)
        job = {"job": row.id, **{name: getattr(row, name) for name in names}}
        body = encoded_plain({**job, **event})
        hooks = connection.scalar(select(self._database.tables.schema.c.hooks))
        if hooks:
            # In the transaction of the event: neither exists without the other.
            deliveries = [{"hook": hook, "job": number, "body": body} for hook in hooks.split(",")]
            connection.execute(insert(self._database.tables.outbox), deliveries)

    def add_event(
        self, connection: Connection, number: int, kind: str, **details: Json
    ) -> dict[str, Json]:
        """Add an event of the job itself without telling webhooks; return it with its number."""
        now = self._database.now(connection).isoformat()
        event: dict[str, Json] = {"event": kind, "time": now, **details}
        last = self.append(connection, number, [JobLine(LineKind.JOB, encoded_plain(event))])
        return {"number": last, **event}

    def append(self, connection: Connection, number: int, lines: Sequence[JobLine]) -> int:
        """Append lines to the events of a job under the next numbers; return the last number."""
        # The update locks the row, so that no other writer takes the same numbers.
        self.put(connection, number, events=self._jobs.c.events + len(lines))
        last: int = self.columns(connection, number, "events").events
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
        """Return lines from the events of a job with their numbers."""
        events = self._database.tables.events
        rows = connection.execute(
            select(events.c.number, events.c.line)
            .where(events.c.job == number, events.c.number > after, events.c.kind.in_(kinds))
            .order_by(events.c.number)
            .limit(limit)
        )
        return [(row.number, row.line) for row in rows]

    def submissions(
        self, connection: Connection, numbers: Collection[int]
    ) -> dict[int, Mapping[str, Json]]:
        """Return the event that queued each of some jobs; empty for one that is damaged."""
        events = self._database.tables.events
        # The first event of a job is the one that queued it.
        query = select(events.c.job, events.c.line).where(
            events.c.job.in_(sorted(numbers)), events.c.number == 1
        )
        events_by_job: dict[int, Mapping[str, Json]] = {}
        for row in connection.execute(query):
            try:
                event = json.loads(row.line)
            except ValueError:  # a damaged event must not hide the jobs of a list
                event = None
            events_by_job[row.job] = event if isinstance(event, dict) else {}
        return events_by_job

    def all_events(
        self, connection: Connection, number: int, *, after: int
    ) -> Iterator[tuple[int, JobLine]]:
        """Yield a consistent snapshot of the events of a job with their numbers."""
        events = self._database.tables.events
        query = select(events.c.number, events.c.kind, events.c.line).where(
            events.c.job == number, events.c.number > after
        )
        with connection.execution_options(yield_per=_ROWS_PER_FETCH).execute(
            query.order_by(events.c.number)
        ) as rows:
            for row in rows:
                yield row.number, JobLine(LineKind(row.kind), row.line)

    def retract(self, connection: Connection, number: int, start: int) -> None:
        """Mark the events of the run from a number on as retracted by a replay."""
        events = self._database.tables.events
        tail = (events.c.job == number, events.c.number >= start)
        # Retracted lines are kept as a record; those of progress say nothing any more.
        connection.execute(delete(events).where(*tail, events.c.kind == LineKind.PROGRESS))
        connection.execute(
            update(events)
            .where(*tail, events.c.kind.in_(OF_THE_RUN))
            .values(kind=LineKind.RETRACTED)
        )

    def drop_progress(self, connection: Connection, number: int) -> None:
        """Delete the progress lines of a job except the last."""
        events = self._database.tables.events
        progress = (events.c.job == number, events.c.kind == LineKind.PROGRESS)
        last = connection.scalar(select(func.max(events.c.number)).where(*progress))
        if last is not None:
            connection.execute(delete(events).where(*progress, events.c.number < last))

    # Attempts and answers

    def attempts(self, connection: Connection, number: int) -> list[Attempt]:
        """Return the attempts of a job, the oldest first."""
        attempts = self._database.tables.attempts
        rows = connection.execute(
            select(attempts).where(attempts.c.job == number).order_by(attempts.c.number)
        )
        same = [field.name for field in attrs.fields(Attempt) if field.name != "error"]
        return [
            Attempt(**{name: getattr(row, name) for name in same}, error=row.error.decode())
            for row in rows
        ]

    def _attempt(self, number: int, attempt: int) -> list[ColumnElement[bool]]:
        attempts = self._database.tables.attempts
        return [attempts.c.job == number, attempts.c.number == attempt]

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
        """Copy the journal of one job to another."""
        answers = self._database.tables.answers
        names = ["job", "position", "key_digest", "line"]
        copied = [answers.c[name] if name != "job" else literal(to) for name in names]
        connection.execute(
            insert(answers).from_select(names, select(*copied).where(answers.c.job == source))
        )
        # The source paid for them on the day it ran; the copy must not be charged again.
        self.put(connection, to, spent=self.columns(connection, source, "spent").spent)

    def drop_answers(self, connection: Connection, number: int) -> None:
        """Delete the journal of a job that has paid for none of it."""
        answers = self._database.tables.answers
        connection.execute(delete(answers).where(answers.c.job == number))
        self.put(connection, number, spent=0)

    def answers(self, connection: Connection, number: int) -> int:
        """Return the length of a job's journal in lines, without counting them."""
        answers = self._database.tables.answers
        last = connection.scalar(
            select(func.max(answers.c.position)).where(answers.c.job == number)
        )
        return 0 if last is None else last + 1

    def has_new_answers(self, connection: Connection, number: int, before: int) -> bool:
        """Return whether a job's journal has an answer behind its first ``before`` lines."""
        answers = self._database.tables.answers
        if before == 0 < self.answers(connection, number):
            return True  # the run has begun
        lines = connection.scalars(
            select(answers.c.line).where(answers.c.job == number, answers.c.position >= before)
        )
        # A request that was sent, in this attempt or an earlier one, is no answer.
        return any(record_kind(line) not in (SENT, LOST) for line in lines)

    # Money

    def charge(self, connection: Connection, number: int, cost: Decimal) -> None:
        """Book what a job's cost has grown by on the current day; a replay adds nothing."""
        attempts = self._database.tables.attempts
        job = self.columns(connection, number, "spent", "attempts")
        # Millionths as an integer: not every database has exact decimals.
        total = round(cost * MILLION)
        # The cost is that of the whole run, also of the answers that a replay takes from the
        # journal.
        if (new := total - job.spent) <= 0:
            return
        day = self._day(connection)
        self.put(connection, number, spent=total)
        # MySQL assigns from left to right: `spent` has to be computed before `day` changes.
        spent = case((attempts.c.day == day, attempts.c.spent), else_=0) + new
        connection.execute(
            update(attempts)
            .where(*self._attempt(number, job.attempts))
            .ordered_values(("spent", spent), ("day", day))
        )

    def spent_today(
        self, connection: Connection, project: str, number: int | None = None
    ) -> Decimal:
        """Return the US dollars that a project, or one job of it, has used since midnight (UTC)."""
        jobs, attempts = self._jobs, self._database.tables.attempts
        of_job = () if number is None else (jobs.c.number == number,)
        total = connection.scalar(
            select(func.sum(attempts.c.spent))
            .join(jobs, jobs.c.number == attempts.c.job)
            .where(attempts.c.day == self._day(connection), jobs.c.project == project, *of_job)
        )
        return Decimal(int(total or 0)) / MILLION

    def _day(self, connection: Connection) -> int:
        return int(self._database.now(connection).timestamp() // _SECONDS_PER_DAY)

    def explain_wait(
        self,
        connection: Connection,
        project: str,
        reason: str,
        *,
        applies: bool = True,
        except_digests: Collection[str] = (),
    ) -> None:
        """Set the reason why queued jobs of a project do not start, or clear it again.

        Args:
            connection: that of the transaction.
            project: the name of the project.
            reason: one line.
            applies: False clears this reason, and leaves any other.
            except_digests: digests of jobs that are not touched.
        """
        jobs, text = self._jobs, reason.encode()
        # Rows that already say so are not written, since workers repeat this on every poll.
        outdated = jobs.c.reason != text if applies else jobs.c.reason == text
        connection.execute(
            update(jobs)
            .where(
                jobs.c.state == JobState.QUEUED,
                jobs.c.project == project,
                outdated,
                jobs.c.digest.not_in(except_digests),
            )
            .values(reason=text if applies else b"")
        )
