"""Who may ask what of a server: tokens with scopes, one-time codes, hosts, and how often."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from urllib.parse import urlsplit

import attrs
from sqlalchemy import Connection, Row, delete, insert, select

from promptgraft.database import Database
from promptgraft.errors import ConfigError
from promptgraft.parts.validation import check_key
from promptgraft.serde import shown
from promptgraft.server.problems import Problem

COOKIE = "promptgraft_session"
REQUESTS_A_SECOND = 20.0
MOST_AT_ONCE = 40
STREAMS_A_TOKEN = 10
STREAMS_IN_ALL = 200


class Scope(StrEnum):
    """What a token may be used for; a greater one does not hold the smaller ones."""

    READ = "read"
    """Looking at jobs, events, results and stores."""
    SUBMIT = "submit"
    """Submitting, changing, pausing, resuming, cancelling, forking and deleting jobs."""
    PROMOTE = "promote"
    """Moving winners to other tags, and rolling tags back."""
    ADMIN = "admin"
    """Metrics of the server and its workers."""


@attrs.frozen(kw_only=True)
class Caller:
    """Who asks.

    Attributes:
        name: of the token; ``local`` for a browser on this machine.
        scopes: what it may do.
        projects: the projects that it sees; all where it is None.
    """

    name: str
    scopes: frozenset[Scope]
    projects: frozenset[str] | None = None

    def check(self, scope: Scope) -> None:
        """Refuse what the scopes do not hold.

        Raises:
            Problem: 403.
        """
        if scope not in self.scopes:
            held = ", ".join(sorted(self.scopes)) or "none"
            raise Problem(403, f"this needs the scope `{scope}`; the token has {held}")

    def sees(self, project: str) -> bool:
        """Tell whether it may know of a project."""
        return self.projects is None or project in self.projects


LOCAL = Caller(name="local", scopes=frozenset(Scope))


class TokenStore:
    """Tokens of 256 bits in a database, of which only the SHA-256 is kept."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._table = database.tables.tokens

    def create(self, name: str, scopes: Iterable[Scope | str], projects: Iterable[str] = ()) -> str:
        """Make a token and return it; nobody can read it later.

        Args:
            name: what it is called, for the log of who did what; unique.
            scopes: what it may be used for.
            projects: the projects that it is for; all of them where none is named.

        Raises:
            ConfigError: a name or a scope is none, or the name is taken.
        """
        check_key(name, "name of a token")
        known = [_scope(one) for one in scopes]
        if not known:
            raise ConfigError(f"scopes: name at least one of {', '.join(Scope)}")
        token = secrets.token_urlsafe(32)

        def put(connection: Connection) -> None:
            taken = select(self._table.c.name).where(self._table.c.name == name)
            if connection.scalar(taken) is not None:
                raise ConfigError(f"there is a token `{name}` already; revoke it first")
            connection.execute(
                insert(self._table).values(
                    digest=_digest(token),
                    name=name,
                    scopes=",".join(sorted(set(known))),
                    projects=json.dumps(sorted(set(projects))).encode(),
                    created=self._database.seconds,
                )
            )

        self._database.write(put)
        return token

    def find(self, token: str) -> Caller | None:
        """Return who a token stands for, or None."""
        with self._database.reading() as connection:
            row = connection.execute(
                select(self._table).where(self._table.c.digest == _digest(token))
            ).one_or_none()
        return None if row is None else _caller(row)

    def list(self) -> list[Caller]:
        """Return everybody who has a token, by name."""
        with self._database.reading() as connection:
            rows = connection.execute(select(self._table).order_by(self._table.c.name)).all()
        return [_caller(row) for row in rows]

    def revoke(self, name: str) -> None:
        """Forget a token.

        Raises:
            ConfigError: there is none of that name.
        """

        def remove(connection: Connection) -> int:
            return connection.execute(
                delete(self._table).where(self._table.c.name == name)
            ).rowcount

        if not self._database.write(remove):
            known = ", ".join(one.name for one in self.list()) or "none"
            raise ConfigError(f"there is no token `{name}`; there: {known}")


