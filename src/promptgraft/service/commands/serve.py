"""``promptgraft serve``, ``tokens`` and ``worker``: the processes that serve and run jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Literal

import click

from promptgraft.cli import options
from promptgraft.cli.exits import handling_signals
from promptgraft.cli.main import run
from promptgraft.cli.output import Screen, echo, print_json
from promptgraft.errors import ConfigError
from promptgraft.ground.folders import temporary_folder
from promptgraft.ground.serde import did_you_mean
from promptgraft.project.files import project_around
from promptgraft.service.commands.door import Door, door_options
from promptgraft.service.commands.options import (
    EXTRA,
    announced,
    jobs_option,
    log_option,
    managed,
    named_projects,
    projects_option,
    sending_webhooks,
    webhooks_option,
)

if TYPE_CHECKING:
    from promptgraft.service.server.tokens import TokenStore

_SECONDS_FOR_WORKERS = 35  # a worker gives its own children 30
"""How long workers may take to pause their jobs; longer than they allow a job for that."""


@options.command("serve", "serve --demo", "serve --jobs sqlite:///jobs.db --workers 2")
@click.option(
    "--workers", type=options.at_least(0), default="0", help="Workers to run with the server."
)
@click.option("--demo", is_flag=True, help="Show jobs that improve an example prompt, offline.")
@door_options
@webhooks_option
@log_option
@projects_option
@jobs_option
def serve_command(
    *,
    door: Door,
    workers: int,
    demo: bool,
    webhooks: str | None,
    log: Literal["text", "json"],
    projects: tuple[str, ...],
    url: str | None,
) -> None:
    """Serve jobs over HTTP, with a dashboard.

    On a loopback address it prints a link that signs one browser in. Any other address needs
    tokens (`promptgraft tokens create`), and TLS here or in a proxy.
    """
    with ExitStack() as stack:
        is_asked_to_end = stack.enter_context(_ended_in_order())
        if demo:
            url, projects, workers = stack.enter_context(_demo())
        named = named_projects(projects)
        manager = stack.enter_context(managed(url, named, creates=True))
        tell = announced(manager.database)
        stack.enter_context(_logged(log))
        stack.enter_context(sending_webhooks(manager, webhooks))
        if demo:
            for changes in _DEMO_JOBS:
                manager.create("demo", None, changes)
        try:
            from promptgraft.service.server import app as served
        except ModuleNotFoundError as error:
            raise ConfigError(f"serving needs {error.name}; {EXTRA}") from None
        socket = stack.enter_context(served.bound(door.host, door.port))
        port = socket.getsockname()[1]
        access = served.make_access(
            manager.database,
            hosts=[*door.names(port), *door.known_as],
            limits=door.limits,
            proxy_from=door.proxy_from,
            user_header=door.user_header or "",
            user_scopes=door.user_scopes,
            oidc=door.oidc,
            is_secure=door.is_secure,
        )
        # Readable by this user only; what is in it can be written again from the database.
        mirrors = stack.enter_context(temporary_folder())
        # Before there are workers, which would also say that they have made it.
        manager.database.check()
        stack.enter_context(_workers(workers, manager.database.secret_url, projects, log))
        if not demo:
            tell()
        if door.is_local:
            echo(f"open {door.address(port)}/login?code={access.new_code()}")
        else:
            echo(f"serving {door.address(port)}")
        # The link must appear before the server blocks, also in a pipe.
        sys.stdout.flush()
        ending = threading.Event()
        app = served.make_app(
            manager, access=access, mirrors=mirrors, base_path=door.base_path, ending=ending
        )
        files = {"certificate": door.certificate, "key": door.key}
        # uvicorn installs handlers of its own, which know nothing of a signal before them.
        if not is_asked_to_end():
            served.serve(served.server_settings(app, access.limits, **files), socket, ending)


def _logged(form: Literal["text", "json"]) -> AbstractContextManager[None]:
    """Return a context in which logs are written to standard error."""
    from promptgraft.service.jobs.logs import writing_logs  # needs the extra `server`

    return writing_logs(form)


@contextmanager
def _ended_in_order() -> Iterator[Callable[[], bool]]:
    """Exit on SIGTERM and Ctrl+C in a way that also ends workers and removes temporary folders.

    Yields a function that returns whether a signal has arrived: the exception that a handler
    raises is lost inside a finalizer. uvicorn re-raises the signal that has ended it, so the
    handler may run twice.
    """
    ended_children: list[object] = []

    def end(number: int, _: object) -> None:
        ended_children.append(number)
        raise SystemExit(0)

    with handling_signals(end):
        yield lambda: bool(ended_children)


_DEMO_JOBS: Sequence[Mapping[str, object]] = (
    {"note": "Improve the prompt with the limits of the project"},
    {"seed": 1, "note": "The same search in another order: is the gain stable?"},
    {"budget": 300, "note": "A fifth of the test calls: what does a short search give?"},
)
"""The jobs of the demo, which answer three questions of a visitor."""


@contextmanager
def _demo() -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Yield database, projects and number of workers of the demo, all in a temporary folder."""
    with temporary_folder() as folder:
        project = folder / "demo"
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a device
            stdout, sys.stdout = sys.stdout, nowhere
            try:
                run(["init", str(project)])
            finally:
                sys.stdout = stdout
        yield f"sqlite:///{folder}/jobs.db", (f"demo={project}/promptgraft.yaml",), 1


