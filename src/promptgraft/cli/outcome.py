"""Running the job of a command, and its summary: verdict, figures, exit code, next command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Protocol, TextIO, runtime_checkable

import attrs

from promptgraft.cli import stored
from promptgraft.cli.choosing import Runs
from promptgraft.cli.exits import ExitCode, cancelled_by_signals, complain, exit_code_of
from promptgraft.cli.output import Screen, relative
from promptgraft.cli.progress import ESTIMATED, EventStream, Progress
from promptgraft.cli.summary import exit_code_for, means_row, print_next
from promptgraft.errors import JournalMismatchError, WinnerNotStoredError
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import STRING
from promptgraft.ground.text import (
    counted,
    dollars,
    duration,
    fewer_tokens,
    model_in_words,
    number_or_unknown,
)
from promptgraft.journal.base import Journal
from promptgraft.overrides import PartDiff
from promptgraft.project.adding import Tracker, traced, tracking
from promptgraft.project.outcome import RunOutcome
from promptgraft.project.running import keep, run_job
from promptgraft.runs import RunFolder
from promptgraft.runs.folder import field_of, read_document
from promptgraft.runtime import EventBus
from promptgraft.search import HeldOut, OptimizationJob, RunResult, StopReason
from promptgraft.search.ledger import LedgerEntry, unanswered_in
from promptgraft.search.stopping import is_early, may_be_resumed, stop_sentence
from promptgraft.targets.base import Target

MODEL = "embedded offline model"
"""How the command line names the model of the demo and of dry runs."""

_MOST_LINES = 25

FIELD = len("validation")
"""Columns that the names of fields take in summaries."""


@runtime_checkable
class ExplainingAdapter(Protocol):
    """An adapter that can say why its replies, of which a search kept none, taught nothing."""

    def nothing_learned(self, replies: Iterable[str]) -> str: ...


@attrs.frozen(kw_only=True)
class Runner:
    """Runs the job of a command, with its progress and its workers.

    Attributes:
        progress: shows how far the run is.
        workers: rollouts side by side; None for the default of the job.
        executor: makes the rollouts, instead of threads; None for threads.
        stream: gets the events of the run as lines of JSON; None with text output.
        trackers: where else the run is shown.
    """

    progress: Progress
    workers: int | None
    executor: Executor | None = None
    stream: TextIO | None = None
    trackers: Mapping[str, Tracker] = attrs.field(factory=dict)

    def run(
        self,
        job: OptimizationJob,
        *,
        say: Sequence[str] = (),
        folder: RunFolder | None = None,
        journal: Journal | None = None,
    ) -> RunResult:
        """Run a job until it ends or is interrupted, after showing the messages in ``say``.

        In a process that is instrumented with OpenTelemetry, the run is traced.
        """
        bus = job.context.event_bus or EventBus()
        tracked = self._tracked(bus, folder)
        with self.progress, cancelled_by_signals() as cancellation, tracked:
            for message in say:
                self.progress.say(message)
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

    def run_in(
        self, folder: RunFolder, job: OptimizationJob, *, config: Mapping[str, Json] | None = None
    ) -> RunOutcome:
        """Run a job in its folder; see :func:`keep`."""
        say = [f"run {folder.id} is kept in {relative(folder.path)}"]
        if job.context.journal is not None:
            say.append("the run's own journal is used; the job's journal is left alone")
        outcome = keep(folder, job, partial(self.run, say=say, folder=folder), config=config)
        if outcome.failure:
            complain(outcome.failure)
        return outcome

    def _tracked(self, bus: EventBus, folder: RunFolder | None) -> AbstractContextManager[None]:
        """Return a context in which events on the bus also reach trackers or OpenTelemetry."""
        # Only runs that are kept have a name under which a tracker finds them again.
        if folder is None or not self.trackers:
            return traced(bus)
        key = field_of(STRING, read_document(folder.config), folder.config, "tracked_as")
        return tracking(self.trackers, bus, key=key, folder=folder.path)


def conclude_run(outcome: RunOutcome, runs: Runs, *, stream: TextIO | None) -> ExitCode:
    """Print the outcome of a run and what to do next, and return the exit code."""
    folder = outcome.folder
    if stream is not None:
        run, path = (folder.id, str(folder.path.absolute())) if folder else (None, None)
        result = {"event": "result", "run": run, "folder": path, **outcome_json(outcome)}
        EventStream(stream).end(result)
    else:
        print_outcome(Screen(), outcome, runs)
    resume = ""
    if folder is not None and _may_be_resumed(outcome):
        resume = f"; `{runs.command('resume', folder)}` resumes it"
    if (error := outcome.error) is not None:
        complain(f"{error}{resume}")
        return exit_code_of(error)
    if early := early_stop(outcome.result):
        complain(f"{early}{resume}")
    return exit_code_for(outcome.result.stop_reason, improved=outcome.result.improved)


def early_stop(result: RunResult) -> str:
    """Return why a run stopped early, for standard error; empty if it went to its end."""
    if not is_early(result.stop_reason):
        return ""
    failed = result.stop_reason is StopReason.PROVIDER_FAILED
    return f"{'the provider failed' if failed else 'stopped early'}: {result.stop_detail}"


def outcome_json(outcome: RunOutcome) -> dict[str, Json]:
    """Return the outcome as plain data; money is a decimal number as text."""
    store, address = outcome.store, outcome.address
    stored_json: dict[str, Json] = {
        "tag": outcome.result.tag,
        "persisted": outcome.result.persisted,
        "store": None if store is None else store.place,
        "file": stored.override_file(store, address) if store and address else None,
        "revision": stored.revision_json_or_none(outcome.revision),
        "problem": outcome.unstored or None,
    }
    return {**outcome.document(), "dry_run": outcome.dry, "stored": stored_json}


def print_verdict(screen: Screen, prompt: str, result: RunResult) -> None:
    """Print the verdict on a run in one line."""
    early = ", stopped early" if is_early(result.stop_reason) else ""
    color = "green" if result.improved else None
    screen.line(f"{prompt}: {result.verdict}{early}", bold=True, color=color)


def print_found(
    screen: Screen,
    result: RunResult,
    parts: Sequence[PartDiff],
    *,
    noun: str,
    job: OptimizationJob,
    more: Sequence[tuple[str, str]] = (),
    seconds: float | None = None,
    is_replay: bool = False,
) -> None:
    """Print the means of a run, ``more`` fields, what its winner changes and what it used.

    ``noun`` is the word for a case.
    """
    config, adapter = job.config, job.context.reflection_adapter or job.context.adapter
    held_out = result.held_out.gain if result.held_out else None
    longer, wear = result.held_out.answer_length if result.held_out else "", result.wear
    marks = result.is_estimated(0), result.is_estimated(result.best_index)
    means = means_row(result.baseline_pareto_mean, result.best_pareto_mean, estimated=marks)
    rows = [("validation", *means, counted(len(result.pareto_ids), noun))]
    if held_out is not None:
        unseen = f"{counted(held_out.cases + len(held_out.unscored), noun)}, never seen before"
        # The test ends as soon as it has decided.
        if result.held_out and len(result.held_out.ids) < (whole := len(config.held_out)):
            unseen = f"{len(result.held_out.ids)} of {whole} unseen {noun}s were enough"
        unseen += result.held_out.repeats if result.held_out else ""
        rows.insert(0, ("test", *means_row(held_out.mean_before, held_out.mean_after), unseen))
    rows += _hidden_rows(result.held_out)
    screen.line()
    screen.table([(f"{'':{FIELD}}", "before", "after", "gain", ""), *rows])
    if any(figure.startswith("~") for figure in means):
        screen.line(ESTIMATED)
    screen.line()
    time = "" if seconds is None else f" in {duration(seconds)}"
    # The time is that of a replay, and not that of the calls.
    time = "; nothing was asked now" if is_replay else time
    calls = f"{result.total_rollouts:,} of {config.budget:,} test calls"
    reflections = counted(result.total_reflections, "reflection call")
    screen.fields(
        [
            *([("cases", held_out.details)] if held_out and held_out.cases else []),
            *([("answers", longer)] if longer else []),
            # From some runs on it is a warning.
            *([("test set", wear.line)] if wear is not None and not wear.is_worn else []),
            *more,
            *([("trimmed", fewer_tokens(result.shortened))] if result.shortened else []),
            ("cost", f"{dollars(result.total_cost)}, {calls}, {reflections}{time}"),
            ("rewrites", str(result.rewrites)),
            ("stopped", stop_sentence(result.stop_reason, result.stop_detail)),
        ],
        width=FIELD,
    )
    _print_changes(screen, parts)
    if not result.ended.accepted and (why := _nothing_learned(adapter, result)):
        screen.line(why, color="yellow")


def _nothing_learned(adapter: object, result: RunResult) -> str:
    if not isinstance(adapter, ExplainingAdapter):
        return ""
    return adapter.nothing_learned(rejection.text for rejection in result.rejections)


def _hidden_rows(held_out: HeldOut | None) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the means of each hidden metric on the held-out examples."""
    if held_out is None:
        return
    for hidden in held_out.hidden:
        gain = held_out.hidden_gain(hidden)
        yield hidden.metric, *means_row(gain.mean_before, gain.mean_after), "hidden metric"


