"""What keeps a server answering: slow and silent clients, many reports, a database that waits."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from jobs.job_world import work_off
from promptgraft.errors import ConfigError
from promptgraft.service.jobs import JobManager
from promptgraft.service.server import Limits, Scope, TokenStore
from promptgraft.service.server.limits import Buckets
from promptgraft.service.server.problems import ApiProblem
from server.serving import Client, served

SILENT = int(os.environ.get("PROMPTGRAFT_SILENT", "150"))
ASKING = 42
"""More than the threads of a server."""


def connected(client: Client) -> socket.socket:
    host, _, port = client.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def received(connection: socket.socket) -> bytes:
    """Return what a connection brings until the server ends it."""
    content = b""
    with contextlib.suppress(ConnectionError):
        while found := connection.recv(65_536):
            content += found
    return content


def test_connections_that_say_nothing_keep_nobody_out(manager: JobManager, tmp_path: Path) -> None:
    limits = Limits(waiting_connections=SILENT // 3)
    with served(manager, tmp_path / "mirrors", limits=limits) as client, ExitStack() as stack:
        silent = [stack.enter_context(connected(client)) for _ in range(SILENT)]
        for connection in silent[::2]:
            with contextlib.suppress(ConnectionError):  # it may be closed already
                connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert client.get("/jobs").status == 200
        # Closed for newer ones, and not merely left alone.
        assert received(silent[0]) == b""
        assert client.get("/jobs").status == 200


@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\nX-Slow: "])
def test_headers_have_to_arrive_in_time(manager: JobManager, tmp_path: Path, start: bytes) -> None:
    limits = Limits(header_seconds=0.3)
    with (
        served(manager, tmp_path / "mirrors", limits=limits) as client,
        connected(client) as slow,
        contextlib.suppress(ConnectionError),
    ):
        slow.sendall(start)
        slow.settimeout(0.05)
        for _ in range(600):
            # A byte now and then does not buy more time.
            with contextlib.suppress(TimeoutError):
                slow.sendall(b"x" if start else b"")
                assert slow.recv(100) == b""
                return
        raise AssertionError("the connection is still open")


def test_a_connection_that_is_used_again_has_its_time_anew(
    manager: JobManager, tmp_path: Path
) -> None:
    limits = Limits(header_seconds=5)
    with served(manager, tmp_path / "mirrors", limits=limits) as client, connected(client) as used:
        address = client.url.removeprefix("http://")
        for _ in range(3):
            used.sendall(f"GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
            answer = used.recv(65_536)
            while b'"ok"' not in answer:
                answer += used.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 200")


def test_a_body_has_to_arrive_in_time(manager: JobManager, tmp_path: Path) -> None:
    limits = Limits(body_seconds=0.2)
    with served(manager, tmp_path / "mirrors", limits=limits) as client:
        lines = [
            "POST /api/v1/jobs HTTP/1.1",
            f"Host: {client.url.removeprefix('http://')}",
            f"Authorization: Bearer {client.token}",
            "Content-Length: 100",
            "Connection: close",
        ]
        with connected(client) as slow:
            slow.sendall("\r\n".join([*lines, "", '{"project":']).encode())
            assert received(slow).startswith(b"HTTP/1.1 408")


@contextlib.contextmanager
def asked_at_once(ask: Callable[[int], int], release: threading.Event) -> Iterator[list[int]]:
    """Ask many times side by side; the statuses are there once the context is left."""
    statuses: list[int] = []
    with ThreadPoolExecutor(ASKING) as threads:
        asked = [threads.submit(ask, number) for number in range(ASKING)]
        try:
            yield statuses
        finally:
            release.set()
        statuses += [answer.result() for answer in asked]


def test_many_reports_leave_threads_to_others(
    manager: JobManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = manager.create("support", "triage", {"dry_run": True, "budget": 60})
    work_off(manager)
    begun, release = threading.Semaphore(0), threading.Event()
    mirror = JobManager.mirror

    def slow(self: JobManager, name: str, folder: Path, *, pages: bool = True) -> Path:
        begun.release()
        assert release.wait(60)
        return mirror(self, name, folder, pages=pages)

    monkeypatch.setattr(JobManager, "mirror", slow)
    limits = Limits(requests=1000, address_requests=1000, reports=2, waiting_reports=8)
    with served(manager, tmp_path / "mirrors", limits=limits) as client:
        token = TokenStore(manager.database).create("reader", [Scope.READ])
        refused = threading.Semaphore(0)

        def ask(_: int) -> int:
            answer = client.ask("GET", f"/api/v1/jobs/{job.id}/report", token=token)
            if answer.status == 429:
                assert answer.headers["retry-after"] == "5"
                refused.release()
            return answer.status

        with asked_at_once(ask, release) as statuses:
            assert begun.acquire(timeout=60)
            for _ in range(ASKING - 10):
                assert refused.acquire(timeout=60)
            assert client.ask("GET", "/healthz", token="").status == 200
            assert client.get("/jobs").status == 200
        assert sorted(statuses) == [200] * 10 + [429] * (ASKING - 10)


def test_reports_of_two_jobs_are_made_side_by_side(
    manager: JobManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [manager.create("support", "triage", {"seed": seed, "budget": 60}) for seed in (1, 2)]
    work_off(manager)
    both, mirror = threading.Barrier(2), JobManager.mirror

    def meeting(self: JobManager, name: str, folder: Path, *, pages: bool = True) -> Path:
        both.wait(60)  # it breaks if one waits for the other
        return mirror(self, name, folder, pages=pages)

    monkeypatch.setattr(JobManager, "mirror", meeting)
    with served(manager, tmp_path / "mirrors") as client, ThreadPoolExecutor(2) as threads:
        paths = [f"/jobs/{job.id}/report" for job in jobs]
        assert [answer.status for answer in threads.map(client.get, paths)] == [200, 200]


def test_it_is_seen_to_be_alive_while_all_threads_wait_for_the_database(
    manager: JobManager, tmp_path: Path
) -> None:
    job = manager.create("support", "triage")
    release = threading.Event()
    limits = Limits(requests=1000, address_requests=1000)
    with (
        served(manager, tmp_path / "mirrors", limits=limits) as client,
        closing(sqlite3.connect(tmp_path / "jobs.db", check_same_thread=False)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")

        def ask(_: int) -> int:
            return client.post(f"/jobs/{job.id}/cancel").status

        with asked_at_once(ask, release) as statuses:
            try:
                for _ in range(3):
                    # By its address, as probes come.
                    answer = client.ask("GET", "/healthz", token="", Host="10.0.0.7")
                    assert answer.status == 200
            finally:
                other.rollback()
        assert statuses == [202] * ASKING


def test_limits_are_above_zero_and_buckets_of_strangers_are_forgotten() -> None:
    with pytest.raises(ConfigError, match=r"reports: expected a number above 0, found 0\.0"):
        Limits(reports=0)
    now = [0.0]
    buckets = Buckets(1, now=lambda: now[0])
    for number in range(10_001):
        buckets.take(f"10.{number}")
    for _ in range(2):
        buckets.take("10.0.0.1")
    with pytest.raises(ApiProblem, match="more than 1 requests a second"):
        buckets.take("10.0.0.1")


def test_readiness_needs_no_connection_of_those_for_requests(client: Client) -> None:
    with contextlib.ExitStack() as stack:
        # All that the pool has: 16, and as many more.
        for _ in range(32):
            stack.enter_context(client.manager.database.reading())
        assert client.ask("GET", "/readyz", token="").status == 200
