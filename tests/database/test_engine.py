"""Databases: their tables, what is refused, and what messages say."""

from __future__ import annotations

import gc
import sqlite3
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy.engine import make_url

from database.database_servers import KINDS
from promptgraft.errors import ConfigError
from promptgraft.service.database import Database, DatabaseError, SqlPromptOverridesStore
from promptgraft.service.database.tables import SCHEMA_VERSION
from promptgraft.testing.prompts import PROMPT, TONE

EXPECTED = (
    "url: expected sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME or "
    "mysql://USER:PASSWORD@HOST/NAME"
)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", EXPECTED),
        ("my secret", EXPECTED),
        ("oracle://tiger@host/db", f"{EXPECTED}, found a URL of `oracle`"),
        (3, f"{EXPECTED}, found 3"),
    ],
)
def test_a_url_of_something_else_is_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Database(url)
    assert str(refused.value) == message


@pytest.mark.parametrize("prefix", ["1a", "a-b", "a" * 31, "A", "x; drop"])
def test_a_prefix_that_is_none_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="prefix: expected up to 30 lower-case letters"):
        Database("sqlite://", prefix=prefix)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(ConfigError, match=r"run `pip install \"promptgraft\[server\]\"`"):
        Database("mysql://root@localhost/x")


def test_what_cannot_be_reached_is_named_without_its_password(tmp_path: Path) -> None:
    nowhere = f"postgresql://me:hunter2@/db?host={tmp_path}&password=hunter3"
    with pytest.raises(DatabaseError, match=r"database postgresql:///db: .*; check that") as error:
        SqlPromptOverridesStore(nowhere).resolve(PROMPT.descriptor)
    assert "hunter" not in f"{error.value}{error.value!r}"


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("these are notes, not a database" * 100)
    with pytest.raises(DatabaseError, match="file is not a database"):
        SqlPromptOverridesStore(f"sqlite:///{path}").addresses()
    assert path.read_text().startswith("these are notes")


def test_tables_of_another_version_are_refused(url: str) -> None:
    first = Database(url)
    first.write(
        lambda connection: connection.execute(
            sqlalchemy.update(first.tables.schema).values(version=7)
        )
    )
    first.close()
    second = Database(url)
    versions = f"expected tables of version {SCHEMA_VERSION}, found version 7; use"
    with pytest.raises(DatabaseError, match=versions):
        SqlPromptOverridesStore(second).addresses()
    second.close()


def test_tables_may_be_made_beforehand(url: str) -> None:
    waiting = Database(url, prefix="own_", create=False)
    driven = make_url(url)
    if driven.get_backend_name() == "sqlite":
        path = Path(str(driven.database))
        with pytest.raises(DatabaseError, match=f"there is no file {path}; `promptgraft jobs"):
            SqlPromptOverridesStore(waiting).addresses()
        assert not path.exists()
        path.touch()
    with pytest.raises(DatabaseError, match="there is no table `own_schema`; `promptgraft jobs"):
        SqlPromptOverridesStore(waiting).addresses()
    drivers = {"postgresql": "postgresql+psycopg", "mariadb": "mysql+pymysql"}
    engine = sqlalchemy.create_engine(
        driven.set(drivername=drivers.get(driven.drivername, driven.drivername))
    )
    with engine.begin() as connection:
        for statement in waiting.definition().split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)
    engine.dispose()
    store = SqlPromptOverridesStore(waiting)
    store.set_section_override(PROMPT, path=TONE, body="kind")
    assert store.resolve(PROMPT.descriptor) is not None
    waiting.close()


def test_many_make_the_tables_at_once(url: str) -> None:
    databases = [Database(url) for _ in range(8)]
    gate = threading.Barrier(len(databases))

    def use(database: Database) -> tuple[object, ...]:
        gate.wait()
        return SqlPromptOverridesStore(database).addresses()

    with ThreadPoolExecutor(len(databases)) as threads:
        found = list(threads.map(use, databases))
    for database in databases:
        database.close()
    assert found == [()] * 8


def test_who_opens_a_new_file_waits_while_another_makes_it(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with (
        closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other,
        closing(Database(f"sqlite:///{path}")) as database,
    ):
        # SQLite itself refuses at once to change the mode of the journal.
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.2, other.execute, ["ROLLBACK"])
        release.start()
        assert SqlPromptOverridesStore(database).addresses() == ()
        release.join()


def test_prefixes_keep_apart(url: str) -> None:
    one, other = Database(url, prefix="one_"), Database(url, prefix="")
    SqlPromptOverridesStore(one).set_section_override(PROMPT, path=TONE, body="kind")
    assert SqlPromptOverridesStore(other).addresses() == ()
    one.close()
    other.close()