def _print_changes(screen: Screen, parts: Sequence[PartDiff]) -> None:
    """Print the changed lines of the winner's texts, as many as fit on a screen."""
    room, more = _MOST_LINES, 0
    for part in parts:
        if part.before == part.after:
            continue
        screen.line()
        screen.line(f"changed: {part.part}", bold=True)
        changed = screen.changed_lines(part, most=room)
        more += max(0, changed - room)
        room = max(0, room - changed)
    if more:
        screen.line(f"and {counted(more, 'more changed line')}")


def _print_ledger(screen: Screen, result: RunResult) -> None:
    """Print calls, tokens, money and time by role and model, without columns of zeros."""
    head = (
        "",
        "calls",
        "retries",
        "in",
        "cached",
        "out",
        "thinking",
        "dollars",
        "seconds",
        "model",
    )
    rows = [_ledger_row(entry) for entry in result.ledger]
    columns = [
        column
        for column in zip(head, *rows, strict=True)
        if column[0] == "calls" or any(cell.strip("0.") for cell in column[1:])
    ]
    screen.line()
    screen.table(list(zip(*columns, strict=True)))
    if note := unanswered_in(result.ledger):
        screen.line(note)


def _ledger_row(entry: LedgerEntry) -> tuple[str, ...]:
    sent, received = map(number_or_unknown, entry.tokens)
    return (
        entry.role,
        f"{entry.calls:,}",
        f"{entry.retries:,}",
        sent,
        f"{entry.usage.cached_tokens:,}",
        received,
        f"{entry.usage.reasoning_tokens:,}",
        "unknown" if entry.unpriced_calls else f"{entry.cost:,.4f}",
        f"{entry.seconds:,.1f}",
        model_in_words(entry.model),
    )


