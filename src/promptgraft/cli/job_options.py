"""What ``promptgraft jobs`` and ``worker`` share: the database, and the projects of jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from promptgraft.cli.choosing import project_path
from promptgraft.errors import ConfigError

if TYPE_CHECKING:
    from promptgraft.database import Database
    from promptgraft.jobs import JobManager

EXTRA = 'run `pip install "promptgraft[server]"`'
_NOT_A_NAME = re.compile(r"[^a-z0-9_-]+")

jobs_option = click.option(
    "--jobs",
    "url",
    metavar="URL",
    envvar="PROMPTGRAFT_JOBS",
    help="The database of the jobs, such as `sqlite:///jobs.db`; by default the variable "
    "PROMPTGRAFT_JOBS.",
)

projects_option = click.option(
    "--project",
    "projects",
    metavar="[NAME=]FILE",
    multiple=True,
    help="A project file, and what jobs call it; by default `promptgraft.yaml` here or in the "
    "nearest folder above, by the name of its folder. May be given several times.",
)


def opened(url: str | None) -> Database:
    """Return the database of a URL."""
    if url is None:
        raise ConfigError("--jobs: name the database, such as sqlite:///jobs.db")
    try:
        from promptgraft.database import Database
    except ModuleNotFoundError as error:
        raise ConfigError(f"jobs need {error.name}; {EXTRA}") from None
    return Database(url)


@contextmanager
def managed(url: str | None, projects: Mapping[str, Path] | None = None) -> Iterator[JobManager]:
    """Give the jobs of a database."""
    database = opened(url)
    from promptgraft.jobs import JobManager

    try:
        yield JobManager(database, projects=projects)
    finally:
        database.close()


def named_projects(given: tuple[str, ...]) -> dict[str, Path]:
    """Return project files by their names for jobs."""
    found: dict[str, Path] = {}
    for one in given or ("",):
        name, sign, file = one.rpartition("=")
        path = project_path(file or None)
        named = name if sign else _NOT_A_NAME.sub("-", path.absolute().parent.name.lower())
        if found.setdefault(named[:64].strip("-_") or "project", path) != path:
            raise ConfigError(f"--project: two projects are called `{named}`; write NAME={path}")
    return found
