"""Two servers and three workers on one database: jobs come in at one door and go out at the other.

    python examples/team/team.py [--jobs URL] [--folder FOLDER] [--count N]

Each worker has a copy of the project of its own, as workers on three machines have. One of them is
stopped in the middle of a job, which another one continues.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping
from pathlib import Path

from promptgraft.service.jobs import Job, JobClient, JobState

TAG = "live"


def command(*words: str) -> list[str]:
    """Return the words of a `promptgraft` command in this Python."""
    return [sys.executable, "-m", "promptgraft", *words]


def done(*words: str, folder: Path, variables: Mapping[str, str]) -> str:
    """Run a command to its end and return what it prints."""
    finished = subprocess.run(  # noqa: S603 - this Python
        command(*words), cwd=folder, env=variables, check=True, stdout=subprocess.PIPE, text=True
    )
    return finished.stdout.strip()


@contextlib.contextmanager
def started(
    *words: str, folder: Path, variables: Mapping[str, str]
) -> Generator[subprocess.Popen[str]]:
    """Give a command that runs until the block ends."""
    process = subprocess.Popen(  # noqa: S603 - this Python
        command(*words), cwd=folder, env=variables, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        if process.stdout:
            process.stdout.close()


def address_of(server: subprocess.Popen[str]) -> str:
    """Return where a server listens, from the first line that it prints."""
    assert server.stdout is not None
    return server.stdout.readline().split()[1].partition("/login")[0]


def copies(folder: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return three folders with the same project, which promptgraft creates in the first."""
    first = folder / "one" / "council"
    first.parent.mkdir()
    done("init", str(first), folder=folder, variables=variables)
    project = first / "promptgraft.yaml"
    text = project.read_text("utf-8").replace("rollout_budget: 1500", "rollout_budget: 300")
    project.write_text(text, "utf-8")
    for name in ("two", "three"):
        shutil.copytree(first, folder / name / "council")
    return [folder / name / "council" for name in ("one", "two", "three")]


def until_ended(door: JobClient, jobs: list[Job]) -> list[Job]:
    """Wait for jobs, and return them as they have ended."""
    while True:
        now = [door.get(job.id) for job in jobs]
        if all(job.has_ended for job in now):
            return now
        time.sleep(0.2)


def until_one_runs(door: JobClient, jobs: list[Job]) -> Job:
    """Wait for a job that a worker has begun, and return it."""
    while True:
        for job in (door.get(job.id) for job in jobs):
            if job.worker:
                return job
        time.sleep(0.2)


def main() -> None:
    """Run the servers, the workers and the jobs, and print what became of them."""
    options = argparse.ArgumentParser(description="Two servers and three workers.")
    options.add_argument("--jobs", default="sqlite:///jobs.db", help="the database of the jobs")
    options.add_argument("--folder", type=Path, help="where to work; by default for this run only")
    options.add_argument("--count", type=int, default=4, help="how many jobs")
    chosen = options.parse_args()
    with contextlib.ExitStack() as running:
        folder = chosen.folder or Path(running.enter_context(tempfile.TemporaryDirectory()))
        url = chosen.jobs.replace("sqlite:///jobs.db", f"sqlite:///{folder / 'jobs.db'}")
        variables = {**os.environ, "PROMPTGRAFT_JOBS": url}
        places = copies(folder, variables)
        tokens = {
            name: done(
                *("tokens", "create", name, *scopes), folder=places[0], variables=variables
            ).splitlines()[-1]
            for name, scopes in (
                ("ci", ["--scope", "submit", "--scope", "read"]),
                ("lead", ["--scope", "approve", "--scope", "read"]),
            )
        }
        servers = [
            running.enter_context(
                started("serve", "--port", "0", folder=place, variables=variables)
            )
            for place in places[:2]
        ]
        left, right = (address_of(server) for server in servers)
        ci, lead = JobClient(left, token=tokens["ci"]), JobClient(right, token=tokens["lead"])
        running.callback(ci.close)
        running.callback(lead.close)
        workers = {
            name: running.enter_context(
                started("worker", "--name", name, folder=place, variables=variables)
            )
            for name, place in zip(("ann", "bob", "cid"), places, strict=True)
        }
        jobs = [
            ci.submit("council", "triage", {"seed": seed, "tag": TAG}).job
            for seed in range(chosen.count)
        ]
        print(f"{len(jobs)} jobs submitted at the first server")
        moved = until_one_runs(lead, jobs)
        workers[moved.worker].terminate()
        workers[moved.worker].wait()
        print("the worker of the first job was stopped")

        ended = until_ended(lead, jobs)
        states = Counter(str(job.state) for job in ended)
        print(", ".join(f"{count} {state}" for state, count in states.items()))
        attempts = [attempt.worker for attempt in lead.attempts(moved.id)]
        if attempts[-1] != moved.worker:
            print("another worker continued its job")
        proven = [
            job
            for job in ended
            if job.state is JobState.COMPLETED and job.status.verdict == "improved"
        ]
        print(f"{len(proven)} with a proven gain, seen at the second server")
        if proven:
            lead.apply(proven[0].id)
            print(f"the first of them is applied to `{TAG}` by lead")


if __name__ == "__main__":
    main()