@contextmanager
def _workers(count: int, url: str, projects: tuple[str, ...], log: str) -> Iterator[None]:
    """Run workers while the context is open."""
    named = [part for name in projects for part in ("--project", name)]
    environment = {**os.environ, "PROMPTGRAFT_JOBS": url}
    # With `-P` no module in the current folder can take the place of promptgraft.
    command = [sys.executable, "-P", "-m", "promptgraft", "worker", "--log", log, *named]
    # The URL is passed in the environment because it may contain a password.
    started = [subprocess.Popen(command, env=environment) for _ in range(count)]  # noqa: S603
    try:
        yield
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            try:
                process.wait(_SECONDS_FOR_WORKERS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@click.group(
    "tokens", epilog=options.examples("tokens create ci --scope submit --scope read", "tokens list")
)
def tokens_command() -> None:
    """Create, list and revoke the tokens of a server."""


@contextmanager
def _opened_tokens(url: str | None, *, creates: bool = False) -> Iterator[TokenStore]:
    """Yield the tokens in a database."""
    with managed(url, creates=creates) as manager:
        from promptgraft.service.server import tokens  # needs the extra `server`

        tell = announced(manager.database)
        yield tokens.TokenStore(manager.database)
        tell()


@tokens_command.command("create", epilog=options.examples("tokens create ci --scope read"))
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    help="read, submit, approve or admin; may be repeated.",
)
@click.option(
    "--for",
    "only",
    metavar="PROJECT",
    multiple=True,
    help="Limit the token to this project; may be repeated. By default all projects.",
)
@jobs_option
def create_command(
    name: str, *, scopes: tuple[str, ...], only: tuple[str, ...], url: str | None
) -> None:
    """Create a token and print it; it is never shown again."""
    with _opened_tokens(url, creates=True) as tokens:
        token = tokens.create(name, scopes, only or None)
    echo(token)
    if only:
        _warn_of_unknown(only, url)


def _warn_of_unknown(names: Sequence[str], url: str | None) -> None:
    """Warn of names of projects that are not known here, if any projects are."""
    with managed(url) as manager:
        of_workers = (name for worker in manager.workers() for name in worker.projects)
        of_jobs = (total.project for total in manager.totals())
        here = named_projects(()) if project_around() else ()
        projects = sorted({*of_workers, *of_jobs, *here})
    for name in names if projects else ():
        if name not in projects:
            there = ", ".join(f"`{project}`" for project in projects)
            echo(
                f"warning: --for: no project `{name}` yet{did_you_mean(name, projects)}; there: "
                f"{there}",
                error=True,
            )


@tokens_command.command(
    "link", epilog=options.examples("tokens link ana --server https://jobs.example.org")
)
@click.argument("name")
@click.option(
    "--server",
    metavar="URL",
    envvar="PROMPTGRAFT_SERVER",
    default="",
    help="The address of the server; by default the variable PROMPTGRAFT_SERVER. Without it, the "
    "part of the link that follows the address is printed.",
)
@click.option("--hours", type=options.at_least(1), default="1", help="How long the link is valid.")
@jobs_option
def link_command(name: str, *, server: str, hours: int, url: str | None) -> None:
    """Print a link that signs one browser in, once, with the token NAME."""
    with _opened_tokens(url) as tokens:
        code = tokens.new_link(name, seconds=hours * 3600.0)
    echo(f"{server.rstrip('/')}/login?link={code}")


@tokens_command.command("list", epilog=options.examples("tokens list --json"))
@jobs_option
@options.json_option
def list_command(*, url: str | None, as_json: bool) -> None:
    """List tokens by name, with their scopes and projects."""
    with _opened_tokens(url) as tokens:
        callers = tokens.list()
    rows = [
        (
            token.name,
            ", ".join(sorted(token.scopes)),
            "all" if token.projects is None else ", ".join(sorted(token.projects)),
        )
        for token in callers
    ]
    if as_json:
        names = ("name", "scopes", "projects")
        print_json({"tokens": [dict(zip(names, row, strict=True)) for row in rows]})
        return
    screen = Screen()
    screen.table([("name", "scopes", "projects"), *rows])


@tokens_command.command("revoke", epilog=options.examples("tokens revoke ci"))
@click.argument("name")
@jobs_option
def revoke_command(name: str, *, url: str | None) -> None:
    """Revoke a token and end its sessions, effective immediately."""
    with _opened_tokens(url) as tokens:
        tokens.revoke(name)
    echo(f"revoked the token of {name}")


@options.command("worker", "worker --jobs sqlite:///jobs.db", "worker --processes 4 --until-idle")
@click.option("--processes", type=options.at_least(1), default="1", help="Jobs to run at once.")
@click.option("--until-idle", is_flag=True, help="Exit when no job is left.")
@click.option(
    "--calls",
    type=options.at_least(1),
    help="Concurrent model calls per account, over all processes of this worker; by default the "
    "limit is found by trying.",
)
@click.option("--name", help="The name that lists show; by default host and process id.")
@webhooks_option
@log_option
@projects_option
@jobs_option
def worker_command(
    *,
    processes: int,
    until_idle: bool,
    name: str | None,
    calls: int | None,
    webhooks: str | None,
    log: Literal["text", "json"],
    projects: tuple[str, ...],
    url: str | None,
) -> None:
    """Run the jobs of a project.

    Each job runs in its own process. On SIGTERM and Ctrl+C the worker pauses its jobs after
    their current step, puts them back into the queue, and exits. It logs jobs that it takes and
    what becomes of them, waits for a database that is away for a while, and ends with code 2 if
    the database is full, damaged or another one.
    """
    named = named_projects(projects)
    with managed(url, named, creates=True) as manager, sending_webhooks(manager, webhooks):
        tell = announced(manager.database)
        from promptgraft.service.jobs import Worker

        worker = Worker(manager, processes=processes, name=name, calls=calls)
        with _logged(log), handling_signals(lambda *_: worker.stop()):
            echo(f"worker for {', '.join(named)}", error=True)
            tell()
            worker.run(until_idle=until_idle)
