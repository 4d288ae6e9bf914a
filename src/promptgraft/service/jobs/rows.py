"""SQL statements that read, order and write jobs; transactions are made of them."""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs
from sqlalchemy import (
    CHAR,
    JSON,
    ColumnElement,
    Connection,
    Double,
    Row,
    Text,
    and_,
    case,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)

from promptgraft.errors import ConfigError, LeaseLostError
from promptgraft.ground.serde import canonical_json, did_you_mean, parse_json
from promptgraft.service.database import Database
from promptgraft.service.jobs.lines import MILLION, JobLines, encoded_plain
from promptgraft.service.jobs.preparing import read_changes, written_changes
from promptgraft.service.jobs.types import (
    ENDED,
    Job,
    JobChanges,
    JobFilter,
    JobNotFoundError,
    JobState,
    Status,
    Wish,
)

COLUMNS = ("created", "prompt", "verdict", "gain", "cost", "time")
"""What jobs can be ordered by."""


@attrs.frozen(kw_only=True)
class Order:
    """An order of jobs; jobs without a value come last, and equal ones with the newest first.

    Attributes:
        by: one of :data:`COLUMNS`.
        is_rising: whether the least value comes first.
        offset: number of jobs to leave out.
    """

    by: str
    is_rising: bool = False
    offset: int = 0

    @classmethod
    def of(cls, sort: str, offset: int = 0) -> Order:
        """Return the order that a column, or one after a minus for rising values, asks for.

        Raises:
            ConfigError: there is no such column.
        """
        by = sort.removeprefix("-")
        if by not in COLUMNS:
            near = did_you_mean(by, COLUMNS)
            raise ConfigError(
                f"sort: expected one of {', '.join(COLUMNS)}, found {by[:40]!r}{near}"
            )
        return cls(by=by, is_rising=sort != by, offset=offset)

    def clauses(self, database: Database, dialect: str) -> Sequence[ColumnElement[Any]]:
        """Return what a statement is ordered by."""
        jobs, value = database.tables.jobs, self._value(database, dialect)
        return [
            value.is_(None),
            value.asc() if self.is_rising else value.desc(),
            jobs.c.number.desc(),
        ]

    def _value(self, database: Database, dialect: str) -> ColumnElement[object]:
        jobs, attempts = database.tables.jobs, database.tables.attempts
        match self.by:
            case "created":
                return jobs.c.number
            case "prompt":
                return jobs.c.project + "/" + jobs.c.prompt
            case "cost":
                return jobs.c.spent
            case "time":
                ended = func.coalesce(attempts.c.ended, database.seconds)
                took = select(func.sum(ended - attempts.c.started))
                return took.where(attempts.c.job == jobs.c.number).scalar_subquery()
            case "verdict":
                return func.nullif(_field(jobs.c.status, "verdict", dialect), "")
        gain = _field(jobs.c.status, "gain", dialect)
        # MySQL returns numbers of a document as text.
        return gain if dialect == "sqlite" else cast(gain, Double)


def _field(document: ColumnElement[bytes], name: str, dialect: str) -> ColumnElement[object]:
    """Return a field of a document, which is bytes in every database; NULL without it."""
    if dialect == "postgresql":
        return func.json_extract_path_text(cast(func.convert_from(document, "UTF8"), JSON), name)
    if dialect == "sqlite":
        return func.json_extract(cast(document, Text), f"$.{name}")
    return func.json_value(cast(document, CHAR), f"$.{name}")


# Long enough for three renewals, short enough that the job of a dead worker soon continues.
LEASE_SECONDS = 30.0
# Ends the circle of a job that kills every worker, without counting restarts in between.
MOST_BARREN_ATTEMPTS = 5
"""Attempts in a row without a new answer after which a job fails."""

_CONVERTED = frozenset({"changes", "state", "wish", "reason", "status"})
_SAME = tuple(one.name for one in attrs.fields(Job) if one.name not in _CONVERTED)
"""Fields of a job that are columns of the same name and type."""

_DOCUMENTS = frozenset({"config", "result"})
"""Large columns, which are read only when they are needed."""

