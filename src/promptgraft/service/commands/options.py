"""Options of the commands about jobs: where jobs are, and of which projects."""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from promptgraft.cli import options
from promptgraft.cli.output import echo
from promptgraft.errors import ConfigError
from promptgraft.project.files import project_path

if TYPE_CHECKING:
    from promptgraft.service.database import Database
    from promptgraft.service.jobs import JobManager, Jobs

EXTRA = 'run `pip install "promptgraft[server]"`'
_NOT_A_NAME = re.compile(r"[^a-z0-9_-]+")

_jobs_option = functools.partial(
    click.option,
    "--jobs",
    "url",
    metavar="URL",
    help="The database of the jobs, such as `sqlite:///jobs.db`; by default the variable "
    "PROMPTGRAFT_JOBS.",
)
jobs_option = _jobs_option(envvar="PROMPTGRAFT_JOBS")
_at_options = options.together(
    _jobs_option(),
    click.option(
        "--server",
        metavar="URL",
        help="The server of the jobs, instead of a database; by default the variable "
        "PROMPTGRAFT_SERVER. The variable PROMPTGRAFT_TOKEN holds a token of the server.",
    ),
)

projects_option = click.option(
    "--project",
    "projects",
    metavar="[NAME=]FILE",
    multiple=True,
    help="A project file, and its name in jobs, by default that of its folder; may be repeated. By "
    "default `promptgraft.yaml` here or in the nearest folder above. With a server, the name of "
    "one of its projects.",
)


webhooks_option = click.option(
    "--webhooks",
    metavar="FILE",
    envvar="PROMPTGRAFT_WEBHOOKS",
    help="A file of webhooks that receive the events of jobs; by default the variable "
    "PROMPTGRAFT_WEBHOOKS, or none.",
)


log_option = click.option(
    "--log",
    "log",
    type=click.Choice(["text", "json"]),
    default="text",
    help="The form of the log on standard error: lines, or a JSON object per line.",
)


@contextmanager
def sending_webhooks(manager: JobManager, file: str | None) -> Iterator[None]:
    """Send events to the webhooks in a file while the context is open."""
    if file is None:
        yield
        return
    from promptgraft.service.jobs import webhooks

    sender = webhooks.WebhookSender(manager.database, webhooks.read_webhooks(file))
    ending = threading.Event()
    thread = threading.Thread(target=sender.run, args=(ending,), name="webhooks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        # Joined: a delivery that is on its way would otherwise be sent again by the next process.
        ending.set()
        thread.join()


def opened(url: str | None, *, creates: bool = False) -> Database:
    """Open the database at a URL.

    Args:
        url: the URL; None if none is named.
        creates: whether a database is made where there is none.
    """
    if url is None:
        raise ConfigError("--jobs: name the database, such as sqlite:///jobs.db")
    try:
        from promptgraft.service.database import Database
    except ModuleNotFoundError as error:
        raise ConfigError(f"jobs need {error.name}; {EXTRA}") from None
    return Database(url, create=creates)


@attrs.frozen
class JobsPlace:
    """Where jobs are: in the database ``url``, or behind ``server``."""

    url: str | None
    server: str | None

    @contextmanager
    def opened(
        self, projects: tuple[str, ...] | None = None, *, creates: bool = False
    ) -> Iterator[Jobs]:
        """Yield the jobs, with the named projects; a server uses its own."""
        if self.server is None:
            named = None if projects is None else named_projects(projects)
            with managed(self.url, named, creates=creates) as manager:
                tell = announced(manager.database)
                yield manager
                tell()
            return
        token = os.environ.get("PROMPTGRAFT_TOKEN")
        if not token:
            raise ConfigError(
                "--server: put a token of the server into the variable PROMPTGRAFT_TOKEN; "
                "`promptgraft tokens create` makes one there"
            )
        try:
            from promptgraft.service.jobs import JobClient
        except ModuleNotFoundError as error:
            raise ConfigError(f"jobs need {error.name}; {EXTRA}") from None
        with JobClient(self.server, token=token) as client:
            yield client

    def project(self, given: tuple[str, ...]) -> str:
        """Return the name of the one project of a new job."""
        is_named = self.server is not None and given
        try:
            names = list(given if is_named else named_projects(given))
        except ConfigError as error:
            if self.server is None or given:
                raise
            raise ConfigError(f"--project: name a project of {self.server}; {error}") from None
        if len(names) > 1:
            raise ConfigError("--project: a job belongs to one project; name it once")
        return names[0]


def place_options(command: options.Command) -> options.Command:
    """Add ``--jobs`` and ``--server``; the command receives ``place``, a :class:`JobsPlace`."""

    @functools.wraps(command)
    def wrapped(*, url: str | None, server: str | None, **others: object) -> int | None:
        if url and server:
            raise ConfigError("--jobs and --server: both say where the jobs are; leave one out")
        # Not by `envvar` of the options: one that is given overrides the variables of both.
        if not (url or server):
            url, server = (os.environ.get(f"PROMPTGRAFT_{name}") for name in ("JOBS", "SERVER"))
        return command(place=JobsPlace(url or None, None if url else server or None), **others)

    return _at_options(wrapped)


@contextmanager
def managed(
    url: str | None, projects: Mapping[str, Path] | None = None, *, creates: bool = False
) -> Iterator[JobManager]:
    """Yield the jobs of a database."""
    database = opened(url, creates=creates)
    from promptgraft.service.jobs import JobManager

    try:
        yield JobManager(database, projects=projects)
    finally:
        database.close()


def announced(database: Database) -> Callable[[], None]:
    """Return a function that says that a database is new, if it has no file at this moment."""
    is_new = database.has_no_file

    def tell() -> None:
        if is_new:
            echo(f"new database {database.name}", error=True)

    return tell


def named_projects(given: tuple[str, ...]) -> dict[str, Path]:
    """Return project files by their names in jobs."""
    projects_by_name: dict[str, Path] = {}
    for project_given in given or ("",):
        name, sign, file = project_given.rpartition("=")
        path = project_path(file or None)
        named = name if sign else _NOT_A_NAME.sub("-", path.absolute().parent.name.lower())
        # The length that the table of jobs has for names.
        if projects_by_name.setdefault(named[:64].strip("-_") or "project", path) != path:
            raise ConfigError(f"--project: two projects are called `{named}`; write NAME={path}")
    return projects_by_name
