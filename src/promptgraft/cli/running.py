"""How commands carry out a run: its progress, signals that interrupt it, and what is said then."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from functools import partial
from typing import TextIO

import attrs

from promptgraft.cli.choosing import Runs
from promptgraft.cli.exits import ExitCode, complain, exit_code_of
from promptgraft.cli.outcome import complaint, exit_code_for, outcome_json, print_outcome
from promptgraft.cli.output import Screen, relative
from promptgraft.cli.progress import EventStream, Progress
from promptgraft.cli.signals import cancelled_by_signals
from promptgraft.errors import WinnerNotStoredError
from promptgraft.journal.base import Journal
from promptgraft.project.outcome import Outcome
from promptgraft.project.running import keep, run_job
from promptgraft.project.services import TrackersConfig
from promptgraft.runs import RunFolder
from promptgraft.runs.folder import field_of, read_document
from promptgraft.runtime import EventBus
from promptgraft.search import OptimizationJob, RunResult
from promptgraft.serde import Json
from promptgraft.strict.checks import STRING


@attrs.frozen(kw_only=True)
class Keeping:
    """How a command carries a run out: with its progress, and its events on ``stream`` as lines."""

    progress: Progress
    workers: int | None
    executor: Executor | None = None
    stream: TextIO | None = None
    trackers: TrackersConfig = attrs.field(factory=TrackersConfig)

    def run(
        self,
        job: OptimizationJob,
        *,
        say: Sequence[str] = (),
        folder: RunFolder | None = None,
        journal: Journal | None = None,
    ) -> RunResult:
        """Run a job until it ends or is interrupted; ``say`` is said at its beginning.

        A process that is instrumented with OpenTelemetry makes spans of the run.
        """
        bus = job.context.event_bus or EventBus()
        tracked = self._tracked(bus, folder)
        with self.progress, cancelled_by_signals() as cancellation, tracked:
            for what in say:
                self.progress.say(what)
            listeners = [self.progress.on_event]
            if self.stream is not None:
                listeners.append(EventStream(self.stream).on_event)
            return run_job(
                job.within(attrs.evolve(job.context, event_bus=bus)),
                workers=self.workers,
                executor=self.executor,
                listeners=listeners,
                cancellation=cancellation,
                journal=journal,
            )

    def kept(
        self, folder: RunFolder, job: OptimizationJob, *, config: Mapping[str, Json] | None = None
    ) -> Outcome:
        """Run a job in its folder; see :func:`keep`."""
        say = [f"run {folder.id} is kept in {relative(folder.path)}"]
        if job.context.journal is not None:
            say.append("the answers are kept in its journal; that of the job is left alone")
        outcome = keep(folder, job, partial(self.run, say=say, folder=folder), config=config)
        if outcome.failure:
            complain(outcome.failure)
        return outcome

    def _tracked(self, bus: EventBus, folder: RunFolder | None) -> AbstractContextManager[None]:
        """Show what publishes to the bus somewhere else, while it is open."""
        if folder is not None and self.trackers != TrackersConfig():
            from promptgraft.integrations.trackers import tracking

            key = field_of(STRING, read_document(folder.config), folder.config, "tracked_as")
            return tracking(self.trackers, bus, key=key, folder=folder.path)
        if "opentelemetry.trace" not in sys.modules:
            return contextlib.nullcontext()
        from promptgraft.integrations.telemetry import traced

        return traced(bus)


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