def test_what_raises_inside_undoes_everything(database: Database) -> None:
    store = SqlPromptOverridesStore(database)
    store.set_section_override(PROMPT, path=TONE, body="kept")
    tags = database.tables.tags

    def fail(connection: sqlalchemy.Connection) -> None:
        connection.execute(sqlalchemy.update(tags).values(revision=None))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        database.write(fail)
    assert store.resolve(PROMPT.descriptor) is not None


@pytest.mark.parametrize("url", KINDS[1:], indirect=True)
def test_a_transaction_that_does_nothing_frees_its_locks(url: str) -> None:
    stopped, other = Database(url, timeout_seconds=0.2), Database(url)
    tags = stopped.tables.tags
    store = SqlPromptOverridesStore(other)
    store.set_section_override(PROMPT, path=TONE, body="kept")

    def stop(connection: sqlalchemy.Connection) -> None:
        connection.execute(sqlalchemy.update(tags).values(revision=None))
        # Waits for the lock that this transaction holds, as long as it does nothing.
        store.set_section_override(PROMPT, path=TONE, body="new")
        connection.execute(sqlalchemy.select(tags))

    with pytest.raises(DatabaseError):
        stopped.write(stop)
    override = store.resolve(PROMPT.descriptor)
    assert override is not None
    assert override.sections[TONE].body == "new"
    stopped.close()
    other.close()


@pytest.mark.parametrize("url", KINDS[1:], indirect=True)
def test_who_has_no_right_is_told_so(url: str) -> None:
    own = Database(url)
    SqlPromptOverridesStore(own).set_section_override(PROMPT, path=TONE, body="kept")
    reader, schema = f"r{uuid.uuid4().hex[:8]}", own.tables.schema.name
    granted = {
        "postgresql": [f"CREATE ROLE {reader} LOGIN", f"GRANT SELECT ON {schema} TO {reader}"],
        "mysql": [
            f"CREATE USER {reader}@localhost",
            f"GRANT SELECT ON {schema} TO {reader}@localhost",
        ],
    }[own.dialect]
    for statement in granted:
        own.write(lambda connection: connection.exec_driver_sql(statement))  # noqa: B023
    other = Database(make_url(url).set(username=reader).render_as_string(hide_password=False))
    with pytest.raises(DatabaseError, match="give the user the right to read and write the tables"):
        SqlPromptOverridesStore(other).addresses()
    own.close()
    other.close()


def test_who_waits_for_a_lock_is_told_so(url: str) -> None:
    holding, waiting = Database(url), Database(url, timeout_seconds=0.2)
    tags = holding.tables.tags
    store = SqlPromptOverridesStore(holding)
    store.set_section_override(PROMPT, path=TONE, body="kept")
    assert SqlPromptOverridesStore(waiting).resolve(PROMPT.descriptor) is not None

    def hold(connection: sqlalchemy.Connection) -> None:
        connection.execute(sqlalchemy.select(tags).with_for_update())
        with pytest.raises(
            DatabaseError, match="another process has held a lock for too long; check"
        ):
            SqlPromptOverridesStore(waiting).set_section_override(PROMPT, path=TONE, body="new")

    holding.write(hold)
    holding.close()
    waiting.close()


def test_a_connection_in_use_is_closed_when_it_is_returned_after_the_others(url: str) -> None:
    database = Database(url)
    closed: list[object] = []
    with database.reading() as connection:
        in_use = connection.connection.dbapi_connection
        sqlalchemy.event.listen(
            connection.engine.pool, "close", lambda connection, _: closed.append(connection)
        )
        database.close()
        assert closed == []
    assert closed == [in_use]
    with database.reading() as connection:
        assert connection.connection.dbapi_connection is not in_use
    assert closed == [in_use]
    database.close()


def test_a_database_that_nobody_holds_closes_its_connections(url: str) -> None:
    opened: list[object] = []
    closed: list[object] = []
    listeners = (
        ("connect", lambda connection, record: opened.append(connection)),
        ("close", lambda connection, record: closed.append(connection)),
    )
    for name, listener in listeners:
        sqlalchemy.event.listen(sqlalchemy.Pool, name, listener)
    try:
        SqlPromptOverridesStore(url).addresses()
        gc.collect()  # what drivers raised and caught refers to it
    finally:
        for name, listener in listeners:
            sqlalchemy.event.remove(sqlalchemy.Pool, name, listener)
    assert opened
    assert closed == opened