_OTHER_VERSION = (
    "waits for a worker with project `{}` as it was submitted; if it was edited since, restart "
    "server and workers, and submit the job again"
)
_SUMMED = ("spent", "calls", "retries", "milliseconds")
_ID_DIGITS = 32
_HEX = re.compile("[0-9a-f]+")
_STATES_BY_WISH = {Wish.PAUSE: JobState.PAUSED, Wish.CANCEL: JobState.CANCELLED}
_EVENTS = {
    JobState.QUEUED: "job_recovered",
    JobState.PAUSED: "job_paused",
    JobState.COMPLETED: "job_completed",
    JobState.FAILED: "job_failed",
    JobState.CANCELLED: "job_cancelled",
}


@attrs.frozen(kw_only=True)
class Claim:
    """A job that a worker has taken.

    Attributes:
        fence: the job's fence at that time; a claim with an older fence may not write.
    """

    job: Job
    fence: int


@attrs.frozen(kw_only=True)
class ProjectTotals:
    """What the jobs of a project come to, as far as they are kept.

    Attributes:
        dollars: US dollars spent.
        calls: model calls of jobs that have ended or paused.
        retries: requests beyond the first of each of these calls.
        seconds: their duration, including waits.
        repeated: attempts beyond the first of each job.
        failed: jobs that have failed.
        waiting: seconds since the oldest job that could run now was submitted; 0 if there is none.
    """

    project: str
    dollars: float
    calls: int
    retries: int
    seconds: float
    repeated: int
    failed: int
    waiting: float


