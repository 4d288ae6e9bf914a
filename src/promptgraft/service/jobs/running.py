"""Running a claimed job: its preparation, its run, and the state that follows."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Iterator, Mapping

import attrs
from sqlalchemy import Connection

from promptgraft import errors
from promptgraft.adapters.calling.limiter import share_accounts
from promptgraft.ground import signals
from promptgraft.ground.clock import SystemClock
from promptgraft.project import Project
from promptgraft.project.adding import cluster, tracking
from promptgraft.project.outcome import RunOutcome
from promptgraft.project.python_source import beside
from promptgraft.project.running import Runnable, run_job
from promptgraft.runtime import Cancellation, EventBus
from promptgraft.search.job import OptimizationJob
from promptgraft.search.result import RunResult
from promptgraft.search.stopping import StopReason, stop_sentence
from promptgraft.service.database import Database, SqlJournal
from promptgraft.service.jobs.datasets import on_chosen
from promptgraft.service.jobs.mirror import name_of
from promptgraft.service.jobs.paths import relative_paths
from promptgraft.service.jobs.preparing import check_reach, planned, prepared, run_changes_of
from promptgraft.service.jobs.promoting import CandidateStore
from promptgraft.service.jobs.reporting import Heartbeat, JobEvents
from promptgraft.service.jobs.rows import Claim, JobRows
from promptgraft.service.jobs.types import Job, JobChanges, JobState, Status, Wish

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
"""Reasons after which a run can continue, once a cause is removed or a limit is raised."""


def carry_out(
    database: Database, claim: Claim, project: Project, *, calls: int | None = None
) -> str:
    """Run a claimed job, and settle it or put it back, unless another worker has it.

    ``calls`` limits the model calls in flight, whatever the project says. Returns what this
    machine lacks for the project, such as a key; empty if nothing. The job is put back then.
    """
    if calls is not None:
        share_accounts(calls)
    clock = SystemClock()
    with (
        Heartbeat(database, claim, clock=clock) as heartbeat,
        beside(project.folder),
        _paused_by_signal(heartbeat.pause),
    ):
        most = project.config.max_cost_per_day
        events = JobEvents(database, claim, heartbeat, clock=clock, most=most)
        attempt = _Attempt(database, claim, project, heartbeat, events)
        job: OptimizationJob | None = None
        try:
            with database.reading() as connection:
                submissions = JobRows(database).submissions(connection, [claim.job.number])
            check_reach(project, submissions.get(claim.job.number, {}))
            project = on_chosen(database, project, claim.job.project, claim.job.changes)
            attempt = attrs.evolve(attempt, project=project)
            job = prepared(project, claim.job.prompt, claim.job.changes)
            winners = CandidateStore(project.store(), claim.job.candidate_tag)
            # Checked once, for its configuration and its run.
            job = job.within(
                attrs.evolve(job.context, pause=heartbeat.pause, overrides_store=winners)
            ).check()
            attempt.store_config(job)
            end = attempt.run(job, winners, calls=calls)
        # Any other exception ends this process, and its worker puts the job back.
        except errors.PromptgraftError as error:
            is_place = _is_fault_of_place(error, claim.job, project, is_prepared=job is not None)
            end = _put_back(error, claim.job) if is_place else _end_by(error)
        end = _shown_elsewhere(end, project)
        # Unless another worker has the job: its state is no longer ours to write.
        with contextlib.suppress(errors.LeaseLostError):
            if heartbeat.lost:
                attempt.give_back(heartbeat.lost)
            else:
                attempt.settle(job, end)
    return end.lacking


def _is_fault_of_place(
    error: errors.PromptgraftError, job: Job, project: Project, *, is_prepared: bool
) -> bool:
    """Return whether another worker may run a job that has failed here with an error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, errors.MissingHereError):
            return True
        cause = cause.__cause__
    if is_prepared or not isinstance(error, errors.CallerError):
        return False
    # The project is as it was submitted, and was planned then. What cannot be prepared here but
    # can be planned lacks only secrets; what cannot be planned without the changes of the job
    # either lacks code or files.
    return _can_be_planned(project, job, job.changes) or not _can_be_planned(
        project, job, JobChanges(dry_run=True, budget=job.changes.budget)
    )


def _can_be_planned(project: Project, job: Job, changes: JobChanges) -> bool:
    try:
        planned(project, job.prompt, changes)
    except errors.CallerError:
        return False
    return True


def _put_back(error: errors.PromptgraftError, job: Job) -> _End:
    why = f"worker {job.worker} cannot run it: {error}; then restart the worker"
    return _End(state=JobState.QUEUED, reason=why, error=str(error), lacking=str(error))