def _scope(given: Scope | str) -> Scope:
    try:
        return Scope(given)
    except ValueError:
        raise ConfigError(f"scopes: expected {', '.join(Scope)}, found {shown(given)}") from None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _caller(row: Row[object]) -> Caller:
    return Caller(
        name=row.name,
        scopes=frozenset(Scope(one) for one in row.scopes.split(",")),
        projects=frozenset(json.loads(row.projects)) or None,
    )


@attrs.define
class _Bucket:
    left: float
    at: float


class Access:
    """Decides who asks, from where, and how often. Safe to share between threads.

    Args:
        tokens: the tokens; None where only this machine is served.
        hosts: the names by which the server is asked, with their ports; others are refused.
        now: seconds that only grow.
    """

    def __init__(
        self,
        tokens: TokenStore,
        *,
        hosts: Iterable[str],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._hosts = frozenset(one.lower() for one in hosts)
        self._now = now
        self._lock = threading.Lock()
        self._codes: set[str] = set()
        self._sessions: set[str] = set()
        self._buckets: dict[str, _Bucket] = {}
        self._streams: dict[str, int] = {}

    def new_code(self) -> str:
        """Return a code that lets one browser in, once."""
        code = secrets.token_urlsafe(32)
        with self._lock:
            self._codes.add(_digest(code))
        return code

    def redeem(self, code: str) -> str:
        """Return the session that a code is good for.

        Raises:
            Problem: 401: it was used before, or is none.
        """
        session = secrets.token_urlsafe(32)
        with self._lock:
            if _digest(code) not in self._codes:
                raise Problem(
                    401, "this link was used already; `promptgraft serve` prints a new one"
                )
            self._codes.remove(_digest(code))
            self._sessions.add(_digest(session))
        return session

    def check_origin(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse other names of this server, and what other sites ask of it.

        Raises:
            Problem: 403.
        """
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            raise Problem(403, f"this server is not called {shown(host[:100])}")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host:
            raise Problem(403, "another site asks; open the page of this server itself")
        if method != "GET" and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise Problem(403, "another site asks; open the page of this server itself")

    def caller(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Caller:
        """Return who asks.

        Raises:
            Problem: 401 without a token or a session, or with one that is none; 429 for too many
                requests.
        """
        found = self._found(headers.get("authorization"), cookies.get(COOKIE))
        if found is None:
            raise Problem(
                401,
                "name a token: `Authorization: Bearer ...`; `promptgraft tokens create` makes one",
                headers={"WWW-Authenticate": "Bearer"},
            )
        self._take(found.name)
        return found

    def _found(self, authorization: str | None, session: str | None) -> Caller | None:
        if authorization is not None:
            kind, _, token = authorization.partition(" ")
            return self._tokens.find(token.strip()) if kind.lower() == "bearer" else None
        with self._lock:
            return LOCAL if session and _digest(session) in self._sessions else None

    def _take(self, name: str) -> None:
        with self._lock:
            now = self._now()
            bucket = self._buckets.setdefault(name, _Bucket(MOST_AT_ONCE, now))
            bucket.left += (now - bucket.at) * REQUESTS_A_SECOND
            bucket.left, bucket.at = min(MOST_AT_ONCE, bucket.left), now
            if bucket.left < 1:
                raise Problem(
                    429,
                    f"more than {REQUESTS_A_SECOND:.0f} requests a second; wait a moment",
                    headers={"Retry-After": "1"},
                )
            bucket.left -= 1

    def begin_stream(self, caller: Caller) -> None:
        """Count a stream of events.

        Raises:
            Problem: 429: there are too many.
        """
        with self._lock:
            own = self._streams.get(caller.name, 0)
            if own >= STREAMS_A_TOKEN or sum(self._streams.values()) >= STREAMS_IN_ALL:
                raise Problem(
                    429,
                    f"at most {STREAMS_A_TOKEN} streams a token and {STREAMS_IN_ALL} in all; close "
                    "one first",
                    headers={"Retry-After": "5"},
                )
            self._streams[caller.name] = own + 1

    @property
    def streams(self) -> int:
        """How many streams of events there are."""
        with self._lock:
            return sum(self._streams.values())

    def end_stream(self, caller: Caller) -> None:
        """Count a stream no more."""
        with self._lock:
            left = self._streams[caller.name] = self._streams[caller.name] - 1
            if not left:
                del self._streams[caller.name]
