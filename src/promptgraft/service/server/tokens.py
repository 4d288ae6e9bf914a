"""Tokens: who may do what, in which projects."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Sequence
from enum import StrEnum

import attrs
from sqlalchemy import Connection, Row, delete, insert, select

from promptgraft.errors import ConfigError
from promptgraft.ground.serde import shown
from promptgraft.service.database import Database
from promptgraft.service.server.problems import ApiProblem

# Addresses of people too, so that a token can belong to a user of a proxy.
NAME = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}")


_ALL: Sequence[str] = []
"""What rows hold for all projects; no row means none, which `create` refuses."""


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
class ApiCaller:
    """The token, or the browser session, that a request comes from.

    Attributes:
        name: name of the token or the user; ``local`` for a browser on this machine.
        scopes: its permissions.
        projects: the projects that it can see; None for all.
        token: SHA-256 of the token, or of the user of a provider; empty if there is none.
        session: SHA-256 of the browser session; empty if there is none.
    """

    name: str
    scopes: frozenset[Scope]
    projects: frozenset[str] | None = None
    token: str = ""
    session: str = ""

    def check(self, scope: Scope) -> None:
        """Require a scope.

        Raises:
            ApiProblem: 403: the caller does not have it.
        """
        if scope not in self.scopes:
            scopes = ", ".join(sorted(self.scopes)) or "none"
            raise ApiProblem(403, f"this needs the scope `{scope}`; the token has {scopes}")

    @property
    def roles(self) -> str:
        """The scopes in words, in the order of what they allow."""
        return ", ".join(scope for scope in Scope if scope in self.scopes)

    def sees(self, project: str) -> bool:
        """Return whether the caller can see a project."""
        return self.projects is None or project in self.projects


LOCAL = ApiCaller(name="local", scopes=frozenset(Scope))


class TokenStore:
    """Tokens of 256 bits; the database holds only their SHA-256."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._table = database.tables.signing_in.tokens

    def create(
        self, name: str, scopes: Iterable[Scope | str], projects: Iterable[str] | None = None
    ) -> str:
        """Create a token and return it; it cannot be read again later.

        Args:
            name: a unique name, which the events of jobs record.
            scopes: its permissions.
            projects: the projects that it can see; None for all.

        Raises:
            ConfigError: a name or a scope is invalid, the name is taken, or no project is named.
        """
        if name == LOCAL.name:
            raise ConfigError(f"name of a token: `{name}` is the browser on the server's machine")
        if not NAME.fullmatch(name):
            raise ConfigError(
                "name of a token: expected 1 to 64 lower-case letters, digits and `._@+-`, "
                f"starting with a letter or digit, found {shown(name)}"
            )
        scopes_read = scopes_of(scopes)
        if not scopes_read:
            raise ConfigError(f"scopes: name at least one of {', '.join(Scope)}")
        project_names = None if projects is None else sorted(set(projects))
        if project_names == []:
            raise ConfigError("projects: name at least one; without `projects` a token sees all")
        token = secrets.token_urlsafe(32)

        def put(connection: Connection) -> None:
            same_name = select(self._table.c.name).where(self._table.c.name == name)
            if connection.scalar(same_name) is not None:
                raise ConfigError(f"there is a token `{name}` already; revoke it first")
            connection.execute(
                insert(self._table).values(
                    # Plain SHA-256 is enough: slow hashes protect short passwords, and this has 256
                    # random bits.
                    digest=secret_digest(token),
                    name=name,
                    scopes=",".join(sorted(scopes_read)),
                    projects=json.dumps(project_names or _ALL).encode(),
                    created=self.database.seconds,
                )
            )

        self.database.write(put)
        return token

    def find(self, token: str) -> ApiCaller | None:
        """Return the caller with a token, or None."""
        digest = secret_digest(token)
        with self.database.reading() as connection:
            row = connection.execute(
                select(self._table).where(self._table.c.digest == digest)
            ).one_or_none()
        # The index compares digests, of which nothing can be learnt about a token; the digest that
        # it returns is compared in constant time.
        if row is None or not hmac.compare_digest(row.digest, digest):
            return None
        return caller_of(row)

    def is_there(self, digest: str) -> bool:
        """Return whether there is a token with this SHA-256."""
        token = select(self._table.c.name).where(self._table.c.digest == digest)
        with self.database.reading() as connection:
            return connection.scalar(token) is not None

    def named(self, name: str) -> ApiCaller | None:
        """Return the caller with the token of this name, or None."""
        with self.database.reading() as connection:
            row = connection.execute(
                select(self._table).where(self._table.c.name == name)
            ).one_or_none()
        return None if row is None else caller_of(row)

    def list(self) -> list[ApiCaller]:
        """Return the callers of all tokens by name."""
        with self.database.reading() as connection:
            rows = connection.execute(select(self._table).order_by(self._table.c.name)).all()
        return [caller_of(row) for row in rows]

    def new_link(self, name: str, *, seconds: float) -> str:
        """Return the code of a link that signs a browser in once, with a token.

        Args:
            name: the name of the token.
            seconds: how long the link is valid.

        Raises:
            ConfigError: there is no token with this name.
        """
        tokens, links = self._table, self.database.tables.signing_in.links
        code = secrets.token_urlsafe(32)
        now = self.database.seconds

        def put(connection: Connection) -> None:
            token = connection.scalar(select(tokens.c.digest).where(tokens.c.name == name))
            if token is None:
                raise ConfigError(
                    f"there is no token `{name}`; `promptgraft tokens create` makes one"
                )
            connection.execute(delete(links).where(links.c.ends < now))
            connection.execute(
                insert(links).values(digest=secret_digest(code), token=token, ends=now + seconds)
            )

        self.database.write(put)
        return code

    def revoke(self, name: str) -> None:
        """Delete a token, or a user of a provider, and end the sessions of both.

        Raises:
            ConfigError: there is no token and no user with this name.
        """
        tables = self.database.tables

        def remove(connection: Connection) -> int:
            count = 0
            for owners in (self._table, tables.signing_in.users):
                named = select(owners.c.digest).where(owners.c.name == name)
                for digest in connection.scalars(named).all():
                    for table in (tables.signing_in.sessions, tables.signing_in.links):
                        connection.execute(delete(table).where(table.c.token == digest))
                    connection.execute(delete(owners).where(owners.c.digest == digest))
                    count += 1
            return count

        if not self.database.write(remove):
            names = ", ".join(token.name for token in self.list()) or "none"
            raise ConfigError(f"there is no token `{name}`; there: {names}")


def _scope(scope: Scope | str) -> Scope:
    try:
        return Scope(scope)
    except ValueError:
        raise ConfigError(f"scopes: expected {', '.join(Scope)}, found {shown(scope)}") from None


def scopes_of(scopes: Iterable[Scope | str]) -> frozenset[Scope]:
    """Return scopes by their names.

    Raises:
        ConfigError: there is no such scope.
    """
    return frozenset(_scope(scope) for scope in scopes)


def secret_digest(secret: str) -> str:
    """Return the SHA-256 of a token, a code or a cookie, which is all that is stored of it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def caller_of(row: Row[object]) -> ApiCaller:
    """Return the caller of a row of the table of tokens."""
    projects = json.loads(row.projects)
    return ApiCaller(
        name=row.name,
        scopes=frozenset(Scope(scope) for scope in row.scopes.split(",")),
        projects=None if projects == _ALL else frozenset(projects),
        token=row.digest,
    )
