"""Connections and transactions that behave alike on SQLite, PostgreSQL, MySQL and MariaDB."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Engine,
    Table,
    event,
    func,
    insert,
    literal_column,
    select,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.schema import CreateTable

from promptgraft.errors import ConfigError, Lasting, StoreError
from promptgraft.ground.serde import shown
from promptgraft.service.database.connecting import (
    apart_from,
    create_file,
    engine_of,
    has_no_file,
    require_file,
    setting_up,
    shown_url,
    url_of,
)
from promptgraft.service.database.faults import BUSY, GIVEN_UP, has_code, lasting_of, mend, reason
from promptgraft.service.database.migrations import lock_schema, migration_steps, unlock_schema
from promptgraft.service.database.tables import SCHEMA_VERSION, Tables

T = TypeVar("T")

_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,29}|")
_MOST_ATTEMPTS = 8
_SECONDS_BETWEEN_ATTEMPTS = 0.25
_BUSY_MS = 20


class DatabaseError(StoreError):
    """The database cannot be reached, or refuses a statement.

    Attributes:
        lasting: whether a later call may succeed, by the code of the driver.
    """

    def __init__(self, message: str, lasting: Lasting = Lasting.UNKNOWN) -> None:
        super().__init__(message)
        self.lasting = lasting


class Database:
    """A database and the tables of promptgraft in it; safe to share between threads.

    It is opened on first use. SQLite uses a write-ahead log. Writing transactions take their locks
    with their first statement; a transaction that the database aborts to resolve a deadlock is
    repeated.

    Args:
        url: ``sqlite:///FILE``, ``postgresql://…`` (psycopg 3), ``mysql://…`` or ``mariadb://…``
            (PyMySQL); or an SQLAlchemy engine for one of these.
        prefix: prefix of the names of the tables.
        create: whether missing tables, and the file of an SQLite database, are created; otherwise
            they are an error.
        timeout_seconds: how long a statement waits for a connection or a lock, and how long a
            server lets a transaction idle before it rolls it back. (On an engine of your own,
            idle timeouts of MySQL and MariaDB are left as they are.)
        patience_seconds: how long a write waits for a database that cannot be reached, such as
            one that is being restarted.

    Raises:
        ConfigError: an argument is invalid, or a driver is not installed. No message contains a
            password from the URL.
    """

    def __init__(
        self,
        url: str | Engine,
        *,
        prefix: str = "promptgraft_",
        create: bool = True,
        timeout_seconds: float = 30.0,
        patience_seconds: float = 0.0,
    ) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ConfigError(
                "prefix: expected up to 30 lower-case letters, digits and `_` that begin with a "
                f"letter, found {shown(prefix)}"
            )
        self.prefix = prefix
        self.tables: Tables = Tables.of(prefix)
        self._create = create
        self._timeout_seconds, self._patience_seconds = timeout_seconds, patience_seconds
        self._engine = url if isinstance(url, Engine) else engine_of(url_of(url), timeout_seconds)
        self.dialect = {"mariadb": "mysql"}.get(name := self._engine.dialect.name, name)
        set_up = setting_up(self.dialect, timeout_seconds)
        self.name: str = shown_url(self._engine.url)
        self._opening = threading.Lock()
        self._opened = False
        if self.dialect == "sqlite":
            event.listen(self._engine, "do_connect", create_file if create else require_file)
        event.listen(self._engine, "connect", set_up)
        self._apart = apart_from(self._engine)
        # Not a method: an engine that knew its database would keep it, and its connections.
        event.listen(self._engine, "begin", partial(_begin, self.dialect, timeout_seconds))
        for engine in {self._engine, self._apart}:
            if engine is not url:
                weakref.finalize(self, _close, engine, os.getpid()).atexit = False

    @property
    def has_no_file(self) -> bool:
        """Whether it is an SQLite database whose file does not exist yet."""
        return has_no_file(self._engine.url)

    @property
    def secret_url(self) -> str:
        """The URL with its password, to pass to a child process."""
        return self._engine.url.render_as_string(hide_password=False)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a connection for reading.

        Raises:
            DatabaseError: the database cannot be reached or refuses a statement, or its tables
                belong to another version of promptgraft.
        """
        self._open()
        with self._translated(), self._engine.connect() as connection:
            yield connection

    def check(self) -> None:
        """Have the database answer, on a connection apart from those of other callers.

        These may all be in use, which is no fault of the database.

        Raises:
            DatabaseError: see :meth:`reading`.
        """
        self._open()
        with self._translated(), self._apart.connect() as connection:
            connection.execute(select(self.tables.jobs.c.number).limit(1))

    def write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Run ``work`` in one transaction, and return what it returns.

        An exception rolls the transaction back. ``work`` is called again if the database aborts
        the transaction to resolve a deadlock, so it must have no other effects.

        Args:
            work: reads and writes with a connection.
            durable: whether the write survives a loss of power once this returns. Otherwise it
                survives the death of this process, and the next durable write makes it durable.

        Raises:
            DatabaseError: see :meth:`reading`; nothing was written.
        """
        self._open()
        return self._written(work, durable=durable)

    @property
    def seconds(self) -> ColumnElement[float]:
        """The current time of the database as an SQL expression: seconds since 1970."""
        return literal_column(_SECONDS[self.dialect], Double)

    def now(self, connection: Connection) -> datetime:
        """Return the current time of the database."""
        seconds = connection.scalar(select(self.seconds))
        return datetime.fromtimestamp(float(seconds or 0), UTC)

    def insert_missing(self, connection: Connection, table: Table, **values: str | None) -> None:
        """Insert a row unless its primary key exists."""
        if self.dialect == "postgresql":
            from sqlalchemy.dialects import postgresql

            connection.execute(postgresql.insert(table).values(values).on_conflict_do_nothing())
            return
        ignoring = "OR IGNORE" if self.dialect == "sqlite" else "IGNORE"
        connection.execute(insert(table).prefix_with(ignoring).values(values))

    def close(self) -> None:
        """Close all connections, those in use as they are returned; later use opens new ones."""
        for engine in {self._engine, self._apart}:
            pool = engine.pool
            engine.dispose()
            event.listen(pool, "checkin", lambda _, returned: returned.invalidate())

    def definition(self) -> str:
        """Return the SQL that creates the tables, for use with ``create=False``."""
        tables = self.tables.metadata.sorted_tables
        creates = (CreateTable(table, if_not_exists=True) for table in tables)
        statements = [str(create.compile(self._engine)).strip() for create in creates]
        row = insert(self.tables.schema).values(version=SCHEMA_VERSION, hooks="")
        statements.append(str(row.compile(self._engine, compile_kwargs={"literal_binds": True})))
        return ";\n\n".join(statements) + ";\n"

    def vacuum(self) -> None:
        """Give the room of deleted rows back to the disk, or to new rows; this may take long.

        Raises:
            DatabaseError: the database cannot be reached, or refuses.
        """
        self._open()
        names = [table.name for table in self.tables.metadata.sorted_tables]
        statements = {
            # A log that has grown with the deletions stays as long as it was otherwise.
            "sqlite": ["VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"],
            "postgresql": [f"VACUUM (ANALYZE) {', '.join(names)}"],
            "mysql": [f"OPTIMIZE TABLE {', '.join(names)}"],
        }[self.dialect]
        # None of them may run in a transaction. SQLite's driver begins none by itself here.
        options = {} if self.dialect == "sqlite" else {"isolation_level": "AUTOCOMMIT"}
        with self._translated(), self._engine.connect() as plain:
            connection = plain.execution_options(begins=False, **options)
            for statement in statements:
                connection.exec_driver_sql(statement)

    def pending_migration(self) -> list[str]:
        """Return the SQL that :meth:`migrate` would execute; empty if the tables are current.

        Raises:
            DatabaseError: the database cannot be reached, or has no tables of promptgraft.
        """
        with self._translated(), self._engine.connect() as connection:
            names = {"prefix": self.prefix, "dialect": self.dialect}
            return list(migration_steps(connection, self._existing(connection), **names))

    def migrate(self) -> None:
        """Change tables of an earlier version to those of this one; nothing if they are current.

        No other process may use them meanwhile. If it is interrupted, it is continued when it is
        called again.

        Raises:
            DatabaseError: the database cannot be reached, has no tables of promptgraft, or refuses
                a statement.
        """
        with self._translated(), self._engine.connect() as connection:
            self._existing(connection)
        self._migrated()

    def _existing(self, connection: Connection) -> int:
        version = self._version(connection)
        if version is None:
            raise DatabaseError(
                f"database {self.name}: there is no table `{self.tables.schema.name}`, so there is "
                "nothing to migrate; the first command that uses the database makes the tables",
                Lasting.PERMANENT,
            )
        return version

    def _migrated(self) -> int:
        names = {"prefix": self.prefix, "dialect": self.dialect}

        def migrate(connection: Connection) -> int:
            lock_schema(connection, **names)
            # Under the lock: another process may have migrated them meanwhile.
            try:
                version = self._existing(connection)
                for statement in migration_steps(connection, version, **names):
                    connection.exec_driver_sql(statement)
                return self._existing(connection)
            finally:
                unlock_schema(connection, **names)

        return self._written(migrate, durable=True)

    def _open(self) -> None:
        with self._opening:
            if self._opened:
                return
            with self._translated(), self._engine.connect() as connection:
                version = self._version(connection)
            if version is None:
                version = self._made()
            # Whoever opens a file has it on this machine; a server may have workers elsewhere.
            if version < SCHEMA_VERSION and self.dialect == "sqlite":
                version = self._migrated()
            if version != SCHEMA_VERSION:
                mend = (
                    "stop its servers and workers, and run `promptgraft jobs migrate`"
                    if version < SCHEMA_VERSION
                    else "use the promptgraft that made them, or another prefix"
                )
                raise DatabaseError(
                    f"database {self.name}: expected tables of version {SCHEMA_VERSION}, found "
                    f"version {version}; {mend}",
                    Lasting.PERMANENT,
                )
            self._opened = True

    def _version(self, connection: Connection) -> int | None:
        """Return the version of the tables; None if there are none."""
        schema = self.tables.schema
        if not self._engine.dialect.has_table(connection, schema.name):
            return None
        version: int | None = connection.scalar(select(func.max(schema.c.version)))
        return version

    def _made(self) -> int:
        if not self._create:
            raise DatabaseError(
                f"database {self.name}: there is no table `{self.tables.schema.name}`; `promptgraft"
                " jobs submit`, `worker` and `serve` make the tables, and `promptgraft jobs schema`"
                " prints their SQL",
                Lasting.PERMANENT,
            )

        def make(connection: Connection) -> int:
            for table in self.tables.metadata.sorted_tables:
                connection.execute(CreateTable(table, if_not_exists=True))
            version = self._version(connection)
            if version is None:
                connection.execute(insert(self.tables.schema).values(version=SCHEMA_VERSION))
            return version or SCHEMA_VERSION

        # Any error is retried: processes that create the tables at the same time collide.
        return self._written(make, durable=True, repeats_all=True)

    def _written(
        self, work: Callable[[Connection], T], *, durable: bool, repeats_all: bool = False
    ) -> T:
        attempt, began = 0, time.monotonic()
        with self._translated():
            while True:
                is_connected = is_done = False
                try:
                    with self._engine.connect() as plain:
                        is_connected = True
                        connection = plain.execution_options(durable=durable, writes=True)
                        with connection.begin():
                            written = work(connection)
                            is_done = True
                        return written
                except DBAPIError as error:
                    passed = time.monotonic() - began
                    if has_code(error, BUSY) and passed < self._timeout_seconds:
                        continue
                    is_away = not is_connected or error.connection_invalidated
                    # If the connection broke during a commit, the commit may have succeeded.
                    if is_away and not is_done and passed < self._patience_seconds:
                        time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
                        continue
                    attempt += 1
                    if not (repeats_all or has_code(error, GIVEN_UP)) or attempt == _MOST_ATTEMPTS:
                        raise

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise DatabaseError(
                f"database {self.name}: {reason(error)}; {mend(error)}", lasting_of(error)
            ) from error
        except FileNotFoundError as error:
            raise DatabaseError(f"database {self.name}: {error}", Lasting.PERMANENT) from None


def _close(engine: Engine, process: int) -> None:
    engine.dispose(close=process == os.getpid())  # a forked child must not close its parent's


def _begin(dialect: str, timeout_seconds: float, connection: Connection) -> None:
    options = connection.get_execution_options()
    if not options.get("begins", True):
        return
    durable, writes = options.get("durable", True), options.get("writes", False)
    if dialect == "sqlite" and not writes:
        connection.exec_driver_sql("BEGIN")
    elif dialect == "sqlite":
        level = "FULL" if durable else "NORMAL"
        connection.exec_driver_sql(f"PRAGMA synchronous={level}")
        # SQLite's own handler backs off, and would starve behind writers that take turns:
        # give up soon, and let `_written` try again.
        connection.exec_driver_sql(f"PRAGMA busy_timeout={_BUSY_MS}")
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        finally:
            ms = round(timeout_seconds * 1000)
            connection.exec_driver_sql(f"PRAGMA busy_timeout={ms}")
    elif dialect == "postgresql" and writes and not durable:
        connection.exec_driver_sql("SET LOCAL synchronous_commit = off")


_SECONDS = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "cast(extract(epoch from clock_timestamp()) as double precision)",
    "mysql": "unix_timestamp(now(6)) + 0e0",
}
"""Seconds since 1970 in SQL, by dialect."""
