"""Carrying out a job that was claimed: its run, its heartbeat, and where it goes from there."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor

import attrs
from sqlalchemy import Connection

from promptgraft.adapters.calling.limiter import share_accounts
from promptgraft.clock import SystemClock
from promptgraft.database import Database, SqlJournal
from promptgraft.errors import (
    CallerError,
    ConfigError,
    JournalCorruptError,
    JournalMismatchError,
    LeaseLostError,
    LimitReachedError,
    PromptgraftError,
    ProviderError,
    WinnerNotStoredError,
)
from promptgraft.integrations.trackers import tracking
from promptgraft.jobs.events import JobEvents
from promptgraft.jobs.heartbeat import Heartbeat
from promptgraft.jobs.mirror import name_of
from promptgraft.jobs.preparing import prepared
from promptgraft.jobs.rows import Claim, JobRows
from promptgraft.jobs.types import JobState, Status, Wish
from promptgraft.project import Project
from promptgraft.project.outcome import Outcome
from promptgraft.project.python_source import beside
from promptgraft.project.running import Changes, Runnable, run_job
from promptgraft.project.trackers import TrackersConfig
from promptgraft.project.workers import cluster
from promptgraft.runtime import Cancellation, EventBus
from promptgraft.search.job import OptimizationJob
from promptgraft.search.result import RunResult
from promptgraft.search.stopping import StopReason

_PAUSING = frozenset(
    {
        StopReason.PROVIDER_FAILED,
        StopReason.REFLECTION_FAILED,
        StopReason.COST,
        StopReason.TOKENS,
        StopReason.REFLECTIONS,
        StopReason.DEADLINE,
        StopReason.STOP_FILE,
    }
)
"""Why a run ends that goes on when something is mended or raised."""


@attrs.frozen(kw_only=True)
class _End:
    """Where a job goes from here, and why."""

    state: JobState
    reason: str = ""
    error: str = ""
    result: RunResult | None = None
    unstored: str = ""


@attrs.frozen
class _Work:
    """What a job is carried out with."""

    database: Database
    claim: Claim
    heartbeat: Heartbeat
    events: JobEvents


def carry_out(
    database: Database, claim: Claim, project: Project, *, calls: int | None = None
) -> None:
    """Run a job that was claimed, and settle it; nothing is settled when its lease is lost.

    ``calls``: model calls that may be in flight, whatever the project says; None for no limit.
    """
    if calls is not None:
        share_accounts(calls)
    clock = SystemClock()
    with (
        Heartbeat(database, claim, clock=clock) as heartbeat,
        beside(project.folder),
        paused_by_signal(heartbeat.pause),
    ):
        most = project.config.max_cost_per_day
        events = JobEvents(database, claim, heartbeat, clock=clock, most=most)
        work = _Work(database, claim, heartbeat, events)
        job: OptimizationJob | None = None
        try:
            job = prepared(project, claim.job.prompt, claim.job.changes)
            _describe(work, job, project)
            workers = min(project.workers, calls or project.workers)
            named = project.config.executor
            with cluster(named, code=project.folder, at_once=calls) as executor:
                end = _run(work, job, project, threads=workers, executor=executor)
        except PromptgraftError as error:
            end = _end_by(error)
        if not heartbeat.lost:
            with contextlib.suppress(LeaseLostError):
                _settle(work, job, end)


def _describe(work: _Work, job: OptimizationJob, project: Project) -> None:
    """Keep what ``config.json`` of a run directory holds, for mirrors."""
    claim, rows = work.claim, JobRows(work.database)
    source = Runnable.of(project, claim.job.prompt, job)
    config = attrs.evolve(source, changes=Changes(tag=claim.job.tag)).config

    def put(connection: Connection) -> None:
        rows.check(connection, claim)
        rows.put(connection, claim.job.number, config=json.dumps(config).encode())

    work.database.write(put)


def _run(
    work: _Work, job: OptimizationJob, project: Project, *, threads: int, executor: Executor | None
) -> _End:
    """Run the job, shown where runs of the project are, and return where it goes from there."""
    heartbeat, claim = work.heartbeat, work.claim
    bus = job.context.event_bus or EventBus()
    trackers = TrackersConfig() if claim.job.changes.dry_run else project.config.trackers
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(tracking(trackers, bus, key=name_of(claim.job)))
        except ConfigError as error:  # nothing of the job itself is at fault
            return _End(state=JobState.PAUSED, reason=str(error), error=str(error))
        journal = SqlJournal(work.database, claim.job.number, fence=claim.fence)
        held.callback(_close, journal)
        result = run_job(
            job.within(attrs.evolve(job.context, event_bus=bus, pause=heartbeat.pause)),
            workers=threads,
            executor=executor,
            listeners=[work.events.on_event],
            cancellation=heartbeat.cancellation,
            journal=journal,
        )
    return _end_by(heartbeat.fault) if heartbeat.fault else _end_of(result, heartbeat)


def _close(journal: SqlJournal) -> None:
    # A lease that is lost says so when it is settled.
    with contextlib.suppress(LeaseLostError):
        journal.close()


def _end_of(result: RunResult, heartbeat: Heartbeat) -> _End:
    said = f"{result.stop_reason}: {result.stop_detail}"
    if heartbeat.wish is Wish.CANCEL and result.stop_reason is StopReason.CANCELLED:
        return _End(state=JobState.CANCELLED, reason="asked to end")
    if result.stop_reason is StopReason.PAUSED:
        why = "asked to pause" if heartbeat.wish is Wish.PAUSE else heartbeat.spent
        return _End(
            state=JobState.PAUSED if why else JobState.QUEUED,
            reason=why or "its worker was asked to end",
        )
    if result.stop_reason is StopReason.CANCELLED:
        return _End(state=JobState.QUEUED, reason=said)
    if result.stop_reason in _PAUSING:
        return _End(state=JobState.PAUSED, reason=said, result=result)
    return _End(state=JobState.COMPLETED, reason=said, result=result)


def _end_by(error: PromptgraftError) -> _End:
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, WinnerNotStoredError) and isinstance(error.result, RunResult):
        result = error.result
        return _End(
            state=JobState.COMPLETED,
            reason=f"{result.stop_reason}: {result.stop_detail}",
            result=result,
            unstored=str(error),
        )
    if isinstance(error, (ProviderError, LimitReachedError, JournalCorruptError)):
        return _End(state=JobState.PAUSED, reason=said, error=said)
    if isinstance(error, (CallerError, JournalMismatchError)):
        return _End(state=JobState.FAILED, reason=said, error=said)
    return _End(state=JobState.QUEUED, reason=said, error=said)


def _settle(work: _Work, job: OptimizationJob | None, end: _End) -> None:
    claim, events, rows = work.claim, work.events, JobRows(work.database)
    document = None
    if job is not None and end.result is not None:
        document = json.dumps(Outcome(job=job, result=end.result).document()).encode()
    status = _final(job, end, events.status)

    def settle(connection: Connection) -> None:
        rows.check(connection, claim)
        rows.advance(connection, claim.job.number, events.progress, status)
        rows.settle(
            connection, claim.job, end.state, reason=end.reason, error=end.error, result=document
        )

    work.database.write(settle)


def _final(job: OptimizationJob | None, end: _End, status: Status) -> Status:
    result = end.result
    if job is None or result is None:
        return attrs.evolve(status, waiting="", stage="", unstored=end.unstored)
    stored, unstored = Outcome(job=job, result=result).revision, end.unstored
    if result.found_better and not result.persisted and not unstored:
        unstored = f"it is {result.verdict}" if not result.improved else "the job stores nothing"
    revision = None if stored is None else stored.id
    return attrs.evolve(status, waiting="", stage="", revision=revision, unstored=unstored)


@contextlib.contextmanager
def paused_by_signal(pause: Cancellation) -> Iterator[None]:
    """Let SIGTERM pause a run after its step, and leave Ctrl+C to the process above."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: pause.set("its worker was asked to end"))
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, ignored)
