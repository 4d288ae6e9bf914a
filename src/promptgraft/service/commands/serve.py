"""``promptgraft serve``, ``tokens`` and ``worker``: the processes that serve and run jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import click

from promptgraft.adapters.calling.access import is_every_address, is_loopback
from promptgraft.cli import options
from promptgraft.cli.exits import handling_signals
from promptgraft.cli.output import Screen, echo, print_json
from promptgraft.errors import ConfigError
from promptgraft.ground.folders import temporary_folder
from promptgraft.service.commands.options import (
    EXTRA,
    jobs_option,
    log_option,
    managed,
    named_projects,
    projects_option,
    sending_webhooks,
    webhooks_option,
)

_SECONDS_FOR_WORKERS = 35
"""How long workers may take to pause their jobs; longer than they allow a job for that."""


@options.command("serve", "serve --demo", "serve --jobs sqlite:///jobs.db --workers 2")
@click.option("--host", default="127.0.0.1", help="The address to listen on.")
@click.option(
    "--port", type=options.at_least(0), default="8400", help="The port; 0 for any free port."
)
@click.option(
    "--workers", type=options.at_least(0), default="0", help="Workers to run with the server."
)
@click.option("--demo", is_flag=True, help="Show jobs that improve an example prompt, offline.")
@click.option(
    "--behind-proxy",
    metavar="HOST",
    help="The host name of a TLS proxy that forwards requests to this server.",
)
@click.option("--certificate", metavar="FILE", help="A certificate for TLS, with its chain.")
@click.option("--key", metavar="FILE", help="The private key of the certificate.")
@webhooks_option
@log_option
@projects_option
@jobs_option
def serve_command(
    *,
    host: str,
    port: int,
    workers: int,
    demo: bool,
    behind_proxy: str | None,
    certificate: str | None,
    key: str | None,
    webhooks: str | None,
    log: Literal["text", "json"],
    projects: tuple[str, ...],
    url: str | None,
) -> None:
    """Serve jobs over HTTP, with a dashboard.

    On a loopback address it prints a link that signs one browser in. Any other address needs
    tokens (`promptgraft tokens create`), and TLS here or in a proxy.
    """
    _check_safe(host, behind_proxy=behind_proxy, certificate=certificate, key=key)
    with ExitStack() as stack:
        is_asked_to_end = stack.enter_context(_ended_in_order())
        if demo:
            url, projects, workers = stack.enter_context(_demo())
        named = named_projects(projects)
        manager = stack.enter_context(managed(url, named))
        stack.enter_context(_logged(log))
        stack.enter_context(sending_webhooks(manager, webhooks))
        if demo:
            for changes in _DEMO_JOBS:
                manager.create("demo", None, changes)
        try:
            from promptgraft.service.server import Access, TokenStore, make_app
            from promptgraft.service.server.app import bound, serve
        except ModuleNotFoundError as error:
            raise ConfigError(f"serving needs {error.name}; {EXTRA}") from None
        socket = stack.enter_context(bound(host, port))
        bound_port = socket.getsockname()[1]
        secure = bool(certificate)
        names = [behind_proxy] if behind_proxy else host_names(host, bound_port, secure=secure)
        access = Access(TokenStore(manager.database), hosts=names)
        # Readable by this user only; what is in it can be written again from the database.
        mirrors = stack.enter_context(temporary_folder())
        stack.enter_context(_workers(workers, manager.database.secret_url, projects, log))
        scheme = "https" if secure or behind_proxy else "http"
        if is_loopback(host) and not behind_proxy:
            echo(f"open {scheme}://{names[0]}/login?code={access.new_code()}")
        else:
            echo(f"serving {scheme}://{names[0]}")
        # The link must appear before the server blocks, also in a pipe.
        sys.stdout.flush()
        app = make_app(manager, access=access, mirrors=mirrors)
        # uvicorn installs handlers of its own, which know nothing of a signal before them.
        if not is_asked_to_end():
            serve(app, socket, certificate=certificate, key=key)


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


def _check_safe(
    host: str, *, behind_proxy: str | None, certificate: str | None, key: str | None
) -> None:
    if (certificate is None) != (key is None):
        raise ConfigError("--certificate and --key: give both, or none")
    for name, file in (("--certificate", certificate), ("--key", key)):
        if file is not None and not Path(file).is_file():
            raise ConfigError(f"{name}: there is no file {file}")
    if not (is_loopback(host) or behind_proxy or certificate):
        raise ConfigError(
            f"--host {host}: others could read tokens on the way; give --certificate and --key, or "
            "--behind-proxy with the name that the proxy serves"
        )
    if is_every_address(host) and not behind_proxy:
        raise ConfigError(
            f"--host {host}: this is every address of the machine, and browsers ask for a name; "
            "give that name as --host, or --behind-proxy with the name that the proxy serves"
        )


def host_names(host: str, port: int, *, secure: bool) -> list[str]:
    """Return the ``Host`` headers of requests to this server, the usual one first."""
    bare = f"[{host}]" if ":" in host else host
    names = [f"{bare}:{port}", f"localhost:{port}"]
    # Browsers leave out the default port.
    return [*names, bare, "localhost"] if port == (443 if secure else 80) else names


_DEMO_JOBS: Sequence[Mapping[str, object]] = (
    {"note": "Improve the prompt with the limits of the project"},
    {"seed": 1, "note": "The same search in another order: is the gain stable?"},
    {"budget": 300, "note": "A fifth of the test calls: what does a short search give?"},
)
"""The jobs of the demo, which answer three questions of a visitor."""


@contextmanager
def _demo() -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Yield database, projects and number of workers of the demo, all in a temporary folder."""
    from promptgraft.cli.main import run

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
    "tokens",
    epilog=options.examples("tokens create ci --scope submit --scope read", "tokens list"),
)
def tokens_command() -> None:
    """Create, list and revoke the tokens of a server."""


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
    with managed(url) as manager:
        from promptgraft.service.server.access import TokenStore

        token = TokenStore(manager.database).create(name, scopes, only)
    echo(token)


@tokens_command.command("list", epilog=options.examples("tokens list --json"))
@jobs_option
@options.json_option
def list_command(*, url: str | None, as_json: bool) -> None:
    """List tokens by name, with their scopes and projects."""
    with managed(url) as manager:
        from promptgraft.service.server.access import TokenStore

        tokens = TokenStore(manager.database).list()
    rows = [
        (
            token.name,
            ", ".join(sorted(token.scopes)),
            ", ".join(sorted(token.projects or ())) or "all",
        )
        for token in tokens
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
    """Revoke a token, effective immediately."""
    with managed(url) as manager:
        from promptgraft.service.server.access import TokenStore

        TokenStore(manager.database).revoke(name)
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
    with managed(url, named) as manager, sending_webhooks(manager, webhooks):
        from promptgraft.service.jobs import Worker

        worker = Worker(manager, processes=processes, name=name, calls=calls)
        with _logged(log), handling_signals(lambda *_: worker.stop()):
            echo(f"worker for {', '.join(named)}", error=True)
            worker.run(until_idle=until_idle)
