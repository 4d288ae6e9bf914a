"""Numbered migrations: from the tables of an earlier version to those of this one.

A migration is frozen once it is on the main branch: it names its own types and columns, and does
not change with ``tables``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import attrs
from sqlalchemy import Connection, inspect, text

from promptgraft.errors import StoreError

_TYPES = {
    "sqlite": {"NAME": r"VARCHAR(\1)", "BYTES": "BLOB", "REAL": "DOUBLE"},
    "postgresql": {"NAME": r"VARCHAR(\1)", "BYTES": "BYTEA", "REAL": "DOUBLE PRECISION"},
    "mysql": {
        "NAME": r"VARCHAR(\1) CHARACTER SET ascii COLLATE ascii_bin",
        "BYTES": "LONGBLOB",
        "REAL": "DOUBLE",
    },
}
"""The types that migrations use, by dialect."""

_END = {"sqlite": "", "postgresql": "", "mysql": " ENGINE=InnoDB"}
_SECONDS_FOR_THE_LOCK = 60


@attrs.frozen(kw_only=True)
class Migration:
    """The changes that make the tables of one version from those of the version before.

    Attributes:
        tables: new tables, with their columns in SQL. Names of other tables are in braces.
        columns: new columns: table, name, and type in SQL.
        changes: further statements, which have the same effect if they are repeated. Names of
            tables are in braces.
    """

    tables: Mapping[str, str] = attrs.field(factory=dict)
    columns: Sequence[tuple[str, str, str]] = ()
    changes: Sequence[str] = ()

    def statements(self, connection: Connection, prefix: str, dialect: str) -> Iterator[str]:
        """Yield the statements that are missing, in SQL.

        MySQL commits every change of a table at once: a migration that was interrupted has made
        some of them.
        """
        inspector = inspect(connection)
        for table, columns in self.tables.items():
            if not inspector.has_table(f"{prefix}{table}"):
                statement = f"CREATE TABLE {prefix}{table} ({columns}){_END[dialect]}"
                yield _typed(_prefixed(statement, prefix), dialect)
        for table, name, kind in self.columns:
            is_there = inspector.has_table(f"{prefix}{table}")
            columns_there = inspector.get_columns(f"{prefix}{table}") if is_there else []
            existing = {column["name"] for column in columns_there}
            if name not in existing:
                yield _typed(f"ALTER TABLE {prefix}{table} ADD COLUMN {name} {kind}", dialect)
        for change in self.changes:
            yield _prefixed(change, prefix)


MIGRATIONS: Mapping[int, Migration] = {
    2: Migration(
        tables={
            "sessions": (
                "digest NAME(64) NOT NULL, token NAME(64) NOT NULL, browser NAME(200) NOT NULL, "
                "created REAL NOT NULL, seen REAL NOT NULL, "
                "PRIMARY KEY (digest), UNIQUE (token, digest)"
            ),
            "links": (
                "digest NAME(64) NOT NULL, token NAME(64) NOT NULL, ends REAL NOT NULL, "
                "PRIMARY KEY (digest)"
            ),
            "workers": (
                "name NAME(200) NOT NULL, version NAME(40) NOT NULL, processes INTEGER NOT NULL, "
                "projects BYTES NOT NULL, avoids BYTES NOT NULL, started REAL NOT NULL, "
                "seen REAL NOT NULL, PRIMARY KEY (name)"
            ),
        },
        columns=[
            ("jobs", "calls", "INTEGER NOT NULL DEFAULT 0"),
            ("jobs", "retries", "INTEGER NOT NULL DEFAULT 0"),
            ("jobs", "milliseconds", "BIGINT NOT NULL DEFAULT 0"),
        ],
        changes=["UPDATE {tokens} SET scopes = replace(scopes, 'promote', 'approve')"],
    ),
    3: Migration(
        tables={
            "datasets": (
                "project NAME(64) NOT NULL, name NAME(64) NOT NULL, number INTEGER NOT NULL, "
                "digest NAME(64) NOT NULL, cases INTEGER NOT NULL, created REAL NOT NULL, "
                "author BYTES NOT NULL, text BYTES NOT NULL, PRIMARY KEY (project, name, number)"
            )
        }
    ),
    4: Migration(
        tables={
            "users": (
                "digest NAME(64) NOT NULL, name NAME(64) NOT NULL, memberships BYTES NOT NULL, "
                "seen REAL NOT NULL, PRIMARY KEY (digest)"
            ),
            "logins": (
                "digest NAME(64) NOT NULL, path BYTES NOT NULL, ends REAL NOT NULL, "
                "PRIMARY KEY (digest)"
            ),
        }
    ),
    5: Migration(
        tables={
            "protections": (
                "project NAME(64) NOT NULL, tag NAME(64) NOT NULL, number INTEGER NOT NULL, "
                "author BYTES NOT NULL, created REAL NOT NULL, ended_by BYTES NOT NULL, "
                "ended REAL, PRIMARY KEY (project, tag, number)"
            ),
            "requests": (
                "number INTEGER NOT NULL, project NAME(64) NOT NULL, prompt NAME(64) NOT NULL, "
                "tag NAME(64) NOT NULL, digest NAME(64) NOT NULL, state NAME(16) NOT NULL, "
                "document BYTES NOT NULL, PRIMARY KEY (number), UNIQUE (project, state, number)"
            ),
            "request_entries": (
                "request INTEGER NOT NULL, number INTEGER NOT NULL, what NAME(16) NOT NULL, "
                "author BYTES NOT NULL, comment BYTES NOT NULL, created REAL NOT NULL, "
                "PRIMARY KEY (request, number), "
                "FOREIGN KEY (request) REFERENCES {requests} (number)"
            ),
        }
    ),
}
"""The migrations by the version that they lead to; the first tables were those of version 1."""


def _prefixed(statement: str, prefix: str) -> str:
    return re.sub(r"{(\w+)}", rf"{prefix}\1", statement)


def _typed(statement: str, dialect: str) -> str:
    types = _TYPES[dialect]
    statement = re.sub(r"\bNAME\((\d+)\)", types["NAME"], statement)
    return re.sub(r"\b(BYTES|REAL)\b", lambda name: types[name[1]], statement)


def migration_steps(
    connection: Connection, version: int, *, prefix: str, dialect: str
) -> Iterator[str]:
    """Yield the statements that are missing from a version to this one, in SQL.

    Each has to be executed before the next is asked for.
    """
    for number in sorted(MIGRATIONS):
        if number > version:
            yield from MIGRATIONS[number].statements(connection, prefix, dialect)
            # The prefix was checked when the database was opened, and the number is ours.
            yield f"UPDATE {prefix}schema SET version = {number}"  # noqa: S608


def lock_schema(connection: Connection, *, prefix: str, dialect: str) -> None:
    """Keep other processes from migrating until the transaction, or the connection, ends."""
    if dialect == "postgresql":
        connection.execute(text(f"LOCK TABLE {prefix}schema IN EXCLUSIVE MODE"))
    elif dialect == "mysql":
        # A lock of a row would end with the first change of a table.
        name = {"name": f"{prefix}migrating", "seconds": _SECONDS_FOR_THE_LOCK}
        if connection.scalar(text("SELECT GET_LOCK(:name, :seconds)"), name) != 1:
            raise StoreError("another process is migrating the tables; wait for it, and try again")


def unlock_schema(connection: Connection, *, prefix: str, dialect: str) -> None:
    """Let other processes migrate again, where the end of a transaction does not."""
    if dialect == "mysql":
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": f"{prefix}migrating"})