def print_outcome(screen: Screen, outcome: RunOutcome, runs: Runs) -> None:
    """Print the outcome as text, with the next command; ``runs`` is the folder of the run."""
    result, held_out = outcome.result, outcome.result.held_out
    print_verdict(screen, outcome.job.name, result)
    if outcome.dry:
        screen.line(f"a dry run on the {MODEL}")
    why_not = "" if held_out is None else held_out.why_not
    print_found(
        screen,
        result,
        outcome.parts,
        noun="case",
        job=outcome.job,
        more=[("test", f"not measured: {why_not}")] if why_not else (),
        seconds=outcome.seconds,
        is_replay=outcome.is_replay,
    )
    for warning in outcome.warnings:
        screen.line(f"warning: {warning}", color="yellow")
    if result.ledger:
        _print_ledger(screen, result)
    screen.line()
    _print_kept(screen, outcome)
    if command := _next(outcome, runs):
        print_next(screen, command)


def _print_kept(screen: Screen, outcome: RunOutcome) -> None:
    rows = []
    address, store = outcome.address, outcome.store
    if store is not None and address is not None:
        rows.append(("stored", f"tag `{address.tag}`, {stored.short(outcome.revision)}"))
        if file := stored.override_file(store, address):
            rows.append(("file", str(relative(Path(file)))))
    elif outcome.result.persisted:
        job = outcome.job
        if isinstance(job.subject, Target):
            where = f"by {type(job.subject).__name__}"
        else:
            where = (
                f"tag `{outcome.result.tag}` of the {type(job.context.overrides_store).__name__}"
            )
        rows.append(("stored", where))
    elif outcome.result.found_better and (outcome.job.config.persist or outcome.folder is None):
        rows.append(("stored", f"no: {outcome.unstored}"))
    if (folder := outcome.folder) is not None:
        page = folder.report if folder.report.exists() else folder.path
        rows.append(("kept in", str(relative(page))))
    screen.fields(rows, width=FIELD)


def _may_be_resumed(outcome: RunOutcome) -> bool:
    # The store or the journal would refuse a resumed run for the same reason.
    is_refused = isinstance(outcome.error, JournalMismatchError | WinnerNotStoredError)
    return not is_refused and may_be_resumed(outcome.result.stop_reason)


def _next(outcome: RunOutcome, runs: Runs) -> str:
    """Return the command that most people want next; empty if there is none."""
    result, folder = outcome.result, outcome.folder
    if outcome.store is not None and outcome.address is not None:
        return stored.tag_command("diff", outcome.address, outcome.store)
    if folder is None:
        return ""
    if result.stop_reason is StopReason.FAILED and result.found_better:
        # An error stopped the run, so it has no winner yet, only a best candidate.
        best = runs.command("apply", folder, f"--candidate {result.best_index}")
        resume = f"{runs.command('resume', folder)}\n"
        return f"{resume if _may_be_resumed(outcome) else ''}{best}"
    if is_early(result.stop_reason) and _may_be_resumed(outcome):
        return runs.command("resume", folder)
    is_kept = result.persisted and outcome.address is None
    return runs.command("apply" if result.improved and not is_kept else "show", folder)
