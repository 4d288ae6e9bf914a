"""Limits of a server: how many streams, how fast they bring events, and who does not read."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Connection, insert, select

from jobs.job_world import until
from promptgraft.ground.serde import Json
from promptgraft.service.jobs import JobManager
from promptgraft.service.jobs.lines import JobLine, LineKind
from promptgraft.service.jobs.rows import JobRows
from promptgraft.service.server import Access, Limits, TokenStore
from promptgraft.service.server.access import Visit
from promptgraft.service.server.problems import ApiProblem
from promptgraft.service.server.tokens import LOCAL, ApiCaller, Scope
from server.serving import Client, served

WAITING = 42
"""More than the threads of a server."""
CUTS = int(os.environ.get("PROMPTGRAFT_CUTS", "20"))


def told(manager: JobManager, number: int, *lines: bytes) -> None:
    """Add events to a job."""
    rows = JobRows(manager.database)
    found = [JobLine(LineKind.JOB, line) for line in lines]
    manager.database.write(lambda at: rows.append(at, number, found))


@contextmanager
def reading(
    client: Client, job: str, *, token: str | None = None, last: int = 0
) -> Iterator[httpx.Response]:
    headers = {
        "Authorization": f"Bearer {token or client.token}",
        "Accept": "text/event-stream",
        "Last-Event-ID": f"{last}",
    }
    url = f"{client.url}/api/v1/jobs/{job}/events"
    with client.http.stream("GET", url, headers=headers) as answer:
        yield answer


def numbers(answer: httpx.Response, *, most: int) -> list[int]:
    """Return the numbers of the next events."""
    found: list[int] = []
    for line in answer.iter_lines():
        if line.startswith("id: "):
            found.append(int(line[4:]))
            if len(found) == most:
                break
    return found


def test_a_stream_that_is_cut_at_random_brings_each_event_once(
    client: Client, manager: JobManager
) -> None:
    job = manager.cancel(manager.create("support", "triage").id)
    told(manager, job.number, *(b'{"event":"n%d"}' % n for n in range(CUTS * 8)))
    last, _ = manager.peek(job)
    random_, seen = random.Random(20), list[int]()
    for _ in range(CUTS):
        at = seen[-1] if seen else 0
        with reading(client, job.id, last=at) as answer:
            seen += numbers(answer, most=random_.randint(1, 12))
    with reading(client, job.id, last=seen[-1]) as answer:
        seen += numbers(answer, most=last)
    assert seen == list(range(1, last + 1))


def test_a_token_has_ten_streams_and_then_waits(client: Client, manager: JobManager) -> None:
    job = manager.create("support", "triage").id
    with ExitStack() as held:
        streams = [held.enter_context(reading(client, job)) for _ in range(10)]
        assert {one.status_code for one in streams} == {200}
        with reading(client, job) as refused:
            document = json.loads(refused.read())
            assert (refused.status_code, document["status"]) == (429, 429)
            assert document["detail"].startswith("at most 10 streams for a token and 200 in total")
            assert refused.headers["retry-after"] == "5"
        other = TokenStore(manager.database).create("other", ["read"])
        with reading(client, job, token=other) as answer:
            assert answer.status_code == 200
    wait_for_streams(client, 0)
    with reading(client, job) as answer:
        assert answer.status_code == 200


def test_there_are_two_hundred_streams_in_all(manager: JobManager) -> None:
    access = Access(TokenStore(manager.database), hosts=[])
    callers = [ApiCaller(name=f"t{n}", scopes=frozenset(Scope)) for n in range(21)]
    with ExitStack() as held:
        for caller in callers[:-1]:
            closing = ExitStack()
            held.push(closing)
            for _ in range(10):
                closing.enter_context(access.streaming(caller))
        with (
            pytest.raises(ApiProblem, match="200 in total") as refused,
            access.streaming(callers[-1]),
        ):
            pass
        assert refused.value.status == 429
        closing.close()
        held.enter_context(access.streaming(callers[-1]))


def test_forty_requests_at_once_are_the_most_however_long_a_token_was_silent(
    manager: JobManager,
) -> None:
    tokens, now = TokenStore(manager.database), [0.0]
    headers = {"authorization": f"Bearer {tokens.create('quick', ['read'])}"}
    access = Access(tokens, hosts=[], now=lambda: now[0])
    for now[0] in (0.0, 3600.0):
        for _ in range(40):
            assert access.caller(headers, {}, Visit()).name == "quick"
        with pytest.raises(ApiProblem, match="more than 20 requests a second") as refused:
            access.caller(headers, {}, Visit())
        assert refused.value.status == 429
    now[0] += 0.1
    assert access.caller(headers, {}, Visit()).name == "quick"


def wait_for_streams(client: Client, count: int) -> None:
    until(lambda: f"promptgraft_streams {count}.0" in client.ask("GET", "/metrics").text)


def rest_of(connection: socket.socket) -> Iterator[bytes]:
    """Yield what a connection still brings until the other side ends it."""
    with contextlib.suppress(ConnectionError):
        while found := connection.recv(2**20):
            yield found


def test_a_client_that_does_not_read_is_left(manager: JobManager, tmp_path: Path) -> None:
    job = manager.create("support", "triage")
    told(manager, job.number, *[b'{"event":"large","text":"%s"}' % (b"x" * 60_000)] * 500)
    hours = itertools.count(0.0, 3600.0)
    mirrors = tmp_path / "mirrors"
    with served(manager, mirrors, now=lambda: next(hours), patience=0.5) as client:
        with socket.socket() as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            address = client.url.removeprefix("http://")
            idle.connect((address.partition(":")[0], int(address.partition(":")[2])))
            lines = [
                f"GET /api/v1/jobs/{job.id}/events HTTP/1.1",
                f"Host: {address}",
                f"Authorization: Bearer {client.token}",
                "Accept: text/event-stream",
            ]
            idle.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
            wait_for_streams(client, 1)
            wait_for_streams(client, 0)
            idle.settimeout(30)
            assert sum(map(len, rest_of(idle))) < 20_000_000
        # It goes on where it was.
        with reading(client, job.id, last=30) as answer:
            assert numbers(answer, most=3) == [31, 32, 33]


def test_a_stream_ends_when_its_token_is_revoked(manager: JobManager, tmp_path: Path) -> None:
    job = manager.create("support", "triage")
    tokens = TokenStore(manager.database)
    with served(manager, tmp_path / "mirrors", patience=0.2) as client:
        ana, ben = (tokens.create(name, [Scope.READ]) for name in ("ana", "ben"))
        with reading(client, job.id, token=ana) as stream, reading(client, job.id, token=ben):
            wait_for_streams(client, 2)
            tokens.revoke("ana")
            # It would else go on for as long as the job, with a sign of life every 15 seconds.
            lines = list(itertools.islice(filter(None, stream.iter_lines()), 3))
            assert [line[:5] for line in lines] == ["id: 1", "data:"]
            wait_for_streams(client, 1)


def test_who_waits_keeps_nobody_waiting(manager: JobManager, tmp_path: Path) -> None:
    hours = itertools.count(0.0, 3600.0)
    asked = itertools.count(1)
    seen = 0

    def now() -> float:
        nonlocal seen
        seen = next(asked)
        return next(hours)

    body: Json = {"project": "support", "prompt": "triage"}
    waiting = {"Idempotency_Key": "k", "Prefer": "wait=60"}
    with (
        served(manager, tmp_path / "mirrors", now=now) as client,
        ThreadPoolExecutor(WAITING) as threads,
    ):
        job = str(client.post("/jobs", body, Idempotency_Key="k").document["id"])
        found = [threads.submit(client.post, "/jobs", body, **waiting) for _ in range(WAITING)]
        try:
            until(lambda: seen > WAITING)
            assert client.get(f"/jobs/{job}").document["state"] == "queued"
            assert not any(one.done() for one in found)
        finally:
            manager.cancel(job)
        assert {one.result().document["state"] for one in found} == {"cancelled"}


def test_who_waits_long_counts_as_a_stream_until_it_leaves(
    manager: JobManager, tmp_path: Path
) -> None:
    body: Json = {"project": "support", "prompt": "triage"}
    waiting = {"Idempotency_Key": "k", "Prefer": "wait=3600"}
    limits = Limits(streams=1)
    with (
        served(manager, tmp_path / "mirrors", limits=limits) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        job = str(client.post("/jobs", body, Idempotency_Key="k").document["id"])

        def streams() -> int:
            return client.access.streams(LOCAL)

        head = {"Content-Type": "application/json", "Authorization": f"Bearer {client.token}"}
        head |= {name.replace("_", "-"): value for name, value in waiting.items()}
        request = httpx.Request("POST", f"{client.url}/api/v1/jobs", json=body, headers=head)
        lines = [f"{name}: {value}" for name, value in request.headers.items()]
        host, port = request.url.host, int(request.url.port or 0)
        with socket.create_connection((host, port)) as leaving:
            head_lines = "\r\n".join(["POST /api/v1/jobs HTTP/1.1", *lines, "", ""])
            leaving.sendall(head_lines.encode() + request.content)
            until(lambda: streams() == 1)
        until(lambda: streams() == 0)
        found = threads.submit(client.post, "/jobs", body, **waiting)
        until(lambda: streams() == 1)
        with reading(client, job) as refused:
            assert refused.status_code == 429
        manager.cancel(job)
        assert found.result().document["state"] == "cancelled"


def test_the_length_of_the_queue_is_a_limit(manager: JobManager, tmp_path: Path) -> None:
    with served(manager, tmp_path / "mirrors", limits=Limits(queued_jobs=2)) as client:
        body: Json = {"project": "support", "prompt": "triage"}
        statuses = [client.post("/jobs", body).status for _ in range(3)]
        assert statuses == [201, 201, 429]


def test_a_thousand_jobs_may_wait(client: Client, manager: JobManager) -> None:
    jobs = manager.database.tables.jobs
    first = manager.create("support", "triage")

    def fill(connection: Connection) -> None:
        row = connection.execute(select(jobs)).one()._asdict()
        rows = [{**row, "number": n, "id": f"{n:032x}"} for n in range(2, 1001)]
        connection.execute(insert(jobs), rows)

    manager.database.write(fill)
    body: Json = {"project": "support", "prompt": "triage"}
    refused = client.post("/jobs", body)
    assert (refused.status, "1,000 jobs waiting" in refused.detail) == (429, True), refused
    assert refused.headers["retry-after"]
    manager.cancel(first.id)
    assert client.post("/jobs", body).status == 201
