"""Carrying out a job until it ends or is interrupted, and keeping it in a run directory."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import TextIO, TypeAlias

import attrs

from promptgraft.cli.choosing import Runs
from promptgraft.cli.exits import ExitCode, complain, exit_code_of
from promptgraft.cli.outcome import Outcome, complaint, exit_code_for, outcome_json, print_outcome
from promptgraft.cli.output import Screen, relative
from promptgraft.cli.progress import EventStream, Progress
from promptgraft.clock import SystemClock
from promptgraft.errors import ConfigError, PromptgraftError, WinnerNotStoredError
from promptgraft.journal import FileJournal
from promptgraft.project.trackers import TrackersConfig
from promptgraft.runs import RunFolder
from promptgraft.runs.folder import write_document
from promptgraft.runs.recorder import recorded
from promptgraft.runtime import Cancellation, EventBus
from promptgraft.search import OptimizationJob, RunResult
from promptgraft.serde import Json

Tracking: TypeAlias = Callable[[EventBus], AbstractContextManager[None]]
"""Shows runs that publish to a bus somewhere else, while it is open."""


def carry_out(
    job: OptimizationJob,
    *,
    progress: Progress,
    cancellation: Cancellation,
    workers: int | None,
    journal: str | None = None,
    stream: TextIO | None = None,
    tracking: Tracking | None = None,
) -> RunResult:
    """Run a job as ``OptimizationJob.run`` does, and write its events to ``stream`` as lines.

    ``workers`` and ``journal`` replace those of its context. A process that is instrumented with
    OpenTelemetry makes spans of the run.
    """
    given = job.context
    bus = given.event_bus or EventBus()
    with contextlib.ExitStack() as held:
        if tracking is not None:
            held.enter_context(tracking(bus))
        elif "opentelemetry.trace" in sys.modules:
            from promptgraft.integrations.telemetry import traced

            held.enter_context(traced(bus))
        held.callback(bus.subscribe(object, progress.on_event))
        if stream is not None:
            held.callback(bus.subscribe(object, EventStream(stream).on_event))
        if given.cancellation is not None:
            theirs = given.cancellation
            held.callback(theirs.listen(lambda: cancellation.set(theirs.reason)))
        executor = given.executor
        if workers is not None:
            # One worker is a thread, too: this one waits for what may not end.
            executor = threads = ThreadPoolExecutor(max_workers=workers)
            # A run that was stopped leaves behind what does not end; so does its command.
            held.callback(threads.shutdown, wait=False, cancel_futures=True)
        context = attrs.evolve(
            given,
            event_bus=bus,
            cancellation=cancellation,
            executor=executor,
            journal=given.journal if journal is None else held.enter_context(FileJournal(journal)),
        )
        return attrs.evolve(job, context=context).run()


@attrs.frozen(kw_only=True)
class Keeping:
    """How a run is carried out: see :func:`carry_out`."""

    progress: Progress
    workers: int | None
    stream: TextIO | None
    trackers: TrackersConfig = attrs.field(factory=TrackersConfig)


def keep(
    folder: RunFolder,
    job: OptimizationJob,
    keeping: Keeping,
    *,
    config: Mapping[str, Json] | None = None,
) -> Outcome:
    """Run a job in its folder, which may get another ``config``; what it holds is not paid again.

    Raises:
        JournalLockedError: another process works in the folder.
    """
    say = [f"run {folder.id} is kept in {relative(folder.path)}"]
    if job.context.journal is not None:
        say.append("the answers are kept in its journal; that of the job is left alone")
    with recorded(folder, job) as (kept, recorder):
        if config is not None:
            write_document(folder.config, config)
        outcome = _run(kept, keeping, say=say, tracking=_tracking(keeping.trackers, folder))
    if recorder.failure:
        complain(recorder.failure)
    return attrs.evolve(outcome, job=job, folder=folder)


def run_dry(job: OptimizationJob, keeping: Keeping) -> Outcome:
    """Run a job on the embedded offline model, which must serve it, and keep nothing."""
    dry = job.dry()
    try:
        return attrs.evolve(_run(dry, keeping), dry=True)
    except ConfigError as error:
        raise ConfigError(f"--dry-run: {error}") from error


def _tracking(trackers: TrackersConfig, folder: RunFolder) -> Tracking | None:
    if trackers == TrackersConfig():
        return None
    from promptgraft.integrations.trackers import tracking

    return partial(tracking, trackers, folder)


def _run(
    job: OptimizationJob,
    keeping: Keeping,
    *,
    say: Sequence[str] = (),
    tracking: Tracking | None = None,
) -> Outcome:
    error: PromptgraftError | None = None
    clock = SystemClock()
    began = clock.monotonic()
    with keeping.progress, cancelled_by_signals() as cancellation:
        for what in say:
            keeping.progress.say(what)
        try:
            result = carry_out(
                job,
                progress=keeping.progress,
                cancellation=cancellation,
                workers=keeping.workers,
                stream=keeping.stream,
                tracking=tracking,
            )
        except PromptgraftError as found:
            if not isinstance(found.result, RunResult) or found.result.best_pareto_mean is None:
                raise  # nothing was found by then
            result, error = found.result, found
    seconds = clock.monotonic() - began
    return Outcome(job=job, dry=False, result=result, error=error, seconds=seconds)


def conclude_run(outcome: Outcome, runs: Runs, *, stream: TextIO | None) -> ExitCode:
    """Print what became of a run and what to do next, and return the exit code."""
    folder = outcome.folder
    if stream is not None:
        run, path = (folder.id, str(folder.path.absolute())) if folder else (None, None)
        result = {"event": "result", "run": run, "folder": path, **outcome_json(outcome)}
        EventStream(stream).end(result)
    else:
        print_outcome(Screen(), outcome, runs)
    resume = "" if folder is None else f"; `{runs.command('resume', folder)}` resumes it"
    if (error := outcome.error) is not None:
        complain(f"{error}{'' if isinstance(error, WinnerNotStoredError) else resume}")
        return exit_code_of(error)
    if said := complaint(outcome.result):
        complain(f"{said}{resume}")
    return exit_code_for(outcome.result.stop_reason, improved=outcome.result.improved)


_REASONS: dict[int, str] = {
    signal.SIGINT: "interrupted (Ctrl+C)",
    signal.SIGTERM: "asked to end (SIGTERM)",
}


@contextlib.contextmanager
def cancelled_by_signals() -> Iterator[Cancellation]:
    """Give a cancellation that SIGINT (Ctrl+C) and SIGTERM set.

    The second signal ends the process without waiting. What a run was answered is
    in its journal by then: every answer is written before it is used. Outside the main thread,
    where Python takes no signals, the cancellation is never set.
    """
    cancellation = Cancellation()
    if threading.current_thread() is not threading.main_thread():
        yield cancellation
        return

    def stop(number: int, _: object = None) -> None:
        cancellation.set(_REASONS[number])

    # Handlers run in the main thread, which may be in a call that does not end; a thread that
    # reads the numbers of signals does not have to wait for it.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = {number: signal.signal(number, stop) for number in _REASONS}
    watcher = threading.Thread(target=_watch, args=(reading, stop), daemon=True)
    watcher.start()
    woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield cancellation
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken)
        os.close(writing)
        watcher.join()
        os.close(reading)


def _watch(reading: int, stop: Callable[[int], None]) -> None:
    is_second = False
    while byte := os.read(reading, 1):
        if byte[0] in _REASONS:
            if is_second:
                _end_at_once()
            stop(byte[0])
            is_second = True


def _end_at_once() -> None:
    # Not `print`, whose lock a thread may hold for ever; nor where nobody reads.
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, b"promptgraft: interrupted again, ended at once\n")
    os._exit(ExitCode.STOPPED_EARLY)