def _shown_elsewhere(end: _End, project: Project) -> _End:
    """Return an end whose messages tell nothing of where the project is on this machine."""
    reason, error, lacking = (
        relative_paths(message, [project.folder])
        for message in (end.reason, end.error, end.lacking)
    )
    return attrs.evolve(end, reason=reason, error=error, lacking=lacking)


@attrs.frozen(kw_only=True)
class _End:
    """The state that follows an attempt.

    Attributes:
        reason: why the job is in this state, in one line.
        error: the error that ended the attempt; empty if it ended in order.
        result: the result of the run; None if it has none.
        unstored: why the winner is not in the store; empty if it is, or there is none.
        revisions: the revisions that hold the winner, by address.
        replaces: the revisions of the live tag that applying it replaces, by address.
        lacking: what this machine lacks for the project; the job is not to blame then.
    """

    state: JobState
    reason: str = ""
    error: str = ""
    result: RunResult | None = None
    unstored: str = ""
    revisions: Mapping[str, str] = attrs.field(factory=dict)
    replaces: Mapping[str, str] = attrs.field(factory=dict)
    lacking: str = ""


@attrs.frozen
class _Attempt:
    """One attempt at a claimed job."""

    database: Database
    claim: Claim
    project: Project
    heartbeat: Heartbeat
    events: JobEvents

    def store_config(self, job: OptimizationJob) -> None:
        """Store the ``config.json`` of the run directory, for mirrors."""
        changes = attrs.evolve(run_changes_of(self.claim.job.changes), tag=self.claim.job.tag)
        config = Runnable.made(self.project, self.claim.job.prompt, job, changes).config
        rows = JobRows(self.database)

        def put(connection: Connection) -> None:
            rows.check(connection, self.claim)
            rows.put(connection, self.claim.job.number, config=json.dumps(config).encode())

        self.database.write(put)

    def run(self, job: OptimizationJob, winners: CandidateStore, *, calls: int | None) -> _End:
        """Run the job on the cluster and with the trackers of the project."""
        config, heartbeat = self.project.config, self.heartbeat
        bus = job.context.event_bus or EventBus()
        trackers = {} if self.claim.job.changes.dry_run else config.trackers
        with contextlib.ExitStack() as stack:
            executor = stack.enter_context(
                cluster(config.executor, code=self.project.folder, at_once=calls)
            )
            try:
                stack.enter_context(tracking(trackers, bus, key=name_of(self.claim.job)))
            except errors.MissingHereError:
                raise
            except (
                errors.ConfigError
            ) as error:  # the job itself is not at fault: pause, do not fail
                return _End(state=JobState.PAUSED, reason=str(error), error=str(error))
            journal = self._journal(job)
            stack.callback(_close, journal)
            result = run_job(
                job.within(attrs.evolve(job.context, event_bus=bus)),
                workers=min(self.project.workers, calls or self.project.workers),
                executor=executor,
                listeners=[self.events.on_event],
                cancellation=heartbeat.cancellation,
                journal=journal,
            )
        end = _end_by(heartbeat.fault) if heartbeat.fault else _end_of(result, heartbeat)
        if end.result is None or not result.persisted:
            return end
        return attrs.evolve(end, revisions=winners.revisions, replaces=winners.replaces)

    def _journal(self, job: OptimizationJob) -> SqlJournal:
        """Open the journal of the job, without answers of its origin that count no more."""
        number, rows = self.claim.job.number, JobRows(self.database)
        journal = SqlJournal(self.database, number, fence=self.claim.fence)
        if self.claim.job.origin is None or job.checked is None:
            return journal
        try:
            job.checked.check_journal(journal)
        except errors.JournalMismatchError as error:
            with self.database.reading() as connection:
                attempts = rows.attempts(connection, number)
            if attempts[0].answers != attempts[-1].answers:
                return journal  # some of them are of this job; the run refuses them
            _close(journal)
            cause = str(error).rpartition("; ")[0]  # the mend is to begin anew
            why = f"begins without the answers of job {self.claim.job.origin[:8]}: {cause}"
        else:
            return journal

        def drop(connection: Connection) -> None:
            rows.check(connection, self.claim)
            rows.drop_answers(connection, number)
            rows.put(connection, number, reason=why.encode())
            rows.publish(connection, number, "job_began_anew", reason=why)

        self.database.write(drop)
        return SqlJournal(self.database, number, fence=self.claim.fence)

    def give_back(self, why: str) -> None:
        """Put the job back after a write that failed, although its lease may not be over."""
        rows = JobRows(self.database)
        self.database.write(lambda connection: rows.give_back(connection, self.claim, why))

    def settle(self, job: OptimizationJob | None, end: _End) -> None:
        """Store how the attempt ended; ``job`` is None if it could not be prepared."""
        claim, rows = self.claim, JobRows(self.database)
        document = None
        if job is not None and end.result is not None:
            document = json.dumps(RunOutcome(job=job, result=end.result).document()).encode()
        # An attempt that ends before it has caught up knows less than the one before it.
        status = claim.job.status if self.events.repeats else self.events.status
        status = _final_status(end, claim.job.changes, status)

        def settle(connection: Connection) -> None:
            rows.check(connection, claim)
            rows.advance(connection, claim.job.number, self.events.progress, status)
            rows.settle(
                connection,
                claim.job,
                end.state,
                reason=end.reason,
                error=end.error,
                result=document,
                blames_job=not end.lacking,
            )
            if end.result is not None:
                rows.put(connection, claim.job.number, **_calls_of(end.result))

        self.database.write(settle)


