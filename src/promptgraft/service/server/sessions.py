"""Sessions of browsers, and links that sign in once, in the database."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Sequence

import attrs
from sqlalchemy import ColumnElement, Connection, delete, insert, or_, select, update

from promptgraft.ground.text import visible_line
from promptgraft.service.database import Database
from promptgraft.service.server.limits import Limits
from promptgraft.service.server.oidc import SECONDS_TO_SIGN_IN, OidcUser
from promptgraft.service.server.oidc_settings import OidcSettings
from promptgraft.service.server.problems import ApiProblem
from promptgraft.service.server.tokens import LOCAL, ApiCaller, caller_of, secret_digest

_SECONDS_BETWEEN_NOTES = 60.0
"""A use is noted so often at most: a page asks for its parts every few seconds."""
_MOST_BROWSER_CHARS = 200
_MOST_NAME_CHARS = 80
# Most name others too, which come later here.
_BROWSERS = {
    "Edg": "Edge",
    "OPR": "Opera",
    "Firefox": "Firefox",
    "Chrome": "Chrome",
    "Safari": "Safari",
}
_SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Mac OS", "Linux")


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

    @property
    def name(self) -> str:
        """The names of browser and system; without them, what the browser calls itself."""
        browser, system = (
            next((word for word in words if word in self.browser), "")
            for words in (_BROWSERS, _SYSTEMS)
        )
        if browser and system:
            return f"{_BROWSERS[browser]}, {system}"
        return self.browser[:_MOST_NAME_CHARS] or "unnamed"


class SessionStore:
    """Sessions and links in a database, which holds only the SHA-256 of their secrets.

    A session belongs to a token, and ends with it, or to a user of a provider, and ends when the
    settings no longer name a group of theirs. All end with the limits of idle and total time.

    Args:
        limits: how long sessions last.
        oidc: what the users of a provider may do; None if nobody signs in by one.
    """

    def __init__(
        self, database: Database, limits: Limits, oidc: OidcSettings | None = None
    ) -> None:
        self._database, self._limits, self._oidc = database, limits, oidc
        self._sessions = database.tables.signing_in.sessions
        self._links = database.tables.signing_in.links

    def open(self, token: str, browser: str) -> str:
        """Open a session for a token or a user, and return its cookie.

        ``token`` is their SHA-256; empty for this machine.
        """
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
        sessions = self._sessions
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
            owner = self._owner(connection, row.token) if row.token else LOCAL
        if row.now - row.seen > _SECONDS_BETWEEN_NOTES:
            self._database.write(lambda connection: self._note(connection, digest), durable=False)
        # A token that was revoked takes its sessions with it.
        return None if owner is None else attrs.evolve(owner, session=digest)

    def is_open(self, digest: str) -> bool:
        """Return whether the session with this SHA-256 has not ended; that is no use of it."""
        session = select(self._sessions.c.seen).where(
            self._sessions.c.digest == digest, ~self._is_over()
        )
        with self._database.reading() as connection:
            return connection.scalar(session) is not None

    def _owner(self, connection: Connection, digest: str) -> ApiCaller | None:
        """Return the token or the user with a digest."""
        tokens, users = (
            self._database.tables.signing_in.tokens,
            self._database.tables.signing_in.users,
        )
        token = connection.execute(select(tokens).where(tokens.c.digest == digest)).one_or_none()
        if token is not None:
            return caller_of(token)
        user = connection.execute(select(users).where(users.c.digest == digest)).one_or_none()
        if user is None or self._oidc is None:
            return None
        # By the settings of now: a group that has lost a role has lost it in all sessions.
        return self._oidc.caller(user.name, json.loads(user.memberships), digest)

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

    def users(self) -> Sequence[ApiCaller]:
        """Return what the users of the provider may do who have signed in."""
        if self._oidc is None:
            return []
        with self._database.reading() as connection:
            rows = connection.execute(select(self._database.tables.signing_in.users)).all()
        callers = (
            self._oidc.caller(row.name, json.loads(row.memberships), row.digest) for row in rows
        )
        return [caller for caller in callers if caller is not None]

    def begin_login(self, state: str, path: str) -> None:
        """Remember that a browser has left for the provider, and the path it is to come back to."""
        logins, now = self._database.tables.signing_in.logins, self._database.seconds

        def put(connection: Connection) -> None:
            connection.execute(delete(logins).where(logins.c.ends < now))
            connection.execute(
                insert(logins).values(
                    digest=secret_digest(state),
                    path=path.encode("utf-8", "replace"),
                    ends=now + SECONDS_TO_SIGN_IN,
                )
            )

        self._database.write(put, durable=False)

    def end_login(self, state: str) -> str | None:
        """Return the path of a login that has begun, once; None if there is none, or no more."""
        logins, digest = self._database.tables.signing_in.logins, secret_digest(state)

        def end(connection: Connection) -> str | None:
            valid = (logins.c.digest == digest, logins.c.ends >= self._database.seconds)
            path = connection.scalar(select(logins.c.path).where(*valid).with_for_update())
            # Of two that come back at once, one deletes it.
            deleted = connection.execute(delete(logins).where(logins.c.digest == digest)).rowcount
            return path.decode() if path is not None and deleted else None

        return self._database.write(end)

    def open_for(self, user: OidcUser, browser: str) -> str:
        """Open a session for a user of a provider, and return its cookie."""
        users, groups = self._database.tables.signing_in.users, sorted(user.memberships)
        values = {
            "name": user.name,
            "memberships": json.dumps(groups).encode(),
            "seen": self._database.seconds,
        }

        def opened(connection: Connection) -> str:
            # What the provider says now counts in all sessions of the user.
            connection.execute(delete(users).where(users.c.digest == user.digest))
            connection.execute(insert(users).values(digest=user.digest, **values))
            return self._opened(connection, user.digest, browser)

        return self._database.write(opened)

    def redeem(self, code: str, browser: str) -> str:
        """Exchange the code of a link for a session, and return its cookie.

        Raises:
            ApiProblem: 401: the code was used before, has expired, or is invalid.
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
