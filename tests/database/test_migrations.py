"""Migrations: databases of every earlier version, kept as files, become those of this one."""

from __future__ import annotations

import gzip
import hashlib
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy.engine import make_url

from database.database_servers import KINDS
from jobs.job_world import write_project
from promptgraft.cli.main import run
from promptgraft.service.database import Database, DatabaseError, SqlPromptOverridesStore
from promptgraft.service.database.migrations import MIGRATIONS
from promptgraft.service.database.tables import SCHEMA_VERSION
from promptgraft.service.jobs import JobManager, JobState
from promptgraft.service.server import Scope, TokenStore
from promptgraft.testing.prompts import PROMPT, TONE

KEPT = Path(__file__).parent / "kept"
TOKEN = "Y08UKD52GNbpeuRBlCk027SMc56qXrhYXo9p3kY1f7o"
DIGESTS = {
    "sqlite": "def2ae33d04ed4c3efc54ef7560afb6d5aa2a70563623b7a1a42c15ccc60dd65",
    "postgresql": "d7f2a6d42fbaa9a86db83037e180897f1d5280ef93343d619604132c75556153",
    "mysql": "0a2c692066076bb0847da3756bd3368e9595dd336f04d20f10f1d97b52d859c1",
}
"""SHA-256 of the SQL of the tables of this version.

A change of the tables changes them. It needs a new version, a migration, a kept database of the
version before (`kept/version_N.db.gz`, and its definitions), and then new digests here.
"""


def definition(dialect: str) -> str:
    return Database({"sqlite": "sqlite://"}.get(dialect, f"{dialect}://a/b")).definition()


@pytest.mark.parametrize("dialect", DIGESTS)
def test_the_tables_of_a_version_never_change(dialect: str) -> None:
    digest = hashlib.sha256(definition(dialect).encode()).hexdigest()
    assert (SCHEMA_VERSION, digest) == (5, DIGESTS[dialect])
    assert list(MIGRATIONS) == list(range(2, SCHEMA_VERSION + 1))


@pytest.fixture(params=range(1, SCHEMA_VERSION))
def kept_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "jobs.db"
    path.write_bytes(gzip.decompress((KEPT / f"version_{request.param}.db.gz").read_bytes()))
    return path


def test_a_file_of_an_earlier_version_is_opened_with_all_it_has(
    kept_file: Path, tmp_path: Path
) -> None:
    project = write_project(tmp_path / "support")
    url = f"sqlite:///{kept_file}"
    with closing(JobManager(url, projects={"support": project})) as manager:
        waiting, done = manager.list()
        assert (waiting.state, waiting.prompt) == (JobState.QUEUED, "other")
        assert (done.state, done.changes.note) == (JobState.COMPLETED, "kept")
        assert manager.result(done.id) is not None
        assert done.status.revisions
        assert len(manager.events(done.id)) > 5
        assert (manager.mirror(done.id, tmp_path / "runs") / "journal.jsonl").stat().st_size
        # The first version had the winners of all projects in one place.
        stores = [SqlPromptOverridesStore(manager.database, project=of) for of in ("", "support")]
        tags = [address.tag for store in stores for address in store.addresses()]
        assert tags == [done.candidate_tag]
        saved = manager.save_dataset("support", "hard", '{"input": "a", "expected": "login"}')
        assert [row.number for row in manager.datasets("support")] == [saved.number] == [1]
        caller = TokenStore(manager.database).find(TOKEN)
        assert caller is not None
        assert caller.scopes == {Scope.READ, Scope.APPROVE}
        assert caller.projects == frozenset({"support"})


def dumped(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


@pytest.mark.parametrize("kept_file", [1], indirect=True)
def test_the_command_says_what_it_would_do_and_does_it_once(
    kept_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dumped(kept_file)
    command = ["jobs", "migrate", "--jobs", f"sqlite:///{kept_file}"]
    assert run([*command, "--dry-run"]) == 0
    sql = capsys.readouterr().out
    assert "CREATE TABLE promptgraft_requests" in sql
    assert f"UPDATE promptgraft_schema SET version = {SCHEMA_VERSION};" in sql
    assert dumped(kept_file) == before
    assert run(command) == 0
    assert "migrated" in capsys.readouterr().out
    assert run(command) == 0
    assert "the tables are current" in capsys.readouterr().out


def shape(database: Database) -> dict[str, object]:
    """Return the columns and keys of all tables, however they came about."""
    engine = database._engine
    inspector = sqlalchemy.inspect(engine)
    return {
        table: (
            {
                (column["name"], str(column["type"]), column["nullable"])
                for column in inspector.get_columns(table)
            },
            inspector.get_pk_constraint(table)["constrained_columns"],
            sorted(key["column_names"] for key in inspector.get_unique_constraints(table)),
        )
        for table in inspector.get_table_names()
    }


def made_as(version: int, url: str) -> None:
    """Make the tables of an earlier version."""
    given = make_url(url)
    kind = {"mariadb": "mysql"}.get(given.drivername, given.drivername)
    drivers = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
    engine = sqlalchemy.create_engine(given.set(drivername=drivers[kind]))
    with engine.begin() as connection:
        for statement in (KEPT / f"version_{version}.{kind}.sql").read_text().split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)
    engine.dispose()


VERSIONS = range(1, SCHEMA_VERSION)


@pytest.fixture(params=VERSIONS)
def earlier(url: str, request: pytest.FixtureRequest) -> Iterator[Database]:
    """Give a database server with the tables of an earlier version."""
    made_as(request.param, url)
    with closing(Database(url)) as database:
        yield database


@pytest.mark.parametrize("url", KINDS[1:], indirect=True)
def test_a_database_server_is_migrated_when_it_is_told_to(earlier: Database, url: str) -> None:
    store = SqlPromptOverridesStore(earlier)
    with pytest.raises(
        DatabaseError, match=r"found version [1234]; stop its .*`promptgraft jobs migr"
    ):
        store.addresses()
    earlier.migrate()
    store.set_section_override(PROMPT, path=TONE, body="kind")
    assert earlier.pending_migration() == []
    with closing(Database(url, prefix="fresh_")) as fresh:
        fresh.write(lambda _: None)
        tables = shape(fresh)
    for name, found in tables.items():
        if name.startswith("fresh_"):
            assert tables[name.replace("fresh_", "promptgraft_")] == found, name


@pytest.mark.parametrize("earlier", [VERSIONS[0]], indirect=True)
@pytest.mark.parametrize("url", KINDS[1:], indirect=True)
def test_several_may_migrate_at_once_and_go_on_where_one_was_killed(
    earlier: Database, url: str
) -> None:
    with earlier._engine.begin() as connection:
        # What a process had done that died in the middle.
        connection.exec_driver_sql(
            "ALTER TABLE promptgraft_jobs ADD COLUMN calls INTEGER NOT NULL DEFAULT 0"
        )
    databases = [Database(url) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(Database.migrate, databases))
    assert earlier.pending_migration() == []
    for database in databases:
        database.close()


def test_a_migrated_file_has_the_tables_of_a_new_one(kept_file: Path, tmp_path: Path) -> None:
    shapes = []
    for path in (kept_file, tmp_path / "new.db"):
        with closing(Database(f"sqlite:///{path}")) as database:
            database.write(lambda _: None)
            shapes.append(shape(database))
    assert shapes[0] == shapes[1]


def test_an_empty_database_has_nothing_to_migrate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.db").touch()
    assert run(["jobs", "migrate", "--jobs", f"sqlite:///{tmp_path}/jobs.db"]) == 2
    assert "there is nothing to migrate" in capsys.readouterr().err
