"""Carrying out a run that is kept in a run directory: ``optimize`` and ``resume``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

import attrs

from promptgraft.cli.changes import Changes
from promptgraft.cli.event_stream import EventStream
from promptgraft.cli.exits import ExitCode, complain
from promptgraft.cli.interrupts import cancelled_by_signals
from promptgraft.cli.outcome import Outcome, outcome_json
from promptgraft.cli.output import Screen
from promptgraft.cli.progress import Progress
from promptgraft.cli.run_choice import Runs, relative
from promptgraft.cli.runnable import Runnable
from promptgraft.cli.running import carry_out, complaint, exit_code_of_run
from promptgraft.cli.summary import print_outcome
from promptgraft.clock import SystemClock
from promptgraft.errors import ConfigError, WinnerNotStoredError
from promptgraft.runs import RunFolder
from promptgraft.runs.files import write_document
from promptgraft.runs.recorder import recorded
from promptgraft.runs.settings import run_config
from promptgraft.runtime import EventBus
from promptgraft.search.job import OptimizationJob
from promptgraft.search.result import RunResult
from promptgraft.serde import Json


@attrs.frozen(kw_only=True)
class Keeping:
    """How a run is carried out.

    Attributes:
        progress: shows how far it is.
        workers: rollouts side by side; None leaves that to the job.
        stream: where events go as lines; None for nowhere.
    """

    progress: Progress
    workers: int | None
    stream: TextIO | None


def config_of(runnable: Runnable, job: OptimizationJob, changes: Changes) -> dict[str, Json]:
    """Return what ``config.json`` says of a run.

    Raises:
        ConfigError, DataFormatError: the job cannot be run.
    """
    return run_config(
        job, origin=runnable.origin, settings=runnable.settings, options=changes.plain()
    )


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
        PromptgraftError: as ``OptimizationJob.run`` does.
    """
    job = attrs.evolve(job, context=attrs.evolve(job.context, event_bus=_bus(job)))
    with _streamed(job, keeping.stream), recorded(folder, job) as (kept, recorder):
        if config is not None:
            write_document(folder.config, config)
        outcome = _run(kept, keeping, say=_where(folder, job))
    if recorder.failure:
        complain(recorder.failure)
    return attrs.evolve(outcome, job=job, folder=folder)


def _where(folder: RunFolder, job: OptimizationJob) -> tuple[str, ...]:
    where = f"run {folder.id} is kept in {relative(folder.path)}"
    if job.context.journal is None:
        return (where,)
    return (where, "the answers are kept in its journal; that of the job is left alone")


def run_dry(job: OptimizationJob, keeping: Keeping) -> Outcome:
    """Run a job on the embedded offline model, and keep nothing.

    Raises:
        ConfigError: the model does not serve the prompt.
        PromptgraftError: as ``OptimizationJob.run`` does.
    """
    dry = job.dry()
    dry = attrs.evolve(dry, context=attrs.evolve(dry.context, event_bus=_bus(dry)))
    try:
        with _streamed(dry, keeping.stream):
            return attrs.evolve(_run(dry, keeping), dry=True)
    except ConfigError as error:
        raise ConfigError(f"--dry-run: {error}") from error


def _run(job: OptimizationJob, keeping: Keeping, *, say: Sequence[str] = ()) -> Outcome:
    problem, clock = "", SystemClock()
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
                journal=None,
            )
        except WinnerNotStoredError as error:
            if not isinstance(error.result, RunResult):
                raise
            result, problem = error.result, str(error)
    return Outcome(
        job=job,
        dry=False,
        result=result,
        problem=problem,
        seconds=clock.monotonic() - began,
    )


def conclude_run(outcome: Outcome, runs: Runs, *, stream: TextIO | None) -> ExitCode:
    """Print what became of a run and what to do next, and return the exit code."""
    if stream is not None:
        EventStream(stream).end(_result_json(outcome))
    else:
        print_outcome(Screen(), outcome, runs)
    if outcome.problem:
        complain(outcome.problem)
        return ExitCode.WRONG_USE
    if said := complaint(outcome.result):
        again = ""
        if outcome.folder is not None:
            again = f"; `{runs.command('resume', outcome.folder)}` goes on"
        complain(f"{said}{again}")
    return exit_code_of_run(outcome.result)


def _bus(job: OptimizationJob) -> EventBus:
    return job.context.event_bus or EventBus()


@contextlib.contextmanager
def _streamed(job: OptimizationJob, stream: TextIO | None) -> Iterator[None]:
    bus = job.context.event_bus
    if stream is None or bus is None:
        yield
        return
    stop = bus.subscribe(object, EventStream(stream).on_event)
    try:
        yield
    finally:
        stop()


def _result_json(outcome: Outcome) -> dict[str, Json]:
    folder = outcome.folder
    return {
        "event": "result",
        "run": None if folder is None else folder.id,
        "folder": None if folder is None else str(folder.path.absolute()),
        **outcome_json(outcome),
    }
