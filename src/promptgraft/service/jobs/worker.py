"""Workers: they claim jobs, run each in a child process, and put back jobs of lost workers."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

import attrs
from sqlalchemy import Connection

from promptgraft.errors import ConfigError, Lasting, LeaseLostError
from promptgraft.ground.clock import Clock, SystemClock
from promptgraft.ground.text import counted
from promptgraft.project import Project
from promptgraft.service.database import DatabaseError
from promptgraft.service.jobs.lines import spent_for_today
from promptgraft.service.jobs.logs import form_of_logs, told
from promptgraft.service.jobs.manager import JobManager
from promptgraft.service.jobs.preparing import submitted_digest
from promptgraft.service.jobs.presence import Presence, dry_runs_of
from promptgraft.service.jobs.rows import LEASE_SECONDS, Claim, JobRows
from promptgraft.service.jobs.running import carry_out
from promptgraft.service.jobs.types import Job, JobNotFoundError, JobState

_SECONDS_BETWEEN_LOOKS = 0.25
_SECONDS_TO_PAUSE = 30.0
_SECONDS_TO_END = 30.0
"""Time for a child to end once its job was cancelled or taken over; then it is killed."""
_SECONDS_BETWEEN_CHECKS = 1.0

_MOST_UNKNOWN = 240
"""Looks in a row that a fault of unknown length is borne; with the waits between them, a minute."""

_logger = logging.getLogger("promptgraft.service.jobs")

HAS_CHANGED = 4
"""Exit code of a child that finds another version of the project than was submitted."""
LACKS_SOMETHING = 5
"""Exit code of a child that has put its job back, since this machine lacks something for it."""


@attrs.define
class _Child:
    """A child process.

    Attributes:
        slot: its index among the processes of the worker.
        claim: its job.
        ends_by: when it is killed, on the monotonic clock; None while its job goes on.
    """

    slot: int
    claim: Claim
    process: subprocess.Popen[bytes]
    ends_by: float | None = None


@attrs.define
class _Outage:
    """Looks at the database that failed in a row, and the message of the latest."""

    looks: int = 0
    message: str = ""

    def bear(self, error: DatabaseError) -> None:
        """Note a failed look, and say so once; raise the error if waiting is in vain."""
        self.looks += 1
        is_over_soon = error.lasting is Lasting.TRANSIENT
        if error.lasting is Lasting.PERMANENT or (not is_over_soon and self.looks > _MOST_UNKNOWN):
            raise error
        if self.message != str(error):
            self.message = str(error)
            told(_logger, logging.WARNING, "database_lost", f"{error}; trying again")

    def end(self) -> None:
        """Note a look that succeeded."""
        if self.looks:
            words = f"the database is back after {counted(self.looks, 'failed look')}"
            told(_logger, logging.INFO, "database_back", words)
        self.looks, self.message = 0, ""


@attrs.define
class _Offer:
    """The jobs that a worker takes.

    Attributes:
        digests: name of the project and digest of what was submitted.
        only_dry: the projects of which it takes only dry runs.
        avoids: why it takes no others, by project.
    """

    digests: list[tuple[str, str]]
    only_dry: set[str] = attrs.field(factory=set)
    avoids: dict[str, str] = attrs.field(factory=dict)

    def leave(self, job: Job, why: str, *, has_changed: bool) -> None:
        """Take no more jobs of a project that this machine cannot run, or that has changed.

        A dry run needs no key, so that it is taken until one of them cannot be run either.
        """
        if has_changed:
            self.digests = [pair for pair in self.digests if pair != (job.project, job.digest)]
        elif job.changes.dry_run:
            self.digests = [pair for pair in self.digests if pair[0] != job.project]
        else:
            self.only_dry.add(job.project)
        self.avoids[job.project] = why
        if has_changed or job.changes.dry_run:
            self.avoids[dry_runs_of(job.project)] = why


class Worker:
    """Runs the jobs of some projects, each in a child process.

    A worker claims a job only if it has the project with the digest that was submitted. SIGTERM
    to a child, and :meth:`stop`, interrupt a job after its step and put it back into the queue.

    Args:
        manager: the database and the projects.
        processes: number of jobs that run at a time.
        name: the name that is shown; by default host and process id.
        calls: model calls that may be in flight to an account, divided evenly among the
            processes; by default each process adapts to what the account allows.
        seconds: between two looks at the queue.
        clock: measures how long a child takes to end.

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
        seconds: float = _SECONDS_BETWEEN_LOOKS,
        clock: Clock | None = None,
    ) -> None:
        if calls is not None and calls < processes:
            raise ConfigError(
                f"calls: expected at least 1 for each of {processes} processes, found {calls}"
            )
        self._seconds, self._clock = seconds, clock or SystemClock()
        self._checked = self._clock.monotonic()
        self._database = manager.database
        self._projects = manager.projects
        self._rows = JobRows(self._database)
        # The calls of each process, at its slot; the first slots get the remainder.
        self._shares = [
            None if calls is None else calls // processes + (slot < calls % processes)
            for slot in range(processes)
        ]
        self._name = name or f"{socket.gethostname()[:100]}-{os.getpid()}"
        self._children: list[_Child] = []
        self._leases: dict[int, float] = {}
        self._is_claim_open = False
        self._ending = threading.Event()
        self._offer = _Offer(_digests(self._projects))
        self._presence = Presence(self._database, name=self._name, processes=processes)

    def run(self, *, until_idle: bool = False) -> None:
        """Claim and run jobs until :meth:`stop`, or until there is nothing to do.

        A job of a worker that may be lost is waited for until its lease is renewed or runs out.
        Faults of the database that pass are waited for, and those that may pass for a minute.

        Raises:
            DatabaseError: the database is full, damaged, another one, or refuses for good.
        """
        outage = _Outage()
        try:
            while not self._ending.is_set():
                try:
                    is_idle = self._poll()
                except DatabaseError as error:
                    outage.bear(error)
                    is_idle = False
                else:
                    outage.end()
                if until_idle and is_idle and not self._awaits_leases():
                    return
                self._ending.wait(self._seconds)
        finally:
            self._end_children()

    def stop(self) -> None:
        """Make :meth:`run` interrupt its jobs, put them back into the queue, and return."""
        self._ending.set()

    def claim(self) -> Claim | None:
        """Put back jobs of lost workers, then claim the next job; None if there is none.

        Projects that have used up the money of the day are left out.
        """
        # Every worker does so before each claim, so that no process is needed just for that.
        recovered = self._database.write(self._recover)
        self._is_claim_open = False
        for job in recovered:
            why = _lost(job)
            told(_logger, logging.WARNING, "job_lost", why, job=job.id, attempt=job.attempts)
        over_limit = self._over_limit()
        digests = [pair for pair in self._offer.digests if pair[0] not in over_limit]
        if not digests:
            return None
        try:
            return self._database.write(
                lambda connection: self._rows.claim(
                    connection, digests, self._name, only_dry=self._offer.only_dry
                )
            )
        except DatabaseError:
            # If its commit broke, this worker may have a job, of which it knows nothing.
            self._is_claim_open = True
            raise

    def _over_limit(self) -> frozenset[str]:
        """Return the projects that may not spend more today; their jobs give that as reason."""
        most_by_project = {
            name: most
            for name, project in self._projects.items()
            if (most := project.config.max_cost_per_day) is not None
        }

        def check(connection: Connection) -> frozenset[str]:
            names = set[str]()
            for name, most in most_by_project.items():
                is_over = self._rows.spent_today(connection, name) >= most
                why = f"{spent_for_today(name, most)}; the job begins tomorrow"
                self._rows.explain_wait(connection, name, why, applies=is_over)
                names |= {name} if is_over else set()
            return frozenset(names)

        return self._database.write(check, durable=False) if most_by_project else frozenset()

    def run_here(self, claim: Claim) -> None:
        """Run a claimed job in this process."""
        if carry_out(self._database, claim, self._projects[claim.job.project]):
            self._leave(claim.job, LACKS_SOMETHING, exit_reason(LACKS_SOMETHING))

    def _poll(self) -> bool:
        """Look at children and queue once; return whether there is nothing to do."""
        self._reap()
        self._end_late()
        self._presence.show(sorted(self._projects), self._offer.avoids)
        while len(self._children) < len(self._shares):
            claim = self.claim()
            if claim is None:
                break
            job = claim.job
            words = f"{job.project}/{job.prompt}, attempt {job.attempts}"
            told(_logger, logging.INFO, "job_taken", words, job=job.id, attempt=job.attempts)
            slots = {child.slot for child in self._children}
            slot = next(slot for slot in range(len(self._shares)) if slot not in slots)
            try:
                process = self._started(claim, slot)
            except OSError as error:  # no memory or too many processes, for now
                self._put_back(claim, f"no process could be started: {error}", blames_job=False)
                break
            self._children.append(_Child(slot, claim, process))
        return not self._children

    def _awaits_leases(self) -> bool:
        """Return whether jobs seem to run elsewhere whose workers may be lost.

        A worker that lives renews the lease of its job; that of a lost one soon runs out.
        """
        with self._database.reading() as connection:
            running = self._rows.leases(connection, self._offer.digests)
        for job, lease in running:
            if job.number not in self._leases:
                self._leases[job.number] = lease
                words = f"its worker {job.worker} may be lost; it shows within {LEASE_SECONDS:.0f}"
                told(_logger, logging.INFO, "job_awaited", f"{words} seconds", job=job.id)
        return any(self._leases[job.number] == lease for job, lease in running)

    def _started(self, claim: Claim, slot: int) -> subprocess.Popen[bytes]:
        project = self._projects[claim.job.project]
        task = {
            "url": self._database.secret_url,
            "prefix": self._database.prefix,
            "project": str(project.path.absolute()),
            "job": claim.job.number,
            "fence": claim.fence,
            "calls": self._shares[slot],
            "log": form_of_logs(),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "promptgraft.service.jobs.child"],
            stdin=subprocess.PIPE,
            # Ctrl+C in the terminal must reach the worker alone, which then interrupts the child.
            start_new_session=True,
        )
        assert process.stdin is not None  # noqa: S101 - it was asked for
        # The URL may hold a password, and every user of the machine can read arguments.
        # A process that has ended already is seen by its exit code.
        with suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(json.dumps(task).encode())
        return process

    def _reap(self) -> None:
        for child in tuple(self._children):
            code = child.process.poll()
            if code is not None:
                job, why = child.claim.job, exit_reason(code)
                if code == HAS_CHANGED:
                    # The child has noted it, and left the job to this worker, which goes first.
                    with suppress(JobNotFoundError), self._database.reading() as connection:
                        why = self._rows.load(connection, job.number).reason or why
                if code in (HAS_CHANGED, LACKS_SOMETHING):
                    self._leave(job, code, why)
                if code:
                    self._put_back(child.claim, why, blames_job=code != HAS_CHANGED)
                self._children.remove(child)
                self._tell_end(job, why if code not in (0, LACKS_SOMETHING) else "")

    def _end_late(self) -> None:
        """Kill children that go on although their jobs do not: code of users may hang for ever."""
        now = self._clock.monotonic()
        if not self._children or now - self._checked < _SECONDS_BETWEEN_CHECKS:
            return
        self._checked = now
        for child in self._children:
            with self._database.reading() as connection:
                goes_on = self._rows.goes_on(connection, child.claim)
            if goes_on:
                child.ends_by = None
            elif child.ends_by is None:
                child.ends_by = now + _SECONDS_TO_END
            elif now >= child.ends_by:
                child.process.kill()

    def _tell_end(self, job: Job, lost: str) -> None:
        """Log what became of a job whose process has ended."""
        if lost:
            told(_logger, logging.WARNING, "job_lost", lost, job=job.id, attempt=job.attempts)
            return
        with suppress(JobNotFoundError), self._database.reading() as connection:
            now = self._rows.load(connection, job.number)
            if now.attempts != job.attempts:
                # Another worker has taken it since.
                error = self._error_of(connection, job)
                now = attrs.evolve(now, state=JobState.QUEUED, reason=error)
            level = logging.ERROR if now.state is JobState.FAILED else logging.INFO
            words = f"{now.state}{now.reason and f': {now.reason}'}"
            told(_logger, level, f"job_{now.state}", words, job=job.id, attempt=job.attempts)

    def _leave(self, job: Job, code: int, why: str) -> None:
        with self._database.reading() as connection:
            error = self._error_of(connection, job) or why
        self._offer.leave(job, error, has_changed=code == HAS_CHANGED)

    def _error_of(self, connection: Connection, job: Job) -> str:
        """Return the error of the attempt that a claimed job was in; others may have followed."""
        attempts = self._rows.attempts(connection, job.number)
        return next((each.error for each in attempts if each.number == job.attempts), "")

    def _put_back(self, claim: Claim, why: str, *, blames_job: bool) -> None:
        # A child that settled its job before it exited has given up the lease, and another worker
        # may have recovered the job.
        with suppress(LeaseLostError):
            self._database.write(
                lambda connection: self._rows.give_back(
                    connection, claim, why, blames_job=blames_job
                )
            )

    def _recover(self, connection: Connection) -> Sequence[Job]:
        expired = self._rows.expired(connection)
        for job in expired:
            self._rows.put_back(connection, job, _lost(job))
        if not self._is_claim_open:
            return expired
        children = [child.claim.job.number for child in self._children]
        unfinished = self._rows.unfinished(connection, self._name, children)
        for job in unfinished:
            self._rows.put_back(connection, job, _lost(job), blames_job=False)
        return [*expired, *unfinished]

    def _end_children(self) -> None:
        for child in self._children:
            # To all of them before waiting for any, so that they pause side by side.
            child.process.send_signal(signal.SIGTERM)
        for child in self._children:
            try:
                child.process.wait(_SECONDS_TO_PAUSE)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        # Without the database, the jobs are put back by others when their leases are over.
        with suppress(DatabaseError):
            self._reap()
            self._presence.end()


def _digests(projects: Mapping[str, Project]) -> list[tuple[str, str]]:
    return [
        (name, submitted_digest(project, prompt))
        for name, project in projects.items()
        for prompt in project.names
    ]


def _lost(job: Job) -> str:
    return f"its worker {job.worker} was lost"


def exit_reason(code: int, fault: str = "") -> str:
    """Return why a child has ended with a code; ``fault`` is what is wrong with its project."""
    if code == HAS_CHANGED:
        mended = f": {fault}; mend it, and" if fault else ";"
        return f"the project has changed since its worker began{mended} start the worker again"
    if code == LACKS_SOMETHING:
        return "this machine lacks something for the project"
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with code {code}"