class JobRows(JobLines):
    """Statements on jobs. All methods take the connection of a transaction."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        attempts = database.tables.attempts
        of_job, took = attempts.c.job == self._jobs.c.number, attempts.c.ended - attempts.c.started
        seconds = select(func.coalesce(func.sum(took), 0.0)).where(of_job)
        resumed = select(func.max(attempts.c.started)).where(of_job, attempts.c.ended.is_(None))
        self._light = [
            *(column for column in self._jobs.c if column.name not in _DOCUMENTS),
            seconds.correlate(self._jobs).scalar_subquery().label("seconds"),
            resumed.correlate(self._jobs).scalar_subquery().label("resumed"),
        ]

    # Reading

    def load(self, connection: Connection, number: int, *, locked: bool = False) -> Job:
        """Return the job with a number; ``locked`` keeps other writers out.

        Raises:
            JobNotFoundError: the job was deleted.
        """
        query = select(*self._light).where(self._jobs.c.number == number)
        row = connection.execute(query.with_for_update() if locked else query).one_or_none()
        if row is None:
            raise JobNotFoundError(f"job {number} is gone")
        return _job(row)

    def find(
        self,
        connection: Connection,
        given: str,
        *,
        locked: bool = False,
        projects: Collection[str] | None = None,
    ) -> Job:
        """Return the job with an id, or with a unique prefix of it; of some projects, or of all.

        Raises:
            JobNotFoundError: no job matches, or several do.
        """
        jobs = self._jobs
        job_id = given.lower()
        # A range and not a pattern, which SQLite and other collations look for in every row. Ids
        # are hexadecimal, and in every collation `g` follows `f`.
        begins = (jobs.c.id >= job_id, jobs.c.id < f"{job_id}g")
        query = select(jobs.c.number, jobs.c.id).where(*begins).order_by(jobs.c.id).limit(2)
        if projects is not None:
            query = query.where(jobs.c.project.in_(sorted(projects)))
        rows = connection.execute(query).all() if _HEX.fullmatch(job_id) else []
        # An exact match wins over longer ids that begin with it.
        exact = [row for row in rows if row.id == job_id] or rows
        if len(exact) == 1 and len(given) >= 4:
            return self.load(connection, exact[0].number, locked=locked)
        if not rows and len(given) == _ID_DIGITS:
            raise JobNotFoundError(
                f"job `{given[:8]}` was deleted, or is of a project that you do not see"
            )
        why = "give more digits of its id" if rows else "`promptgraft jobs list` shows all"
        what = "several jobs begin" if len(rows) > 1 else "no job has an id that begins"
        raise JobNotFoundError(f"{what} with `{given[:40]}`; {why}")

    def present(self, connection: Connection, ids: Collection[str]) -> set[str]:
        """Return those of some full ids that jobs have."""
        query = select(self._jobs.c.id).where(self._jobs.c.id.in_(sorted(ids)))
        return set(connection.scalars(query))

    def by_key(self, connection: Connection, project: str, key: str) -> Job | None:
        """Return the job that was made with an idempotency key."""
        jobs = self._jobs
        row = connection.execute(
            select(*self._light).where(jobs.c.project == project, jobs.c.key == key)
        ).one_or_none()
        return None if row is None else _job(row)

    def page(
        self,
        connection: Connection,
        where: JobFilter,
        *,
        before: int | None,
        limit: int,
        projects: Collection[str] | None = None,
        order: Order | None = None,
    ) -> list[Job]:
        """Return jobs, the newest first or in another order."""
        query = select(*self._light).where(*self._conditions(where, projects)).limit(limit)
        if before is not None:
            query = query.where(self._jobs.c.number < before)
        if order is None:
            query = query.order_by(self._jobs.c.number.desc())
        else:
            clauses = order.clauses(self._database, connection.dialect.name)
            query = query.order_by(*clauses).offset(order.offset)
        return [_job(row) for row in connection.execute(query)]

    def _conditions(
        self, where: JobFilter, projects: Collection[str] | None
    ) -> list[ColumnElement[bool]]:
        jobs = self._jobs
        conditions: list[ColumnElement[bool]] = [
            jobs.c[name] == value
            for name in ("state", "project", "prompt", "tag")
            if (value := getattr(where, name)) is not None
        ]
        if where.since is not None:
            conditions.append(jobs.c.created >= where.since)
        if where.ended_by is not None:
            conditions.append(jobs.c.ended <= where.ended_by)
        if projects is not None:
            conditions.append(jobs.c.project.in_(sorted(projects)))
        if where.text:
            fields = [jobs.c.id, jobs.c.project, jobs.c.prompt, jobs.c.tag]
            conditions.append(
                or_(*(field.contains(where.text, autoescape=True) for field in fields))
            )
        return conditions

    def counts(
        self,
        connection: Connection,
        where: JobFilter,
        projects: Collection[str] | None = None,
    ) -> dict[str, int]:
        """Return the number of jobs in each state; of some projects, or of all."""
        state = self._jobs.c.state
        conditions = self._conditions(where, projects)
        query = select(state, func.count()).where(*conditions).group_by(state)
        rows = connection.execute(query).all()
        return {**dict.fromkeys(map(str, JobState), 0), **{row[0]: row[1] for row in rows}}

    def totals(
        self, connection: Connection, projects: Collection[str] | None = None
    ) -> list[ProjectTotals]:
        """Return what the jobs of each project come to; of some projects, or of all.

        It reads every job, which takes about as long as a page of the list for 10,000 of them.
        """
        jobs, now = self._jobs, self._database.seconds
        sums = [func.sum(jobs.c[name]).label(name) for name in _SUMMED]
        repeated = func.sum(case((jobs.c.attempts > 1, jobs.c.attempts - 1), else_=0))
        failed = func.sum(case((jobs.c.state == JobState.FAILED, 1), else_=0))
        is_due = and_(jobs.c.state == JobState.QUEUED, jobs.c.not_before <= now)
        oldest = func.min(case((is_due, jobs.c.created)))
        query = select(
            jobs.c.project,
            *sums,
            repeated.label("repeated"),
            failed.label("failed"),
            (now - oldest).label("waiting"),
        ).group_by(jobs.c.project)
        if projects is not None:
            query = query.where(jobs.c.project.in_(sorted(projects)))
        return [
            ProjectTotals(
                project=row.project,
                dollars=int(row.spent) / MILLION,
                calls=int(row.calls),
                retries=int(row.retries),
                seconds=int(row.milliseconds) / 1000,
                repeated=int(row.repeated),
                failed=int(row.failed),
                waiting=max(0.0, float(row.waiting or 0.0)),
            )
            for row in connection.execute(query)
        ]

    def waiting(self, connection: Connection) -> int:
        """Return the number of queued jobs."""
        query = select(func.count()).where(self._jobs.c.state == JobState.QUEUED)
        return connection.scalar(query) or 0

    def document(self, connection: Connection, number: int, name: str) -> bytes | None:
        """Return the ``config`` or the ``result`` of a job; None before it is written."""
        content: bytes | None = getattr(self.columns(connection, number, name), name)
        return content

    # Submitting and deleting

    def insert(
        self, connection: Connection, submission: Mapping[str, str], **values: object
    ) -> Job:
        """Insert a job, record how it was submitted in its first event, and return it."""
        inserted = connection.execute(
            insert(self._jobs).values(created=self._database.seconds, **values)
        )
        assert inserted.inserted_primary_key is not None  # noqa: S101 - an insert has one
        number = int(inserted.inserted_primary_key[0])
        self.publish(connection, number, "job_queued", host=socket.gethostname(), **submission)
        return self.load(connection, number)

    def delete(self, connection: Connection, number: int) -> None:
        """Delete a job; its events, answers and attempts are deleted by their foreign keys."""
        connection.execute(delete(self._jobs).where(self._jobs.c.number == number))

    # Leases

    def unfinished(self, connection: Connection, worker: str, but: Collection[int]) -> list[Job]:
        """Return the running jobs of a worker, locked, without some numbers."""
        jobs = self._jobs
        query = select(*self._light).where(
            jobs.c.state == JobState.RUNNING,
            jobs.c.worker == worker,
            jobs.c.number.not_in(sorted(but)),
        )
        return [_job(row) for row in connection.execute(query.with_for_update())]

    def claim(
        self,
        connection: Connection,
        projects: Collection[tuple[str, str]],
        worker: str,
        *,
        only_dry: Collection[str] = (),
    ) -> Claim | None:
        """Give a worker the next job that it can run; None if there is none.

        In that case, jobs that were submitted with another version of the projects say so.

        Args:
            connection: that of the transaction.
            projects: names and digests of what the worker can run.
            worker: its name.
            only_dry: names of projects of which it can run dry runs only.
        """
        jobs, now = self._jobs, self._database.seconds
        # Defaults are not written, so that only dry runs have the field.
        is_dry = _field(jobs.c.request, "dry_run", connection.dialect.name).is_not(None)
        number = connection.scalar(
            select(jobs.c.number)
            .where(
                jobs.c.state == JobState.QUEUED,
                jobs.c.not_before <= now,
                tuple_(jobs.c.project, jobs.c.digest).in_(sorted(projects)),
                *([or_(jobs.c.project.not_in(sorted(only_dry)), is_dry)] if only_dry else []),
            )
            # The oldest first, so that no job starves among equals.
            .order_by(jobs.c.priority.desc(), jobs.c.number)
            .limit(1)
            # A job that another worker is claiming is skipped instead of waited for.
            .with_for_update(skip_locked=True)
        )
        if number is None:
            for name in {name for name, _ in projects}:
                why = _OTHER_VERSION.format(name)
                digests = [digest for at, digest in projects if at == name]
                self.explain_wait(connection, name, why, except_digests=digests)
            return None
        self.put(
            connection,
            number,
            state=JobState.RUNNING,
            wish=Wish.NONE,
            reason=b"",
            # Fencing: a worker that was only slow fails at its next write, whatever it believes.
            fence=jobs.c.fence + 1,
            worker=worker,
            lease=now + LEASE_SECONDS,
            attempts=jobs.c.attempts + 1,
            started=func.coalesce(jobs.c.started, now),
        )
        row = self.columns(connection, number, "fence", "attempts")
        connection.execute(
            insert(self._database.tables.attempts).values(
                job=number,
                number=row.attempts,
                worker=worker,
                started=now,
                answers=self.answers(connection, number),
                error=b"",
            )
        )
        kind = "job_started" if row.attempts == 1 else "job_resumed"
        self.publish(connection, number, kind, worker=worker, attempt=row.attempts)
        return Claim(job=self.load(connection, number), fence=row.fence)

    def check(self, connection: Connection, claim: Claim) -> None:
        """Lock a job for a write by the worker that has claimed it.

        Raises:
            LeaseLostError: another worker has the job.
        """
        jobs = self._jobs
        fence = connection.scalar(
            select(jobs.c.fence).where(jobs.c.number == claim.job.number).with_for_update()
        )
        if fence != claim.fence:
            raise _lost(claim)

    def wish(self, connection: Connection, claim: Claim) -> Wish:
        """Return the open wish for a claimed job.

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

    def goes_on(self, connection: Connection, claim: Claim) -> bool:
        """Return whether a claimed job has neither been taken over nor is to end at once."""
        try:
            return self.wish(connection, claim) is not Wish.CANCEL
        except LeaseLostError:
            return False

    def renew(self, connection: Connection, claim: Claim) -> Wish:
        """Renew a lease; return the open wish for the job.

        Raises:
            LeaseLostError: another worker has the job.
        """
        self.check(connection, claim)
        self.put(connection, claim.job.number, lease=self._database.seconds + LEASE_SECONDS)
        return self.wish(connection, claim)

    def expired(self, connection: Connection) -> list[Job]:
        """Return running jobs whose lease has expired, locked."""
        jobs = self._jobs
        query = (
            select(*self._light)
            .where(jobs.c.state == JobState.RUNNING, jobs.c.lease < self._database.seconds)
            .order_by(jobs.c.number)
            .with_for_update(skip_locked=True)
        )
        return [_job(row) for row in connection.execute(query)]

    def leases(
        self, connection: Connection, projects: Collection[tuple[str, str]]
    ) -> list[tuple[Job, float]]:
        """Return the running jobs of some projects with their digests, and when each lease ends."""
        jobs = self._jobs
        query = select(*self._light).where(
            jobs.c.state == JobState.RUNNING,
            tuple_(jobs.c.project, jobs.c.digest).in_(sorted(projects)),
        )
        return [(_job(row), row.lease) for row in connection.execute(query)]

    def advance(self, connection: Connection, number: int, progress: float, status: Status) -> None:
        """Store the progress of a job, and book its cost."""
        jobs = self._jobs
        self.charge(connection, number, Decimal(status.cost or 0))
        self.put(
            connection,
            number,
            # A replay begins at 0 again, but progress never falls.
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
        blames_job: bool = True,
    ) -> None:
        """End the current attempt of a locked job, and put the job into its next state.

        ``blames_job`` is False if its end says nothing of the job: too many others end it.
        """
        attempts, attempt = self._database.tables.attempts, self._attempt(job.number, job.attempts)
        before = connection.scalar(select(attempts.c.answers).where(*attempt)) or 0
        barren = 0
        # An attempt that has paid for an answer has made progress, however it ended.
        if not self.has_new_answers(connection, job.number, before):
            barren = self.columns(connection, job.number, "barren").barren + blames_job
        if blames_job and state is JobState.QUEUED and barren >= MOST_BARREN_ATTEMPTS:
            state = JobState.FAILED
            reason = f"{barren} attempts in a row without a new answer; the last: {error or reason}"
        now = self._database.seconds
        connection.execute(update(attempts).where(*attempt).values(ended=now, error=error.encode()))
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
            # A worker that still believes to have the job can no longer write.
            fence=self._jobs.c.fence + 1,
            worker="",
            lease=0.0,
            barren=barren,
            **values,
        )
        if state in ENDED:
            self.drop_progress(connection, job.number)
        self.publish(connection, job.number, _EVENTS[state], reason=reason)

    def put_back(
        self, connection: Connection, job: Job, why: str, *, blames_job: bool = True
    ) -> None:
        """Queue a locked job whose worker is gone, or grant the open wish for it."""
        state = _STATES_BY_WISH.get(job.wish, JobState.QUEUED)
        self.settle(connection, job, state, reason=why, error=why, blames_job=blames_job)

    def give_back(
        self, connection: Connection, claim: Claim, why: str, *, blames_job: bool = True
    ) -> None:
        """Put back a claimed job.

        Raises:
            LeaseLostError: another worker has the job.
        """
        self.check(connection, claim)
        job = self.load(connection, claim.job.number)
        self.put_back(connection, job, why, blames_job=blames_job)


def encoded_changes(changes: JobChanges) -> bytes:
    """Return changes as the table stores them; equal changes have equal bytes."""
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
        **{name: getattr(row, name) for name in _SAME},
        changes=read_changes(plain if isinstance(plain, dict) else None),
        state=JobState(row.state),
        wish=Wish(row.wish),
        reason=row.reason.decode(),
        status=Status.of(status, tag=row.tag, where=f"job {row.id}: status"),
    )
