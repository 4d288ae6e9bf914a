"""Databases for tests: one server of each kind for a process, an empty database for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from database.database_servers import KINDS, Server, missing, running
from promptgraft.service.database import Database


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    with running("postgresql") as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    with running("mariadb") as server:
        yield server


def _url(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder / 'graft.db'}"
    if why := missing(kind):
        # Where they were installed, a server that is not found is a fault.
        (pytest.fail if os.environ.get("PROMPTGRAFT_DATABASES") else pytest.skip)(why)
    server: Server = request.getfixturevalue(kind)
    return server.fresh()


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a database of each kind, without tables."""
    return _url(request.param, request, tmp_path)


@pytest.fixture(scope="module", params=KINDS)
def kept_database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    database = Database(_url(request.param, request, tmp_path_factory.mktemp("database")))
    yield database
    database.close()


@pytest.fixture
def database(kept_database: Database) -> Database:
    """Return a database of each kind with empty tables, opened once for all tests of a module."""

    def empty(connection: sqlalchemy.Connection) -> None:
        for table in reversed(kept_database.tables.metadata.sorted_tables):
            if table is not kept_database.tables.schema:
                connection.execute(sqlalchemy.delete(table))

    kept_database.write(empty)
    return kept_database
