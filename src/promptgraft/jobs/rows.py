"""The statements that read and write jobs; each is a step of somebody's transaction."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal

import attrs
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)

from promptgraft.database import Database
from promptgraft.errors import LeaseLostError
from promptgraft.jobs.lines import encoded_plain
from promptgraft.jobs.preparing import read_changes, written_changes
from promptgraft.jobs.spending import SpendingRows
from promptgraft.jobs.types import (
    ENDED,
    Job,
    JobChanges,
    JobFilter,
    JobNotFoundError,
    JobState,
    Status,
    Wish,
)
from promptgraft.serde import canonical_json, parse_json
from promptgraft.strict import structure

LEASE_SECONDS = 30.0
MOST_BARREN_ATTEMPTS = 5
"""Attempts in a row without a new answer after which a job has failed."""

_LARGE = frozenset({"config", "result"})
"""Columns that are read only when they are asked for."""

_PAUSED_BY_LOSS = {Wish.PAUSE: JobState.PAUSED, Wish.CANCEL: JobState.CANCELLED}
_KINDS = {
    JobState.QUEUED: "job_recovered",
    JobState.PAUSED: "job_paused",
    JobState.COMPLETED: "job_completed",
    JobState.FAILED: "job_failed",
    JobState.CANCELLED: "job_cancelled",
}


@attrs.frozen(kw_only=True)
class Claim:
    """A job that a worker has got, under a fence that is its own.

    Attributes:
        job: the job.
        fence: what the fence of the job is as long as the worker has it.
    """

    job: Job
    fence: int


class JobRows(SpendingRows):
    """The tables of jobs. All methods take the connection of a transaction."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._columns = [one for one in self._jobs.c if one.name not in _LARGE]

    def insert(self, connection: Connection, by: str, **values: object) -> Job:
        """Insert a job that somebody asks for, and return it."""
        made = connection.execute(
            insert(self._jobs).values(created=self._database.seconds, **values)
        )
        assert made.inserted_primary_key is not None  # noqa: S101 - an insert has one
        number = int(made.inserted_primary_key[0])
        self.tell(connection, number, "job_queued", by=by)
        return self.at(connection, number)

    def at(self, connection: Connection, number: int, *, locked: bool = False) -> Job:
        """Return the job with a number, which is there; ``locked`` keeps other writers out."""
        query = select(*self._columns).where(self._jobs.c.number == number)
        row = connection.execute(query.with_for_update() if locked else query).one_or_none()
        if row is None:
            raise JobNotFoundError(f"job {number} is gone")
        return _job(row)

    def look(self, connection: Connection, number: int) -> tuple[int, bool]:
        """Return the number of the latest event of a job, and whether the job has ended."""
        jobs = self._jobs
        query = select(jobs.c.events, jobs.c.state).where(jobs.c.number == number)
        row = connection.execute(query).one_or_none()
        if row is None:
            raise JobNotFoundError(f"job {number} is gone")
        return row.events, JobState(row.state) in ENDED

    def find(self, connection: Connection, given: str, *, locked: bool = False) -> Job:
        """Return the job with an id, or with the only id that begins like that.

        Raises:
            JobNotFoundError: there is none, or several.
        """
        jobs = self._jobs
        begins = jobs.c.id.startswith(given, autoescape=True)
        rows = connection.execute(
            select(jobs.c.number, jobs.c.id).where(begins).order_by(jobs.c.number).limit(2)
        ).all()
        exact = [row for row in rows if row.id == given] or rows
        if len(exact) == 1 and len(given) >= 4:
            return self.at(connection, exact[0].number, locked=locked)
        why = "give more digits of its id" if rows else "`promptgraft jobs list` shows all"
        what = "several jobs begin" if len(rows) > 1 else "no job has an id that begins"
        raise JobNotFoundError(f"{what} with `{given[:40]}`; {why}")

    def by_key(self, connection: Connection, project: str, key: str) -> tuple[Job, bytes] | None:
        """Return the job that was made with an idempotency key, and what was asked for then."""
        jobs = self._jobs
        row = connection.execute(
            select(*self._columns).where(jobs.c.project == project, jobs.c.key == key)
        ).one_or_none()
        return None if row is None else (_job(row), row.request)

    def page(
        self,
        connection: Connection,
        where: JobFilter,
        *,
        before: int | None,
        limit: int,
        projects: Collection[str] | None = None,
    ) -> list[Job]:
        """Return jobs, the newest first."""
        jobs = self._jobs
        wanted: list[ColumnElement[bool]] = [
            jobs.c[name] == one
            for name in ("state", "project", "prompt", "tag")
            if (one := getattr(where, name)) is not None
        ]
        if where.since is not None:
            wanted.append(jobs.c.created >= where.since)
        if projects is not None:
            wanted.append(jobs.c.project.in_(sorted(projects)))
        if before is not None:
            wanted.append(jobs.c.number < before)
        if where.text:
            fields = [jobs.c.id, jobs.c.project, jobs.c.prompt, jobs.c.tag]
            wanted.append(or_(*(one.contains(where.text, autoescape=True) for one in fields)))
        query = select(*self._columns).where(*wanted).order_by(jobs.c.number.desc()).limit(limit)
        return [_job(row) for row in connection.execute(query)]

    def claim(
        self, connection: Connection, projects: Collection[tuple[str, str]], worker: str
    ) -> Claim | None:
        """Give a worker the job whose turn it is; None when there is none for it.

        Then jobs that were submitted with another version of its projects say so.

        Args:
            connection: that of the transaction.
            projects: names and digests of what the worker can run.
            worker: its name.
        """
        jobs, now = self._jobs, self._database.seconds
        number = connection.scalar(
            select(jobs.c.number)
            .where(
                jobs.c.state == JobState.QUEUED,
                jobs.c.not_before <= now,
                tuple_(jobs.c.project, jobs.c.digest).in_(sorted(projects)),
            )
            .order_by(jobs.c.priority.desc(), jobs.c.number)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        if number is None:
            for name in {name for name, _ in projects}:
                why = f"waits for a worker with project `{name}` as it was submitted"
                self.hold(connection, name, why, but=[one for at, one in projects if at == name])
            return None
        self.put(
            connection,
            number,
            state=JobState.RUNNING,
            wish=Wish.NONE,
            reason=b"",
            fence=jobs.c.fence + 1,
            worker=worker,
            lease=now + LEASE_SECONDS,
            attempts=jobs.c.attempts + 1,
            started=func.coalesce(jobs.c.started, now),
        )
        fence, attempts = connection.execute(
            select(jobs.c.fence, jobs.c.attempts).where(jobs.c.number == number)
        ).one()
        connection.execute(
            insert(self._database.tables.attempts).values(
                job=number,
                number=attempts,
                worker=worker,
                started=now,
                answers=self.answers(connection, number),
                error=b"",
            )
        )
        kind = "job_started" if attempts == 1 else "job_resumed"
        self.tell(connection, number, kind, worker=worker, attempt=attempts)
        return Claim(job=self.at(connection, number), fence=fence)

    def renew(self, connection: Connection, claim: Claim) -> Wish:
        """Prolong a lease; return what was asked of the job since.

        Raises:
            LeaseLostError: another worker has the job.
        """
        self.check(connection, claim)
        self.put(connection, claim.job.number, lease=self._database.seconds + LEASE_SECONDS)
        return self.wish(connection, claim)

    def wish(self, connection: Connection, claim: Claim) -> Wish:
        """Return what was asked of a job.

        Raises:
            LeaseLostError: another worker has the job.
        """
        jobs = self._jobs
        row = connection.execute(
            select(jobs.c.fence, jobs.c.wish).where(jobs.c.number == claim.job.number)
        ).one_or_none()
        if row is None or row.fence != claim.fence:
            raise _lost(claim)
        return Wish(row.wish)

    def check(self, connection: Connection, claim: Claim) -> None:
        """Lock a job that a worker has.

        Raises:
            LeaseLostError: another worker has it.
        """
        jobs = self._jobs
        found = connection.scalar(
            select(jobs.c.fence).where(jobs.c.number == claim.job.number).with_for_update()
        )
        if found != claim.fence:
            raise _lost(claim)

    def advance(self, connection: Connection, number: int, progress: float, status: Status) -> None:
        """Keep how far a job is, and what it has spent today."""
        jobs = self._jobs
        self.spend(connection, number, Decimal(status.cost or 0))
        self.put(
            connection,
            number,
            progress=case((jobs.c.progress < progress, progress), else_=jobs.c.progress),
            status=encoded_plain(attrs.asdict(status)),
        )

    def settle(
        self,
        connection: Connection,
        job: Job,
        state: JobState,
        *,
        reason: str,
        error: str = "",
        result: bytes | None = None,
    ) -> None:
        """End an attempt, and put the job, which is locked, where it goes from there."""
        answers = self.answers(connection, job.number)
        before = connection.scalar(
            select(self._database.tables.attempts.c.answers).where(*self._attempt(job))
        )
        barren = 0 if answers > (before or 0) else self._barren(connection, job) + 1
        if state is JobState.QUEUED and barren >= MOST_BARREN_ATTEMPTS:
            state = JobState.FAILED
            reason = f"{barren} attempts in a row without a new answer; the last: {error or reason}"
        now = self._database.seconds
        connection.execute(
            update(self._database.tables.attempts)
            .where(*self._attempt(job))
            .values(ended=now, error=error.encode())
        )
        values: dict[str, object] = {"result": result} if result is not None else {}
        if state in ENDED:
            values["ended"] = now
        if state is JobState.COMPLETED:
            values["progress"] = 100.0
        self.put(
            connection,
            job.number,
            state=state,
            wish=Wish.NONE,
            reason=reason.encode(),
            # Whoever worked on it does not any more, whatever it believes.
            fence=self._jobs.c.fence + 1,
            worker="",
            lease=0.0,
            barren=barren,
            **values,
        )
        if state in ENDED:
            # Where a job was is of no use once it has ended; how it got there is.
            self.thin(connection, job.number)
        self.tell(connection, job.number, _KINDS[state], reason=reason)

    def lose(self, connection: Connection, job: Job, why: str) -> None:
        """Put back a job, which is locked, whose worker is gone; a wish for it is granted."""
        self.settle(
            connection, job, _PAUSED_BY_LOSS.get(job.wish, JobState.QUEUED), reason=why, error=why
        )

    def expired(self, connection: Connection) -> list[Job]:
        """Return running jobs whose lease is over, locked."""
        jobs = self._jobs
        query = (
            select(*self._columns)
            .where(jobs.c.state == JobState.RUNNING, jobs.c.lease < self._database.seconds)
            .order_by(jobs.c.number)
            .with_for_update(skip_locked=True)
        )
        return [_job(row) for row in connection.execute(query)]

    def document(self, connection: Connection, number: int, name: str) -> bytes | None:
        """Return the ``config`` or the ``result`` of a job; None while there is none."""
        query = select(self._jobs.c[name]).where(self._jobs.c.number == number)
        found: bytes | None = connection.scalar(query)
        return found

    def remove(self, connection: Connection, number: int) -> None:
        """Remove a job with everything that it has."""
        tables = self._database.tables
        for table in (tables.events, tables.answers, tables.attempts):
            connection.execute(delete(table).where(table.c.job == number))
        connection.execute(delete(self._jobs).where(self._jobs.c.number == number))

    def counts(self, connection: Connection) -> dict[str, int]:
        """Return how many jobs are in each state."""
        state = self._jobs.c.state
        rows = connection.execute(select(state, func.count()).group_by(state)).all()
        return {**dict.fromkeys(map(str, JobState), 0), **{row[0]: row[1] for row in rows}}

    def waiting(self, connection: Connection) -> int:
        """Return how many jobs wait for a worker."""
        query = select(func.count()).where(self._jobs.c.state == JobState.QUEUED)
        return connection.scalar(query) or 0

    def _barren(self, connection: Connection, job: Job) -> int:
        query = select(self._jobs.c.barren).where(self._jobs.c.number == job.number)
        return connection.scalar(query) or 0

    def _attempt(self, job: Job) -> list[ColumnElement[bool]]:
        attempts = self._database.tables.attempts
        return [attempts.c.job == job.number, attempts.c.number == job.attempts]


def encoded_changes(changes: JobChanges) -> bytes:
    """Return changes as the table keeps them; equal for equal ones."""
    return canonical_json(written_changes(changes)).encode()


def _lost(claim: Claim) -> LeaseLostError:
    return LeaseLostError(
        f"job {claim.job.id} was taken over by another worker, or settled; nothing more of it is "
        "written here"
    )


def _job(row: Row[object]) -> Job:
    plain = parse_json(row.request, where=f"job {row.id}: request")
    status = parse_json(row.status, where=f"job {row.id}: status")
    return Job(
        id=row.id,
        number=row.number,
        project=row.project,
        prompt=row.prompt,
        tag=row.tag,
        digest=row.digest,
        changes=read_changes(plain if isinstance(plain, dict) else None),
        state=JobState(row.state),
        wish=Wish(row.wish),
        reason=row.reason.decode(),
        origin=row.origin,
        worker=row.worker,
        attempts=row.attempts,
        created=row.created,
        started=row.started,
        ended=row.ended,
        progress=row.progress,
        status=structure(status, Status, where=f"job {row.id}: status"),
    )
