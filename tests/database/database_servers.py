"""PostgreSQL and MariaDB for tests: servers of their own, in temporary folders, by socket only."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import attrs

KINDS = ("sqlite", "postgresql", "mariadb")
_WAIT_SECONDS = 60


def _user() -> str | None:
    """Return whom a server runs as: neither takes the root user."""
    return "nobody" if os.getuid() == 0 else None


def _find(name: str, *folders: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *folders]))


def _postgres_folders() -> list[str]:
    return [str(one) for one in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]


def missing(kind: str) -> str:
    """Return what keeps the tests of a kind of database from running; empty for nothing."""
    wanted = {
        "sqlite": [],
        "postgresql": ["initdb", "postgres", "pg_isready"],
        "mariadb": ["mariadb-install-db", "mariadbd", "mariadb-admin"],
    }[kind]
    absent = [one for one in wanted if not _find(one, "/usr/sbin", *_postgres_folders())]
    return f"{kind}: no {', '.join(absent)} on this machine" if absent else ""


@attrs.define
class Process:
    """The process of a server, which may be ended and started again."""

    command: list[str]
    ready: list[str]
    running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.running = server = subprocess.Popen(
            self.command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            user=_user(),
        )
        for _ in range(_WAIT_SECONDS * 10):
            assert server.poll() is None, f"{self.command[0]} ended with {server.returncode}"
            if subprocess.run(self.ready, capture_output=True, check=False).returncode == 0:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(0.1)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.running is not None:
            self.running.send_signal(number)
            self.running.wait(_WAIT_SECONDS)
            self.running = None


@attrs.frozen
class Server:
    """A database server that runs.

    Attributes:
        kind: which one.
        url: URL of a database with the name NAME.
        process: its process.
    """

    kind: str
    url: str
    process: Process

    def fresh(self) -> str:
        """Return the URL of a new, empty database."""
        import sqlalchemy

        name = f"t{uuid.uuid4().hex}"
        admin = self.url.replace("NAME", "postgres" if self.kind == "postgresql" else "mysql")
        engine = sqlalchemy.create_engine(_driven(admin), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        engine.dispose()
        return self.url.replace("NAME", name)


def _driven(url: str) -> str:
    return url.replace("postgresql:", "postgresql+psycopg:").replace("mariadb:", "mysql+pymysql:")


@contextlib.contextmanager
def running(kind: str, parent: Path | None = None) -> Iterator[Server]:
    """Start a server of a kind, with its data in memory or in ``parent``; stop it at the end."""
    # Not below pytest's folder, into which the server's user cannot look.
    folder = Path(
        tempfile.mkdtemp(
            prefix="pg-", dir=parent or ("/dev/shm" if Path("/dev/shm").is_dir() else None)
        )
    )
    folder.chmod(0o755)
    data = folder / "d"
    data.mkdir()
    if os.getuid() == 0:
        shutil.chown(folder, "nobody")
        shutil.chown(data, "nobody")
    start = {"postgresql": _postgres, "mariadb": _mariadb}[kind]
    try:
        with start(folder, data) as (url, process):
            yield Server(kind, url, process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _postgres(folder: Path, data: Path) -> Iterator[tuple[str, Process]]:
    find = functools.partial(_found, folders=_postgres_folders())
    _run(find("initdb"), "-D", str(data), "-U", "tests", "-A", "trust", "--no-sync", "-E", "UTF8")
    # fsync stays on: what is tested is what a user has.
    server = [
        find("postgres"),
        "-D",
        str(data),
        "-k",
        str(folder),
        "-c",
        "listen_addresses=",
        "-c",
        "max_connections=200",
    ]
    ready = [find("pg_isready"), "-q", "-h", str(folder), "-U", "tests", "-d", "postgres"]
    with _served(server, ready) as process:
        yield f"postgresql://tests@/NAME?host={folder}", process


@contextlib.contextmanager
def _mariadb(folder: Path, data: Path) -> Iterator[tuple[str, Process]]:
    find = functools.partial(_found, folders=["/usr/sbin"])
    socket = folder / "s"
    own = ["--no-defaults", f"--datadir={data}"]
    _run(
        find("mariadb-install-db"),
        *own,
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
    )
    server = [
        find("mariadbd"),
        *own,
        f"--socket={socket}",
        "--skip-networking",
        f"--pid-file={folder}/p",
        "--max-connections=400",
    ]
    ready = [
        find("mariadb-admin"),
        "--no-defaults",
        f"--socket={socket}",
        "-u",
        "root",
        "--silent",
        "ping",
    ]
    with _served(server, ready) as process:
        yield f"mariadb://root@/NAME?unix_socket={socket}", process


def _found(name: str, folders: list[str]) -> str:
    path = _find(name, *folders)
    assert path, name
    return path


def _run(*command: str) -> None:
    subprocess.run(
        command, check=True, capture_output=True, timeout=_WAIT_SECONDS, cwd="/", user=_user()
    )


@contextlib.contextmanager
def _served(command: list[str], ready: list[str]) -> Iterator[Process]:
    process = Process(command, ready)
    try:
        process.start()
        yield process
    finally:
        process.end()
