"""Access control: tokens with scopes, one-time login codes, host checks and rate limits."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from urllib.parse import urlsplit

import attrs
from sqlalchemy import Connection, Row, delete, insert, select

from promptgraft.errors import ConfigError
from promptgraft.ground.serde import shown
from promptgraft.overrides.parts.validation import check_key
from promptgraft.service.database import Database
from promptgraft.service.server.problems import Problem

COOKIE = "promptgraft_session"
REQUESTS_A_SECOND = 20.0
MOST_AT_ONCE = 40
STREAMS_A_TOKEN = 10
STREAMS_IN_ALL = 200
_MOST_BUCKETS = 10_000


class Scope(StrEnum):
    """Permission of a token; no scope includes another."""

    READ = "read"
    """Read jobs, events, results and stores."""
    SUBMIT = "submit"
    """Submit, change, pause, resume, cancel, fork and delete jobs."""
    APPROVE = "approve"
    """Apply winners, promote them to other tags, and roll tags back."""
    ADMIN = "admin"
    """Read metrics."""


@attrs.frozen(kw_only=True)
class Caller:
    """The token, or the browser session, that a request comes from.

    Attributes:
        name: name of the token; ``local`` for a browser on this machine.
        scopes: its permissions.
        projects: the projects that it can see; None for all.
    """

    name: str
    scopes: frozenset[Scope]
    projects: frozenset[str] | None = None

    def check(self, scope: Scope) -> None:
        """Require a scope.

        Raises:
            Problem: 403: the caller does not have it.
        """
        if scope not in self.scopes:
            scopes = ", ".join(sorted(self.scopes)) or "none"
            raise Problem(403, f"this needs the scope `{scope}`; the token has {scopes}")

    def sees(self, project: str) -> bool:
        """Return whether the caller can see a project."""
        return self.projects is None or project in self.projects


LOCAL = Caller(name="local", scopes=frozenset(Scope))


class TokenStore:
    """Tokens of 256 bits; the database holds only their SHA-256."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._table = database.tables.tokens

    def create(self, name: str, scopes: Iterable[Scope | str], projects: Iterable[str] = ()) -> str:
        """Create a token and return it; it cannot be read again later.

        Args:
            name: a unique name, which the events of jobs record.
            scopes: its permissions.
            projects: the projects that it can see; all if empty.

        Raises:
            ConfigError: a name or a scope is invalid, or the name is taken.
        """
        check_key(name, "name of a token")
        scopes_read = [_scope(scope) for scope in scopes]
        if not scopes_read:
            raise ConfigError(f"scopes: name at least one of {', '.join(Scope)}")
        token = secrets.token_urlsafe(32)

        def put(connection: Connection) -> None:
            same_name = select(self._table.c.name).where(self._table.c.name == name)
            if connection.scalar(same_name) is not None:
                raise ConfigError(f"there is a token `{name}` already; revoke it first")
            connection.execute(
                insert(self._table).values(
                    # Plain SHA-256 is enough: slow hashes protect short passwords, and this has 256
                    # random bits.
                    digest=_digest(token),
                    name=name,
                    scopes=",".join(sorted(set(scopes_read))),
                    projects=json.dumps(sorted(set(projects))).encode(),
                    created=self._database.seconds,
                )
            )

        self._database.write(put)
        return token

    def find(self, token: str) -> Caller | None:
        """Return the caller with a token, or None."""
        digest = _digest(token)
        with self._database.reading() as connection:
            row = connection.execute(
                select(self._table).where(self._table.c.digest == digest)
            ).one_or_none()
        # The index compares digests, of which nothing can be learnt about a token; the digest that
        # it returns is compared in constant time.
        if row is None or not hmac.compare_digest(row.digest, digest):
            return None
        return _caller(row)

    def list(self) -> list[Caller]:
        """Return the callers of all tokens by name."""
        with self._database.reading() as connection:
            rows = connection.execute(select(self._table).order_by(self._table.c.name)).all()
        return [_caller(row) for row in rows]

    def revoke(self, name: str) -> None:
        """Delete a token.

        Raises:
            ConfigError: there is no token with this name.
        """

        def remove(connection: Connection) -> int:
            return connection.execute(
                delete(self._table).where(self._table.c.name == name)
            ).rowcount

        if not self._database.write(remove):
            names = ", ".join(token.name for token in self.list()) or "none"
            raise ConfigError(f"there is no token `{name}`; there: {names}")


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
        scopes=frozenset(Scope(scope) for scope in row.scopes.split(",")),
        projects=frozenset(json.loads(row.projects)) or None,
    )


@attrs.define
class _Bucket:
    """Token bucket of a rate limit: requests left at a time."""

    left: float
    at: float


