"""The tables of promptgraft, in the types that SQLite, PostgreSQL, MySQL and MariaDB share."""

from __future__ import annotations

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
from sqlalchemy.schema import SchemaItem

# Every index is a constraint: those are made with the table, in one statement everywhere.

SCHEMA_VERSION = 1

_DIGEST = 64
_ADDRESS = ("ns", "prompt_key", "tag")


def _name(length: int) -> types.TypeEngine[str]:
    """Return the type of ASCII names, which are compared byte by byte everywhere."""
    exact = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    return String(length).with_variant(exact, "mysql", "mariadb")


def _document() -> types.TypeEngine[bytes]:
    return LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def _counter() -> types.TypeEngine[int]:
    # Only an INTEGER counts by itself in SQLite, where it has 64 bits too.
    return BigInteger().with_variant(Integer(), "sqlite")


def _named(name: str, length: int, *, default: str | None = "") -> Column[str]:
    return Column(name, _name(length), nullable=default is None, default=default)


@attrs.frozen(kw_only=True)
class Tables:
    """The tables under one prefix.

    Attributes:
        metadata: all of them, as SQLAlchemy knows them.
        schema: one row: the version of the tables, and the names of the webhooks.
        revisions: every state that a tag had, as the document that files hold.
        tags: the revision that each tag points at; null for none.
        jobs: optimization jobs: what was asked for, who works on it, how far it is.
        attempts: each time that a worker took a job, and how that ended.
        answers: the lines of a job's journal, by position.
        events: the lines of a job's events, by a number that only grows.
        tokens: who may use a server, by the SHA-256 of their tokens.
        outbox: events that are on their way to webhooks; they outlive their jobs.
    """

    metadata: MetaData
    schema: Table
    revisions: Table
    tags: Table
    jobs: Table
    attempts: Table
    answers: Table
    events: Table
    tokens: Table
    outbox: Table

    @classmethod
    def of(cls, prefix: str) -> Tables:
        """Return the tables whose names begin with ``prefix``."""
        metadata = MetaData()

        def table(name: str, *columns: SchemaItem) -> Table:
            # The engine of MySQL that has transactions, whatever the server's default is.
            return Table(
                f"{prefix}{name}",
                metadata,
                *columns,
                # A number is never that of another row that was removed.
                sqlite_autoincrement=True,
                mysql_engine="InnoDB",
                mariadb_engine="InnoDB",
            )

        tags = table("tags", *_address(), Column("revision", _name(_DIGEST)))
        jobs = table("jobs", *_job())

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
            schema=table(
                "schema", Column("version", Integer, primary_key=True), _named("hooks", 1_000)
            ),
            tags=tags,
            revisions=table(
                "revisions",
                *_address(),
                Column("number", Integer, primary_key=True, autoincrement=False),
                Column("id", _name(_DIGEST), nullable=False),
                Column("document", _document(), nullable=False),
                ForeignKeyConstraint(_ADDRESS, [tags.c[name] for name in _ADDRESS]),
            ),
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
                "events",
                "number",
                _named("kind", 16),
                Column("line", _document(), nullable=False),
            ),
            tokens=table("tokens", *_token(), UniqueConstraint("name")),
            outbox=table("outbox", *_outbox()),
        )


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
    lengths = zip(_ADDRESS, (200, 64, 64), strict=True)
    return [Column(name, _name(length), primary_key=True) for name, length in lengths]


def _job() -> list[SchemaItem]:
    """Return the columns of jobs.

    Documents are JSON in UTF-8, times are seconds since 1970, money is millionths of US dollars.
    """
    return [
        Column("number", _counter(), primary_key=True, autoincrement=True),
        _named("id", 32),
        _named("project", 64),
        _named("prompt", 64),
        _named("tag", 64),
        _named("digest", _DIGEST),
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
        UniqueConstraint("id"),
        UniqueConstraint("project", "key"),
        UniqueConstraint("state", "number"),
    ]
