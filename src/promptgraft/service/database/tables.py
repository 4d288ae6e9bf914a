"""Tables, in types that SQLite, PostgreSQL, MySQL and MariaDB share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import attrs
from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    types,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.schema import SchemaItem

# Every index is a constraint, because every database creates those together with the table.

SCHEMA_VERSION = 5
"""Version of the tables below; every change of them needs a new one, and a migration to it."""

MOST_NS_CHARS = 200
"""Characters of a namespace, with the project that it belongs to."""

_DIGEST = 64
_ADDRESS = ("ns", "prompt_key", "tag")


class _Name(types.TypeDecorator[str]):
    """ASCII names, which every database compares byte by byte.

    What is looked for may be any text: MySQL refuses to compare others with ASCII, and PostgreSQL
    takes no NUL.
    """

    impl = String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> types.TypeEngine[str]:
        if dialect.name in {"mysql", "mariadb"}:
            return mysql.VARCHAR(self.length, charset="ascii", collation="ascii_bin")
        return String(self.length)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or (value.isascii() and "\0" not in value):
            return value
        # No name has a backslash.
        return value.encode("unicode-escape").decode()


def _name(length: int) -> types.TypeEngine[str]:
    return _Name(length)


def _document() -> types.TypeEngine[bytes]:
    return LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def _counter() -> types.TypeEngine[int]:
    # SQLite increments only columns of type INTEGER, which have 64 bits there.
    return BigInteger().with_variant(Integer(), "sqlite")


def _named(name: str, length: int, *, default: str | None = "") -> Column[str]:
    return Column(name, _name(length), nullable=default is None, default=default)


@attrs.frozen(kw_only=True)
class SigningInTables:
    """The tables of those who may use a server. Secrets are kept as digests, their SHA-256.

    Attributes:
        tokens: tokens of a server, by the digest of their texts.
        users: users whom an OpenID Connect provider has named, by the digest of issuer and
            subject.
        logins: signing in that has begun at a provider, by the digest of its state.
        sessions: browsers that have signed in, by the digest of their cookie.
        links: links that sign in once, by the digest of their code.
    """

    tokens: Table
    users: Table
    logins: Table
    sessions: Table
    links: Table

    @classmethod
    def of(cls, table: Callable[..., Table]) -> SigningInTables:
        """Return the tables; ``table`` makes one of its name and columns."""
        return cls(
            tokens=table("tokens", *_token(), UniqueConstraint("name")),
            users=table("users", *_user()),
            logins=table("logins", *_login()),
            sessions=table("sessions", *_session()),
            links=table("links", *_link()),
        )


@attrs.frozen(kw_only=True)
class Tables:
    """The tables under one prefix.

    Attributes:
        metadata: SQLAlchemy's collection of all tables.
        schema: one row: the version of the tables, and the names of the webhooks.
        revisions: every state of every tag, as the document that a file would hold.
        tags: the revision that each tag points at; null for none.
        jobs: optimization jobs: request, lease, state and status.
        attempts: attempts of workers at jobs, with what each spent on its latest day.
        answers: the lines of each job's journal, by position.
        events: the lines of each job's events, by a number that only grows.
        signing_in: who signs in to a server, and how.
        workers: workers that run, or did so lately.
        datasets: every revision of every data set of a project.
        protections: tags that are, or were, protected.
        requests: requests to move protected tags.
        request_entries: what people did with requests.
        outbox: deliveries to webhooks; they outlive their jobs.
    """

    metadata: MetaData
    schema: Table
    revisions: Table
    tags: Table
    jobs: Table
    attempts: Table
    answers: Table
    events: Table
    signing_in: SigningInTables
    workers: Table
    datasets: Table
    protections: Table
    requests: Table
    request_entries: Table
    outbox: Table

    @classmethod
    @cache
    def of(cls, prefix: str) -> Tables:
        """Return the tables with a prefix, which all databases share."""
        metadata = MetaData()

        def table(name: str, *columns: SchemaItem) -> Table:
            return Table(
                f"{prefix}{name}",
                metadata,
                *columns,
                # Numbers of deleted rows are never used again.
                sqlite_autoincrement=True,
                # MySQL's engine with transactions, whatever the default of the server is.
                mysql_engine="InnoDB",
                mariadb_engine="InnoDB",
            )

        tags = table("tags", *_address(), Column("revision", _name(_DIGEST)))
        jobs = table("jobs", *_job())
        requests = table("requests", *_request())

        def of_job(name: str, counted: str, *columns: SchemaItem) -> Table:
            return table(
                name,
                Column("job", BigInteger, primary_key=True, autoincrement=False),
                Column(counted, Integer, primary_key=True, autoincrement=False),
                *columns,
                ForeignKeyConstraint(["job"], [jobs.c.number], ondelete="CASCADE"),
            )

        return cls(
            metadata=metadata,
            schema=table("schema", *_schema()),
            tags=tags,
            revisions=table("revisions", *_revision(tags)),
            jobs=jobs,
            attempts=of_job("attempts", "number", *_attempt()),
            answers=of_job(
                "answers",
                "position",
                _named("key_digest", _DIGEST),
                Column("line", _document(), nullable=False),
                UniqueConstraint("job", "key_digest"),
            ),
            events=of_job(
                "events", "number", _named("kind", 16), Column("line", _document(), nullable=False)
            ),
            signing_in=SigningInTables.of(table),
            workers=table("workers", *_worker()),
            datasets=table("datasets", *_dataset()),
            protections=table("protections", *_protection()),
            requests=requests,
            request_entries=table("request_entries", *_request_entry(requests)),
            outbox=table("outbox", *_outbox()),
        )


def _schema() -> list[SchemaItem]:
    return [Column("version", Integer, primary_key=True), _named("hooks", 1_000)]


def _revision(tags: Table) -> list[SchemaItem]:
    return [
        *_address(),
        Column("number", Integer, primary_key=True, autoincrement=False),
        Column("id", _name(_DIGEST), nullable=False),
        Column("document", _document(), nullable=False),
        ForeignKeyConstraint(_ADDRESS, [tags.c[name] for name in _ADDRESS]),
    ]


def _attempt() -> list[SchemaItem]:
    return [
        _named("worker", 200),
        Column("started", Double, nullable=False),
        Column("ended", Double),
        Column("answers", Integer, nullable=False),
        Column("error", _document(), nullable=False),
        Column("day", Integer, nullable=False, default=0),
        Column("spent", BigInteger, nullable=False, default=0),
        UniqueConstraint("day", "job", "number"),
    ]


def _token() -> list[SchemaItem]:
    return [
        Column("digest", _name(_DIGEST), primary_key=True),
        _named("name", 64),
        _named("scopes", 200),
        Column("projects", _document(), nullable=False),
        Column("created", Double, nullable=False),
    ]


def _user() -> list[SchemaItem]:
    return [
        Column("digest", _name(_DIGEST), primary_key=True),
        _named("name", 64),
        Column("memberships", _document(), nullable=False),
        Column("seen", Double, nullable=False),
    ]


def _login() -> list[SchemaItem]:
    return [
        Column("digest", _name(_DIGEST), primary_key=True),
        Column("path", _document(), nullable=False),
        Column("ends", Double, nullable=False),
    ]


def _session() -> list[SchemaItem]:
    return [
        Column("digest", _name(_DIGEST), primary_key=True),
        # The digest of the token or the user that has signed in; empty for a browser on this
        # machine.
        _named("token", _DIGEST),
        _named("browser", 200),
        Column("created", Double, nullable=False),
        Column("seen", Double, nullable=False),
        UniqueConstraint("token", "digest"),
    ]


def _link() -> list[SchemaItem]:
    return [
        Column("digest", _name(_DIGEST), primary_key=True),
        _named("token", _DIGEST),
        Column("ends", Double, nullable=False),
    ]


def _worker() -> list[SchemaItem]:
    return [
        Column("name", _name(200), primary_key=True),
        _named("version", 40),
        Column("processes", Integer, nullable=False),
        Column("projects", _document(), nullable=False),
        Column("avoids", _document(), nullable=False),
        Column("started", Double, nullable=False),
        Column("seen", Double, nullable=False),
    ]


def _dataset() -> list[SchemaItem]:
    return [
        Column("project", _name(64), primary_key=True),
        Column("name", _name(64), primary_key=True),
        Column("number", Integer, primary_key=True, autoincrement=False),
        _named("digest", _DIGEST),
        Column("cases", Integer, nullable=False),
        Column("created", Double, nullable=False),
        Column("author", _document(), nullable=False),
        # Last, so that SQLite need not read it for the columns before.
        Column("text", _document(), nullable=False),
    ]


def _protection() -> list[SchemaItem]:
    return [
        Column("project", _name(64), primary_key=True),
        Column("tag", _name(64), primary_key=True),
        Column("number", Integer, primary_key=True, autoincrement=False),
        Column("author", _document(), nullable=False),
        Column("created", Double, nullable=False),
        Column("ended_by", _document(), nullable=False),
        Column("ended", Double),
    ]


def _request() -> list[SchemaItem]:
    return [
        Column("number", Integer, primary_key=True, autoincrement=False),
        _named("project", 64),
        _named("prompt", 64),
        _named("tag", 64),
        _named("digest", _DIGEST),
        _named("state", 16),
        Column("document", _document(), nullable=False),
        UniqueConstraint("project", "state", "number"),
    ]


def _request_entry(requests: Table) -> list[SchemaItem]:
    return [
        Column("request", Integer, primary_key=True, autoincrement=False),
        Column("number", Integer, primary_key=True, autoincrement=False),
        _named("what", 16),
        Column("author", _document(), nullable=False),
        Column("comment", _document(), nullable=False),
        Column("created", Double, nullable=False),
        ForeignKeyConstraint(["request"], [requests.c.number]),
    ]


def _outbox() -> list[SchemaItem]:
    return [
        Column("id", _counter(), primary_key=True, autoincrement=True),
        _named("hook", 64),
        Column("job", BigInteger, nullable=False),
        Column("body", _document(), nullable=False),
        Column("attempts", Integer, nullable=False, default=0),
        Column("due", Double, nullable=False, default=0.0),
        UniqueConstraint("hook", "job", "id"),
    ]


def _address() -> list[Column[str]]:
    lengths = zip(_ADDRESS, (MOST_NS_CHARS, 64, 64), strict=True)
    return [Column(name, _name(length), primary_key=True) for name, length in lengths]


def _job() -> list[SchemaItem]:
    """Return the columns of jobs.

    Documents are JSON in UTF-8, times are seconds since 1970, money is in millionths of a US
    dollar.
    """
    return [
        Column("number", _counter(), primary_key=True, autoincrement=True),
        _named("id", 32),
        _named("project", 64),
        _named("prompt", 64),
        _named("tag", 64),
        _named("digest", _DIGEST),
        # Null and not empty, because only nulls may occur twice in a unique constraint.
        _named("key", 200, default=None),
        Column("request", _document(), nullable=False),
        _named("origin", 32, default=None),
        Column("priority", Integer, nullable=False, default=0),
        Column("not_before", Double, nullable=False, default=0.0),
        _named("state", 16),
        _named("wish", 16),
        Column("reason", _document(), nullable=False, default=b""),
        Column("fence", Integer, nullable=False, default=0),
        _named("worker", 200),
        Column("lease", Double, nullable=False, default=0.0),
        Column("synced", Double, nullable=False, default=0.0),
        Column("attempts", Integer, nullable=False, default=0),
        Column("barren", Integer, nullable=False, default=0),
        Column("events", Integer, nullable=False, default=0),
        Column("spent", BigInteger, nullable=False, default=0),
        Column("created", Double, nullable=False),
        Column("started", Double),
        Column("ended", Double),
        Column("progress", Double, nullable=False, default=0.0),
        Column("status", _document(), nullable=False, default=b"{}"),
        Column("config", _document()),
        Column("result", _document()),
        # What its latest finished attempt knows of the whole run, for metrics.
        Column("calls", Integer, nullable=False, default=0),
        Column("retries", Integer, nullable=False, default=0),
        Column("milliseconds", BigInteger, nullable=False, default=0),
        UniqueConstraint("id"),
        UniqueConstraint("project", "key"),
        UniqueConstraint("state", "number"),
    ]