class Access:
    """Authenticates requests and limits their rate; safe to share between threads.

    Args:
        tokens: the tokens.
        hosts: the ``Host`` headers that are accepted, with ports.
        now: a monotonic clock in seconds.
    """

    def __init__(
        self,
        tokens: TokenStore,
        *,
        hosts: Iterable[str],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._hosts = frozenset(host.lower() for host in hosts)
        self._now = now
        self._lock = threading.Lock()
        self._codes: set[str] = set()
        self._sessions: set[str] = set()
        self._buckets: dict[str, _Bucket] = {}
        self._streams = Counter[str]()

    def new_code(self) -> str:
        """Return a login code, which works once."""
        code = secrets.token_urlsafe(32)
        with self._lock:
            self._codes.add(_digest(code))
        return code

    def redeem(self, code: str) -> str:
        """Exchange a login code for a session.

        Raises:
            Problem: 401: the code was used before, or is invalid.
        """
        session = secrets.token_urlsafe(32)
        with self._lock:
            # Digests are compared, not secrets, so that timing reveals nothing about them.
            if _digest(code) not in self._codes:
                raise Problem(
                    401,
                    "this link was used before or is invalid; `promptgraft serve` prints a new one",
                )
            self._codes.remove(_digest(code))
            self._sessions.add(_digest(session))
        return session

    def check_origin(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse unknown host names, against DNS rebinding, and requests from other sites.

        Raises:
            Problem: 403.
        """
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            raise Problem(403, f"host: this server is not known as {shown(host[:100])}")
        origin = headers.get("origin")
        # Hosts only: a proxy may end TLS, so that the scheme differs.
        if origin is not None and urlsplit(origin).netloc.lower() != host:
            raise Problem(403, "the request comes from another site; use the pages of this server")
        # For requests without `Origin`: browsers add this header to all of theirs.
        if method != "GET" and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise Problem(403, "the request comes from another site; use the pages of this server")

    def caller(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], address: str = ""
    ) -> Caller:
        """Authenticate a request from an address.

        Raises:
            Problem: 401: token and session are missing or invalid; 429: too many requests.
        """
        caller_found = self._found(headers.get("authorization"), cookies.get(COOKIE))
        if caller_found is None:
            # Per address, and only for those that fail: who guesses is slowed down, and whoever
            # comes with a token through the same proxy is not.
            self._take(f"address {address}")
            raise Problem(
                401,
                "send a token: `Authorization: Bearer ...`; `promptgraft tokens create` makes one",
                headers={"WWW-Authenticate": "Bearer"},
            )
        # Limits are per token, so that one client cannot use up those of others.
        self._take(caller_found.name)
        return caller_found

    def _found(self, authorization: str | None, session: str | None) -> Caller | None:
        if authorization is not None:
            kind, _, token = authorization.partition(" ")
            # A header that is invalid is not made good by a session.
            return self._tokens.find(token.strip()) if kind.lower() == "bearer" else None
        with self._lock:
            return LOCAL if session and _digest(session) in self._sessions else None

    def _take(self, name: str) -> None:
        with self._lock:
            now = self._now()
            # A token bucket: it refills with time, and every request takes one.
            if len(self._buckets) >= _MOST_BUCKETS:
                # Addresses are many, and a bucket that has had time to fill says nothing.
                full = MOST_AT_ONCE / REQUESTS_A_SECOND
                self._buckets = {
                    key: bucket for key, bucket in self._buckets.items() if now - bucket.at < full
                }
            bucket = self._buckets.setdefault(name, _Bucket(MOST_AT_ONCE, now))
            bucket.left += (now - bucket.at) * REQUESTS_A_SECOND
            # Capped, so that a long silence does not allow a flood.
            bucket.left, bucket.at = min(MOST_AT_ONCE, bucket.left), now
            if bucket.left < 1:
                raise Problem(
                    429,
                    f"more than {REQUESTS_A_SECOND:.0f} requests a second; wait a moment",
                    headers={"Retry-After": "1"},
                )
            bucket.left -= 1

    @contextmanager
    def streaming(self, caller: Caller) -> Iterator[None]:
        """Count a stream of events while it is open.

        Raises:
            Problem: 429: too many streams are open.
        """
        with self._lock:
            own_streams, total = self._streams[caller.name], self._streams.total()
            if own_streams >= STREAMS_A_TOKEN or total >= STREAMS_IN_ALL:
                raise Problem(
                    429,
                    f"at most {STREAMS_A_TOKEN} streams for a token and {STREAMS_IN_ALL} in total; "
                    "close one first",
                    headers={"Retry-After": "5"},
                )
            self._streams[caller.name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._streams[caller.name] -= 1

    @property
    def streams(self) -> int:
        """Number of open streams."""
        with self._lock:
            return self._streams.total()
