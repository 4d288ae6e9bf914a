"""Sessions of browsers, and links that sign in once, in the database."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence

import attrs
from sqlalchemy import ColumnElement, Connection, delete, insert, or_, select, update

from promptgraft.ground.text import visible_line
from promptgraft.service.database import Database
from promptgraft.service.server.limits import Limits
from promptgraft.service.server.problems import ApiProblem
from promptgraft.service.server.tokens import LOCAL, ApiCaller, caller_of, secret_digest

_SECONDS_BETWEEN_NOTES = 60.0
"""A use is noted so often at most: a page asks for its parts every few seconds."""
_MOST_BROWSER_CHARS = 200


@attrs.frozen(kw_only=True)
class BrowserSession:
    """A browser that has signed in. Times are seconds since 1970.

    Attributes:
        id: SHA-256 of its cookie.
        browser: what it calls itself.
        created: when it signed in.
        seen: when it was last used, to the minute.
    """

    id: str
    browser: str
    created: float
    seen: float


class SessionStore:
    """Sessions and links in a database, which holds only the SHA-256 of their secrets.

    A session belongs to a token and ends with it, and with the limits of idle and total time.

    Args:
        database: the database.
        limits: how long sessions last.
    """

    def __init__(self, database: Database, limits: Limits) -> None:
        self._database, self._limits = database, limits
        self._sessions = database.tables.sessions
        self._links = database.tables.links

    def open(self, token: str, browser: str) -> str:
        """Open a session for a token, by its SHA-256 (empty: this machine); return its cookie."""
        return self._database.write(lambda connection: self._opened(connection, token, browser))

    def _opened(self, connection: Connection, token: str, browser: str) -> str:
        cookie = secrets.token_urlsafe(32)
        now = self._database.seconds
        # Here, because sessions that nobody ends would otherwise pile up.
        connection.execute(delete(self._sessions).where(self._is_over()))
        connection.execute(
            insert(self._sessions).values(
                digest=secret_digest(cookie),
                token=token,
                browser=visible_line(browser)
                .encode("ascii", "replace")
                .decode()[:_MOST_BROWSER_CHARS],
                created=now,
                seen=now,
            )
        )
        return cookie

    def _is_over(self) -> ColumnElement[bool]:
        now, limits = self._database.seconds, self._limits
        return or_(
            self._sessions.c.seen < now - limits.idle_seconds,
            self._sessions.c.created < now - limits.session_seconds,
        )

    def find(self, cookie: str) -> ApiCaller | None:
        """Return the caller with a session, or None if it has ended."""
        sessions, tokens = self._sessions, self._database.tables.tokens
        digest = secret_digest(cookie)
        now = self._database.seconds.label("now")
        with self._database.reading() as connection:
            row = connection.execute(
                select(sessions.c.token, sessions.c.seen, now).where(
                    sessions.c.digest == digest, ~self._is_over()
                )
            ).one_or_none()
            if row is None:
                return None
            token = connection.execute(
                select(tokens).where(tokens.c.digest == row.token)
            ).one_or_none()
        if row.now - row.seen > _SECONDS_BETWEEN_NOTES:
            self._database.write(lambda connection: self._note(connection, digest), durable=False)
        if not row.token:
            return attrs.evolve(LOCAL, session=digest)
        # A token that was revoked takes its sessions with it.
        return attrs.evolve(caller_of(token), session=digest) if token is not None else None

    def _note(self, connection: Connection, digest: str) -> None:
        connection.execute(
            update(self._sessions)
            .where(self._sessions.c.digest == digest)
            .values(seen=self._database.seconds)
        )

    def list(self, token: str) -> Sequence[BrowserSession]:
        """Return the sessions of a token, by its SHA-256, the latest first."""
        sessions = self._sessions
        with self._database.reading() as connection:
            rows = connection.execute(
                select(sessions)
                .where(sessions.c.token == token, ~self._is_over())
                .order_by(sessions.c.created.desc(), sessions.c.digest)
            ).all()
        return [
            BrowserSession(id=row.digest, browser=row.browser, created=row.created, seen=row.seen)
            for row in rows
        ]

    def end(self, token: str, ids: Collection[str]) -> None:
        """End sessions of a token; ids of others are ignored."""
        sessions = self._sessions
        condition = (sessions.c.token == token, sessions.c.digest.in_(sorted(ids)))
        self._database.write(
            lambda connection: connection.execute(delete(sessions).where(*condition))
        )

    def redeem(self, code: str, browser: str) -> str:
        """Exchange the code of a link for a session, and return its cookie.

        Raises:
            Problem: 401: the code was used before, has expired, or is invalid.
        """
        links, digest = self._links, secret_digest(code)

        def redeem(connection: Connection) -> str | None:
            valid = (links.c.digest == digest, links.c.ends >= self._database.seconds)
            token = connection.scalar(select(links.c.token).where(*valid).with_for_update())
            # Of two that read it at once, one deletes it.
            deleted = connection.execute(delete(links).where(links.c.digest == digest)).rowcount
            return self._opened(connection, token, browser) if token and deleted else None

        cookie = self._database.write(redeem)
        if cookie is None:
            raise ApiProblem(
                401,
                "this link was used before, has expired or is invalid; `promptgraft tokens link` "
                "makes a new one",
            )
        return cookie
