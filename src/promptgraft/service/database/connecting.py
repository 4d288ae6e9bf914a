"""URLs of databases, and connections as the engine wants them."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor, Dialect
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from promptgraft.errors import ConfigError
from promptgraft.ground.files import NEW_FILE
from promptgraft.ground.serde import did_you_mean, shown

_DRIVERS = {
    "sqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
}
_EXPECTED = (
    "sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME or mysql://USER:PASSWORD@HOST/NAME"
)
_SECONDS_BETWEEN_ATTEMPTS = 0.02
_PATH = re.compile(r"[\w./-]+\.(?:db|sqlite3?)")
_SUFFIXES = {".db", ".sqlite", ".sqlite3"}

_SETTINGS = {
    "sqlite": ("PRAGMA busy_timeout={ms}", "PRAGMA journal_mode=WAL", "PRAGMA foreign_keys=ON"),
    "postgresql": (
        "SET SESSION lock_timeout = {ms}",
        "SET SESSION default_transaction_isolation = 'read committed'",
        "SET SESSION idle_in_transaction_session_timeout = {ms}",
    ),
    "mysql": (
        "SET SESSION innodb_lock_wait_timeout = {seconds}",
        # By default, a transaction that waits for a lock does not see what its holder has written.
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES'",
        "SET SESSION time_zone = '+00:00'",
    ),
}
"""Statements that set up a new connection, by dialect."""


def url_of(given: object) -> URL:
    """Return the URL of a database, with its driver.

    Raises:
        ConfigError: it is not the URL of a database that is supported.
    """
    if not isinstance(given, str):
        raise ConfigError(f"url: expected {_EXPECTED}, found {shown(given)}")
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        # Not shown, since it may contain a password; a path of letters has none.
        path = given.removeprefix("sqlite:").lstrip("/")
        mend = f"; did you mean `sqlite:///{path}`?" if _PATH.fullmatch(path) else ""
        raise ConfigError(f"url: expected {_EXPECTED}{mend}") from None
    kind, _, driver = url.drivername.partition("+")
    if kind not in _DRIVERS:
        raise ConfigError(f"url: expected {_EXPECTED}, found a URL of `{url.drivername}`")
    return url if driver else url.set(drivername=_DRIVERS[kind])


def engine_of(url: URL, timeout_seconds: float) -> Engine:
    """Return an engine whose connections are waited for so long.

    Raises:
        ConfigError: the driver is not installed.
    """
    size, arguments = 16, dict[str, object]()
    if url.drivername.startswith("sqlite") and url.database in {None, "", ":memory:"}:
        # A database in memory belongs to one connection, which threads have to share.
        size, arguments = 1, {"check_same_thread": False}
    elif url.drivername.startswith("mysql"):
        # MySQL has no timeout for idle transactions alone, only for idle connections.
        idle = max(1, round(timeout_seconds))
        arguments = {"init_command": f"SET SESSION wait_timeout = {idle}"}
    try:
        return create_engine(
            url,
            connect_args=arguments,
            poolclass=QueuePool,
            pool_pre_ping=True,
            pool_use_lifo=True,
            pool_size=size,
            max_overflow=0 if size == 1 else size,
            pool_timeout=timeout_seconds,
        )
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        missing = getattr(error, "name", None) or url.drivername
        raise ConfigError(
            f"url: databases of {url.drivername.partition('+')[0]} need {missing}; run "
            '`pip install "promptgraft[server]"`'
        ) from None


def apart_from(engine: Engine) -> Engine:
    """Return an engine for the same database that shares no connections with this one."""
    if engine.url.database in {None, "", ":memory:"} and engine.dialect.name == "sqlite":
        return engine  # a database in memory belongs to one connection
    return Engine(engine.pool.recreate(), engine.dialect, engine.url)


_creating = threading.Lock()


def has_no_file(url: URL) -> bool:
    """Return whether this is a SQLite database whose file does not exist, but its folder does."""
    name = url.database or ":memory:"
    is_path = url.get_backend_name() == "sqlite" and name != ":memory:" and "uri" not in url.query
    return is_path and Path(name).parent.is_dir() and not Path(name).exists()


def require_file(
    _: Dialect, __: ConnectionPoolEntry, arguments: list[str], options: dict[str, object]
) -> None:
    """Refuse to open a SQLite database without a file, which SQLite would create.

    Raises:
        FileNotFoundError: there is no such file.
    """
    path = Path(arguments[0] if arguments else ":memory:")
    if str(path) == ":memory:" or options.get("uri") or path.exists():
        return
    names = [file.name for file in path.parent.glob("*") if file.suffix in _SUFFIXES]
    raise FileNotFoundError(
        f"there is no file {path}{did_you_mean(path.name, names)}; `promptgraft jobs submit`, "
        "`worker` and `serve` make one"
    )


def create_file(
    _: Dialect, __: ConnectionPoolEntry, arguments: list[str], options: dict[str, object]
) -> None:
    """Create the file of a SQLite database before it is opened, if it does not exist.

    SQLite itself would create it with 644 less the umask, and its log with the same: a group that
    may write by its umask could not.
    """
    name = arguments[0] if arguments else ""
    if not name or name == ":memory:" or options.get("uri"):
        return
    # Only new files: to close an old one would drop the locks that this process has on it. Under a
    # lock, so that no other thread opens the new one before it is closed here.
    with _creating, contextlib.suppress(OSError):  # which SQLite will report
        os.close(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, NEW_FILE))


def shown_url(url: URL) -> str:
    """Return a URL without user, password and options."""
    kind = url.get_backend_name()
    return URL.create(kind, host=url.host, port=url.port, database=url.database).render_as_string()


def setting_up(
    dialect: str, seconds: float
) -> Callable[[DBAPIConnection, ConnectionPoolEntry], None]:
    """Return a listener that sets up new connections, which wait for locks for ``seconds``.

    Raises:
        ConfigError: databases of this kind are not supported.
    """
    if dialect not in _SETTINGS:
        raise ConfigError(f"url: expected {_EXPECTED}, found a database of {dialect}")
    statements = [
        statement.format(seconds=max(1, round(seconds)), ms=round(seconds * 1000))
        for statement in _SETTINGS[dialect]
    ]

    def set_up(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        if isinstance(connection, sqlite3.Connection):
            # Python's driver would otherwise begin transactions at moments of its own.
            connection.isolation_level = None
        cursor = connection.cursor()
        for statement in statements:
            _execute(cursor, statement, seconds)
        cursor.close()
        connection.commit()

    return set_up


def _execute(cursor: DBAPICursor, statement: str, seconds: float) -> None:
    """Execute a statement, and wait for locks also where SQLite does not.

    It refuses to change the journal mode at once while another process uses a new file.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            cursor.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
        else:
            return
