"""Workers: they claim jobs, run each in a process of its own, and put back what is lost."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
from sqlalchemy import Connection

from promptgraft.database import Database, DatabaseError
from promptgraft.errors import CallerError, ConfigError, LeaseLostError
from promptgraft.jobs.manager import JobManager
from promptgraft.jobs.preparing import submitted_digest
from promptgraft.jobs.rows import LEASE_SECONDS, Claim, JobRows
from promptgraft.jobs.running import carry_out
from promptgraft.jobs.spending import spent_for_today
from promptgraft.jobs.types import Job
from promptgraft.project import Project, open_project

_SECONDS_BETWEEN_LOOKS = 0.25
_SECONDS_TO_PAUSE = 30.0
_HAS_CHANGED = 4

_logger = logging.getLogger("promptgraft.jobs")


@attrs.frozen
class _Child:
    place: int
    claim: Claim
    process: subprocess.Popen[bytes]


class Worker:
    """Carries out the jobs of some projects, each in a process of its own.

    A job is taken only if the worker has its project with the digest that was submitted. SIGTERM
    to a child, and :meth:`stop`, pause a job after its step and put it back.

    Args:
        manager: the database and the projects.
        processes: jobs side by side.
        name: how it is shown; by default host and process.
        calls: model calls in flight at an account, shared out among the processes once and for
            all; by default each process finds out for itself what the account allows.

    Raises:
        ConfigError: there are fewer calls than processes.
    """

    def __init__(
        self,
        manager: JobManager,
        *,
        processes: int = 1,
        name: str | None = None,
        calls: int | None = None,
    ) -> None:
        if calls is not None and calls < processes:
            raise ConfigError(
                f"calls: expected at least 1 for each of {processes} processes, found {calls}"
            )
        self._calls = calls
        self._database = manager.database
        self._projects = manager.projects
        self._rows = JobRows(self._database)
        self._processes = processes
        self._name = name or f"{socket.gethostname()[:100]}-{os.getpid()}"
        self._children: list[_Child] = []
        self._ending = threading.Event()
        self._digests = _digests(self._projects)
        self._limits = {
            name: most
            for name, project in self._projects.items()
            if (most := project.config.max_cost_per_day) is not None
        }

    def run(self, *, until_idle: bool = False) -> None:
        """Claim jobs and carry them out until :meth:`stop`, or until there is nothing to do.

        What the database refuses for a while is tried again.
        """
        try:
            while not self._ending.is_set():
                try:
                    is_idle = self._turn()
                except DatabaseError:
                    is_idle = False
                if until_idle and is_idle:
                    return
                self._ending.wait(_SECONDS_BETWEEN_LOOKS)
        finally:
            self._end_children()

    def stop(self) -> None:
        """Let :meth:`run` pause its jobs, put them back, and return."""
        self._ending.set()

    def claim(self) -> Claim | None:
        """Take the job whose turn it is, after putting back those whose worker is gone.

        None of a project is taken that has used the money of the day.
        """
        self._database.write(self._recover)
        held = self._held() if self._limits else frozenset()
        digests = [one for one in self._digests if one[0] not in held]
        if not digests:
            return None
        return self._database.write(
            lambda connection: self._rows.claim(connection, digests, self._name)
        )

    def _held(self) -> frozenset[str]:
        """Return the projects that may spend nothing more today; their jobs say so."""

        def hold(connection: Connection) -> frozenset[str]:
            held = set[str]()
            for name, most in self._limits.items():
                is_held = self._rows.spent_today(connection, name) >= most
                why = f"{spent_for_today(name, most)}; the job begins tomorrow"
                self._rows.hold(connection, name, why, held=is_held)
                held |= {name} if is_held else set()
            return frozenset(held)

        return self._database.write(hold, durable=False)

    def run_here(self, claim: Claim) -> None:
        """Carry out a job in this process."""
        carry_out(self._database, claim, self._projects[claim.job.project])

    def _turn(self) -> bool:
        """Look once at children and queue; return whether there is nothing to do."""
        self._reap()
        while len(self._children) < self._processes:
            claim = self.claim()
            if claim is None:
                break
            taken = {child.place for child in self._children}
            place = next(place for place in range(self._processes) if place not in taken)
            self._children.append(_Child(place, claim, self._started(claim, place)))
        return not self._children

    def _share(self, place: int) -> int | None:
        """Return the calls of the process at a place."""
        if self._calls is None:
            return None
        return self._calls // self._processes + (place < self._calls % self._processes)

    def _started(self, claim: Claim, place: int) -> subprocess.Popen[bytes]:
        project = self._projects[claim.job.project]
        told = {
            "url": self._database.secret_url,
            "prefix": self._database.prefix,
            "project": str(project.path.absolute()),
            "job": claim.job.number,
            "fence": claim.fence,
            "calls": self._share(place),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "promptgraft.jobs.child"],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None  # noqa: S101 - it was asked for
        # Not as an argument, which every user of the machine can read.
        with process.stdin as pipe:
            pipe.write(json.dumps(told).encode())
        return process

    def _reap(self) -> None:
        for child in tuple(self._children):
            code = child.process.poll()
            if code is not None:
                if code == _HAS_CHANGED:
                    self._forget(child.claim.job)
                if code:
                    self._lose(child.claim, _ended_with(code))
                self._children.remove(child)

    def _forget(self, job: Job) -> None:
        """Claim nothing more of a version of a project that is gone; what it was is not counted."""
        self._digests = [one for one in self._digests if one != (job.project, job.digest)]
        self._database.write(lambda connection: self._rows.put(connection, job.number, barren=0))

    def _lose(self, claim: Claim, why: str) -> None:
        def lose(connection: Connection) -> None:
            self._rows.check(connection, claim)
            self._rows.lose(connection, self._rows.at(connection, claim.job.number), why)

        with contextlib.suppress(LeaseLostError):
            self._database.write(lose)

    def _recover(self, connection: Connection) -> None:
        for job in self._rows.expired(connection):
            self._rows.lose(connection, job, f"its worker {job.worker} was lost")

    def _end_children(self) -> None:
        for child in self._children:
            child.process.send_signal(signal.SIGTERM)
        for child in self._children:
            try:
                child.process.wait(_SECONDS_TO_PAUSE)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        self._reap()


def _digests(projects: Mapping[str, Project]) -> Sequence[tuple[str, str]]:
    return [
        (name, submitted_digest(project, prompt))
        for name, project in projects.items()
        for prompt in project.names
    ]


def _ended_with(code: int) -> str:
    if code == _HAS_CHANGED:
        return "the project has changed since its worker began; start the worker again"
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with code {code}"


def run_child() -> None:
    """Carry out the job that standard input names, in this process."""
    told = json.loads(sys.stdin.buffer.read())
    database = Database(told["url"], prefix=told["prefix"], patience_seconds=LEASE_SECONDS)
    rows = JobRows(database)
    with database.reading() as connection:
        job = rows.at(connection, told["job"])
    claim = Claim(job=job, fence=told["fence"])
    try:
        project = _as_submitted(Path(told["project"]), job)
        carry_out(database, claim, project, calls=told["calls"])
    except DatabaseError as error:
        sys.exit(f"promptgraft: job {job.id}: {error}")
    finally:
        database.close()


def _as_submitted(path: Path, job: Job) -> Project:
    """Return the project of a job; end this process when it is not what was submitted any more."""
    try:
        project = open_project(path)
        if submitted_digest(project, job.prompt) == job.digest:
            return project
        why = "it has changed since its worker began"
    except CallerError as error:
        why = str(error)
    _logger.warning("job %s: project %s: %s", job.id, path, why)
    sys.exit(_HAS_CHANGED)
