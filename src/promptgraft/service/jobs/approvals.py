"""Protected tags, and the requests to move them, which two people have to approve."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

import attrs
from sqlalchemy import Connection, Row, func, insert, select, update

from promptgraft.errors import ConfigError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import canonical_json
from promptgraft.ground.strict import structure
from promptgraft.ground.text import counted
from promptgraft.service.database import Database
from promptgraft.service.jobs.types import JobConflictError, JobNotFoundError

APPROVALS = 2
"""How many people have to approve a move, the one who asks for it included."""

_MOST_COMMENT_CHARS = 2_000
_LARGEST_PAGE = 100


class MoveKind(StrEnum):
    """What moves a tag."""

    APPLY = "apply"
    PROMOTE = "promote"
    ROLLBACK = "rollback"


class RequestState(StrEnum):
    """The state of a request."""

    WAITING = "waiting"
    """It waits for approvals."""
    STALE = "stale"
    """The tag, or what it was to get, has changed since; it cannot be approved any more."""
    DONE = "done"
    """It was approved, and the tag was moved."""
    DECLINED = "declined"
    """Somebody who could have approved it refused it."""
    WITHDRAWN = "withdrawn"
    """The person who asked took it back."""


class RequestStep(StrEnum):
    """What somebody did with a request."""

    ASKED = "asked"
    APPROVED = "approved"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"
    DONE = "done"


@attrs.frozen(kw_only=True)
class ProtectedTag:
    """A tag of a project that only requests move.

    Attributes:
        project: the name of the project.
        tag: the tag, of all its prompts.
        by: who has protected it; empty for somebody at the database.
        created: when, in seconds since 1970.
    """

    project: str
    tag: str
    by: str
    created: float


@attrs.frozen(kw_only=True)
class TagMove:
    """A change of the revisions that a tag points at.

    Attributes:
        kind: how it comes about.
        project: the name of the project.
        prompt: the name of the prompt or graph.
        tag: the tag that moves.
        source: the tag whose revisions it gets; empty for a rollback.
        job: id of the job that has found them; empty if it is not known.
        before: ids of the revisions that the tag points at, by prompt; an empty one for none.
        after: ids of those that it gets, by prompt; an empty one for the text of the source.
    """

    kind: MoveKind
    project: str
    prompt: str
    tag: str
    source: str = ""
    job: str = ""
    before: Mapping[str, str] = attrs.field(default=(), converter=FrozenMap[str, str])
    after: Mapping[str, str] = attrs.field(default=(), converter=FrozenMap[str, str])

    @property
    def document(self) -> bytes:
        """The move as JSON."""
        return canonical_json(self).encode()

    @property
    def digest(self) -> str:
        """SHA-256 of the move: two requests with it ask for the same."""
        return hashlib.sha256(self.document).hexdigest()


@attrs.frozen(kw_only=True)
class RequestEntry:
    """An entry in the history of a request.

    Attributes:
        by: who did it; empty for somebody at the database.
        what: what they did.
        time: when, in seconds since 1970.
        comment: what they said.
    """

    by: str
    what: RequestStep
    time: float
    comment: str = ""


@attrs.frozen(kw_only=True)
class MoveRequest:
    """A request to move a protected tag.

    Attributes:
        move: what it asks for.
        state: what became of it.
        reason: why it is stale; empty if it is not.
        entries: its history, the oldest first.
    """

    number: int
    move: TagMove
    state: RequestState
    reason: str = ""
    entries: tuple[RequestEntry, ...]

    @property
    def by(self) -> str:
        """Who has asked."""
        return self.entries[0].by

    @property
    def approved_by(self) -> tuple[str, ...]:
        """Who has approved, each once: those who asked have, unless nobody knows who they are."""
        steps = (RequestStep.ASKED, RequestStep.APPROVED)
        return tuple(
            dict.fromkeys(entry.by for entry in self.entries if entry.by and entry.what in steps)
        )

    @property
    def missing(self) -> int:
        """How many approvals are missing."""
        return max(0, APPROVALS - len(self.approved_by))


class ApprovalNeededError(JobConflictError):
    """A protected tag was not moved; a request waits for approvals.

    Attributes:
        request: the number of the request.
    """

    def __init__(self, message: str, request: int = 0) -> None:
        super().__init__(message)
        self.request = request

    @classmethod
    def of(cls, request: MoveRequest) -> ApprovalNeededError:
        """Return the error for a request that waits."""
        move = request.move
        return cls(
            f"tag `{move.tag}` of project `{move.project}` is protected and was not moved; request "
            f"{request.number} waits for {counted(request.missing, 'approval')} (`promptgraft jobs "
            "approvals list`)",
            request.number,
        )


class Approvals:
    """Protected tags and requests in a database."""

    def __init__(self, database: Database) -> None:
        self._database, tables = database, database.tables
        self._protections, self._requests = tables.protections, tables.requests
        self._entries = tables.request_entries

    # Protected tags

    def protected(self, projects: Collection[str]) -> list[ProtectedTag]:
        """Return the protected tags of some projects, sorted."""
        table = self._protections
        query = select(table).where(table.c.project.in_(sorted(projects)), table.c.ended.is_(None))
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(table.c.project, table.c.tag)).all()
        return [
            ProtectedTag(
                project=row.project, tag=row.tag, by=row.author.decode(), created=row.created
            )
            for row in rows
        ]

    def is_protected(self, project: str, tag: str) -> bool:
        """Return whether a tag is protected."""
        return any(row.tag == tag for row in self.protected([project]))

    def protect(self, project: str, tag: str, *, by: str) -> None:
        """Protect a tag; one that is protected stays so."""
        table = self._protections

        def put(connection: Connection) -> None:
            of_tag = (table.c.project == project, table.c.tag == tag)
            if connection.scalar(select(table.c.tag).where(*of_tag, table.c.ended.is_(None))):
                return
            latest = connection.scalar(select(func.max(table.c.number)).where(*of_tag)) or 0
            values = {"project": project, "tag": tag, "number": latest + 1, "author": by.encode()}
            values |= {"ended_by": b""}
            connection.execute(insert(table).values(**values, created=self._database.seconds))

        self._database.write(put)

    def unprotect(self, project: str, tag: str, *, by: str) -> None:
        """End the protection of a tag; the row stays, with who has ended it.

        Raises:
            ConfigError: it is not protected.
        """
        table = self._protections
        of_tag = (table.c.project == project, table.c.tag == tag, table.c.ended.is_(None))
        values = {"ended": self._database.seconds, "ended_by": by.encode()}
        result = self._database.write(
            lambda connection: connection.execute(update(table).where(*of_tag).values(**values))
        )
        if not result.rowcount:
            tags = ", ".join(row.tag for row in self.protected([project])) or "none"
            raise ConfigError(
                f"tag `{tag}` of project `{project}` is not protected; protected: {tags}"
            )

    # Requests

    def ask(self, move: TagMove, *, by: str) -> MoveRequest:
        """Return the request for a move: one that waits for the same, or a new one."""
        table, digest = self._requests, move.digest

        def put(connection: Connection) -> int:
            latest = select(func.max(table.c.number))
            waiting = (table.c.project == move.project, table.c.state == RequestState.WAITING)
            number = connection.scalar(latest.where(*waiting, table.c.digest == digest))
            if number is not None:
                return int(number)
            number = (connection.scalar(latest) or 0) + 1
            names = {"project": move.project, "prompt": move.prompt, "tag": move.tag}
            values = {"digest": digest, "state": RequestState.WAITING, "document": move.document}
            connection.execute(insert(table).values(number=number, **names, **values))
            self._enter(connection, number, RequestStep.ASKED, by=by)
            return int(number)

        return self.find(self._database.write(put))

    def _enter(
        self, connection: Connection, number: int, what: RequestStep, *, by: str, comment: str = ""
    ) -> None:
        table = self._entries
        count = select(func.count()).select_from(table).where(table.c.request == number)
        connection.execute(
            insert(table).values(
                request=number,
                number=(connection.scalar(count) or 0) + 1,
                what=what,
                author=by.encode(),
                comment=comment.encode(),
                created=self._database.seconds,
            )
        )

    def find(self, number: int) -> MoveRequest:
        """Return a request.

        Raises:
            JobNotFoundError: there is none with this number.
        """
        with self._database.reading() as connection:
            return self._found(connection, number)

    def _found(self, connection: Connection, number: int) -> MoveRequest:
        rows = connection.execute(
            select(self._requests).where(self._requests.c.number == number)
        ).all()
        if not rows:
            raise JobNotFoundError(
                f"there is no request {number}; `promptgraft jobs approvals list` shows all"
            )
        return self._read(connection, rows)[0]

    def page(
        self,
        projects: Collection[str],
        *,
        state: RequestState | None = None,
        limit: int = _LARGEST_PAGE,
    ) -> list[MoveRequest]:
        """Return requests of some projects, the newest first; stale ones are among the waiting."""
        table = self._requests
        query = select(table).where(table.c.project.in_(sorted(projects)))
        if state is not None:
            query = query.where(table.c.state == state)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(table.c.number.desc()).limit(limit)).all()
            return self._read(connection, rows)

    def _read(
        self, connection: Connection, rows: Sequence[Row[tuple[object, ...]]]
    ) -> list[MoveRequest]:
        table, numbers = self._entries, [row.number for row in rows]
        query = (
            select(table)
            .where(table.c.request.in_(numbers))
            .order_by(table.c.request, table.c.number)
        )
        entries: dict[int, list[RequestEntry]] = {}
        for row in connection.execute(query):
            entry = RequestEntry(
                by=row.author.decode(),
                what=RequestStep(row.what),
                time=row.created,
                comment=row.comment.decode(),
            )
            entries.setdefault(row.request, []).append(entry)
        return [
            MoveRequest(
                number=row.number,
                move=structure(json.loads(row.document), TagMove, where=f"request {row.number}"),
                state=RequestState(row.state),
                entries=tuple(entries[row.number]),
            )
            for row in rows
        ]

    def enter(self, number: int, what: RequestStep, *, by: str, comment: str = "") -> MoveRequest:
        """Add an entry to a request that waits, and return it as it is then.

        Raises:
            JobConflictError: it does not wait any more.
            ConfigError: the comment is too long.
        """
        if len(comment) > _MOST_COMMENT_CHARS:
            most = f"at most {_MOST_COMMENT_CHARS:,} characters"
            raise ConfigError(f"comment: expected {most}, found {len(comment):,}")
        return self._database.write(
            lambda connection: self.entered(connection, number, what=what, by=by, comment=comment)
        )

    def entered(
        self, connection: Connection, number: int, *, what: RequestStep, by: str, comment: str = ""
    ) -> MoveRequest:
        """Add an entry within a transaction, as :meth:`enter` does."""
        table = self._requests
        closing = {
            RequestStep.DECLINED: RequestState.DECLINED,
            RequestStep.WITHDRAWN: RequestState.WITHDRAWN,
            RequestStep.DONE: RequestState.DONE,
        }.get(what)

        # Locked, so that of two who close it at once one sees that it is closed.
        lock = select(table.c.number).where(table.c.number == number).with_for_update()
        connection.execute(lock)
        request = self._found(connection, number)
        if request.state is not RequestState.WAITING:
            raise JobConflictError(f"request {number} is {request.state} already")
        self._enter(connection, number, what, by=by, comment=comment)
        if closing is not None:
            connection.execute(update(table).where(table.c.number == number).values(state=closing))
        return self._found(connection, number)
