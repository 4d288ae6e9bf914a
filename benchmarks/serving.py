"""What a server takes: streams that see an event, lists of jobs, pages of a large job.

500 streams of one job, 10 a token, wait for 20 events that come half a second apart; then 10,000
jobs are listed page by page; then the pages of a job with 500 candidates on 300 cases are asked
for. All of it in two processes on this machine, on SQLite.

    python benchmarks/serving.py [--streams N] [--jobs N] [--candidates N] [--cases N]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import httpx
from sqlalchemy import Connection, insert, select

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from jobs.job_world import write_project
from promptgraft.service.jobs import JobManager
from promptgraft.service.jobs.lines import JobLine, LineKind
from promptgraft.service.jobs.rows import JobRows
from promptgraft.service.server import Limits, TokenStore
from server.large_job import large_job
from server.serving import served

STREAMS_A_TOKEN = 10
EVENTS = 20


def ask_all(pipe: Pipe, url: str, job: str, tokens: Sequence[str]) -> None:
    """Read streams in a process of its own; send when each stream has seen each event."""

    async def read(token: str, ready: asyncio.Semaphore) -> list[tuple[int, float]]:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        lines = [
            f"GET /api/v1/jobs/{job}/events HTTP/1.1",
            f"Host: {host}:{port}",
            f"Authorization: Bearer {token}",
            "Accept: text/event-stream",
        ]
        writer.write("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
        seen: list[tuple[int, float]] = []
        while len(seen) < EVENTS:
            line = await reader.readline()
            if line.startswith(b"HTTP/1.1"):
                if b" 200 " not in line:
                    raise SystemExit(f"a stream was refused: {line.decode().strip()}")
                ready.release()
            elif line.startswith(b'data: {"event":"mark"'):
                seen.append((json.loads(line[6:])["n"], time.time()))
        writer.close()
        return seen

    async def read_all() -> list[list[tuple[int, float]]]:
        ready = asyncio.Semaphore(0)
        reading = [asyncio.ensure_future(read(token, ready)) for token in tokens]
        for _ in tokens:
            await ready.acquire()
        pipe.send("ready")
        return await asyncio.gather(*reading)

    pipe.send(asyncio.run(read_all()))


def streams(manager: JobManager, url: str, tokens: Sequence[str], count: int) -> None:
    """Say how soon streams see an event."""
    job = manager.create("support", "triage")
    rows = JobRows(manager.database)
    ours, theirs = multiprocessing.Pipe()
    asked = [tokens[n // STREAMS_A_TOKEN] for n in range(count)]
    process = multiprocessing.get_context("spawn").Process(
        target=ask_all, args=(theirs, url, job.id, asked)
    )
    process.start()
    ours.recv()
    told: dict[int, float] = {}
    for n in range(EVENTS):
        line = JobLine(LineKind.JOB, b'{"event":"mark","n":%d}' % n)
        manager.database.write(partial(rows.append, number=job.number, lines=[line]))
        told[n] = time.time()
        time.sleep(0.5)
    seen = ours.recv()
    process.join()
    waits = sorted(at - told[n] for one in seen for n, at in one)
    soon = sum(wait <= 1 for wait in waits) / len(waits)
    p95 = waits[int(0.95 * len(waits))]
    print(
        f"{count} streams, {EVENTS} events: {soon:.1%} within 1 s; median "
        f"{statistics.median(waits):.2f} s, 95 % {p95:.2f} s, most {waits[-1]:.2f} s"
    )


def lists(manager: JobManager, get: Callable[[str], httpx.Response], count: int) -> None:
    """Say how long pages of a list of many jobs take."""
    jobs = manager.database.tables.jobs
    first = manager.create("support", "triage")

    def fill(connection: Connection) -> None:
        row = connection.execute(select(jobs).where(jobs.c.number == first.number)).one()._asdict()
        rows = [
            {**row, "number": first.number + n, "id": f"{n:032x}", "state": "completed"}
            for n in range(1, count)
        ]
        connection.execute(insert(jobs), rows)

    manager.database.write(fill)
    for what, path in (
        ("page of 20", "/api/v1/jobs?"),
        ("page of 100", "/api/v1/jobs?limit=100&"),
        ("state", "/api/v1/jobs?state=completed&"),
        ("text that is there nowhere", "/api/v1/jobs?text=nowhere&"),
        ("project and tag", "/api/v1/jobs?project=support&tag=latest&"),
        ("dashboard", "/?"),
        ("dashboard by gain", "/?sort=gain&"),
    ):
        took = []
        for part in range(10):
            began = time.perf_counter()
            get(f"{path}cursor={first.number + (10 - part) * count // 10}")
            took.append(1000 * (time.perf_counter() - began))
        median = statistics.median(took)
        print(f"{count:,} jobs, {what}: median {median:.0f} ms, most {max(took):.0f} ms")


def pages(
    manager: JobManager, get: Callable[[str], httpx.Response], candidates: int, cases: int
) -> None:
    """Say how long the pages of a large job take, and how large they are."""
    job = large_job(manager, candidates=candidates, cases=cases)
    at = f"/jobs/{job.id}"
    tabs = [f"{at}/{tab}" for tab in ("candidates", "cases", "rounds", "texts", "cost", "events")]
    for path in (at, f"{at}/live", *tabs, f"{at}/candidates/{candidates - 1}", f"{at}/report"):
        for time_ in ("first", "again"):
            began = time.perf_counter()
            answer = get(path)
            took = time.perf_counter() - began
            name = path.replace(job.id, "ID")
            print(f"{name}, {time_}: {took:.2f} s, {len(answer.content) / 1e6:.2f} MB")


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("streams", 500), ("jobs", 10_000), ("candidates", 500), ("cases", 300)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        project = write_project(root / "support")
        manager = JobManager(f"sqlite:///{root}/jobs.db", projects={"support": project})
        hours = itertools.count(0.0, 3600.0)
        with (
            closing(manager),
            served(
                manager,
                root / "mirrors",
                now=lambda: next(hours),
                limits=Limits(all_streams=asked.streams),
            ) as client,
            httpx.Client(base_url=client.url, timeout=60) as http,
        ):
            http.headers["Authorization"] = f"Bearer {client.token}"

            def get(path: str) -> httpx.Response:
                return http.get(path).raise_for_status()

            pages(manager, get, asked.candidates, asked.cases)
            lists(manager, get, asked.jobs)
            tokens = TokenStore(manager.database)
            count = math.ceil(asked.streams / STREAMS_A_TOKEN)
            made = [tokens.create(f"t{n}", ["read"]) for n in range(count)]
            streams(manager, client.url, made, asked.streams)


if __name__ == "__main__":
    main()