def _calls_of(result: RunResult) -> dict[str, object]:
    """Return what the model calls of a run come to, as columns of its job."""
    ledger = result.ledger
    return {
        "calls": sum(entry.calls for entry in ledger),
        "retries": sum(entry.retries for entry in ledger),
        "milliseconds": round(1000 * sum(entry.seconds for entry in ledger)),
    }


def _close(journal: SqlJournal) -> None:
    # Settling reports a lost lease, and must not be skipped because closing raised it first.
    with contextlib.suppress(errors.LeaseLostError):
        journal.close()


def _reason(result: RunResult) -> str:
    return stop_sentence(result.stop_reason, result.stop_detail)


def _end_of(result: RunResult, heartbeat: Heartbeat) -> _End:
    reason = _reason(result)
    if heartbeat.wish is Wish.CANCEL and result.stop_reason is StopReason.CANCELLED:
        return _End(state=JobState.CANCELLED, reason="asked to end")
    if result.stop_reason is StopReason.PAUSED:
        why = "asked to pause" if heartbeat.wish is Wish.PAUSE else heartbeat.spent
        return _End(
            state=JobState.PAUSED if why else JobState.QUEUED,
            reason=why or "its worker was asked to end",
        )
    if result.stop_reason is StopReason.CANCELLED:
        # Cancelled without a user's wish: the lease is lost, and this state is not written.
        return _End(state=JobState.QUEUED, reason=reason)
    if result.stop_reason in _PAUSING:
        return _End(state=JobState.PAUSED, reason=reason, result=result)
    return _End(state=JobState.COMPLETED, reason=reason, result=result)


def _end_by(error: errors.PromptgraftError) -> _End:
    reason = str(error)
    if isinstance(error, errors.WinnerNotStoredError) and isinstance(error.result, RunResult):
        result = error.result
        return _End(
            state=JobState.COMPLETED, reason=_reason(result), result=result, unstored=str(error)
        )
    if isinstance(
        error, (errors.ProviderError, errors.LimitReachedError, errors.JournalCorruptError)
    ):
        return _End(state=JobState.PAUSED, reason=reason, error=reason)
    if isinstance(error, (errors.CallerError, errors.JournalMismatchError)):
        return _End(state=JobState.FAILED, reason=reason, error=reason)
    return _End(state=JobState.QUEUED, reason=reason, error=reason)


def _final_status(end: _End, changes: JobChanges, status: Status) -> Status:
    status = attrs.evolve(status, waiting="", stage="", unstored=end.unstored)
    result = end.result
    if result is None:
        return status
    if result.found_better and not result.persisted and not end.unstored:
        stores = changes.store and not changes.dry_run
        anyway = f"the winner is {result.verdict}; with `keep_anyway` it is stored anyway"
        why = anyway if stores else "the job stores nothing"
        status = attrs.evolve(status, unstored=why)
    gain = result.held_out.gain if result.held_out else None
    return attrs.evolve(
        status,
        revisions=end.revisions,
        replaces=end.replaces,
        verdict=str(result.verdict),
        gain=gain.mean_gain if gain else None,
        gain_low=gain.low if gain else None,
        gain_high=gain.high if gain else None,
        held_out=gain.cases if gain else 0,
    )


@contextlib.contextmanager
def _paused_by_signal(pause: Cancellation) -> Iterator[None]:
    """Make SIGTERM pause a run after its step, and ignore Ctrl+C, which is for the worker."""
    # Only the main thread may install handlers; in any other, the caller handles signals.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        pause.set("its worker was asked to end")

    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals.handling([signal.SIGTERM], stop):
            yield
    finally:
        signal.signal(signal.SIGINT, ignored)
