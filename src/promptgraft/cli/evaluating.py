"""Running the evaluation of ``promptgraft eval``, with its progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import ParamSpec, TypeVar

from promptgraft.adapters.abilities import is_in_batches
from promptgraft.adapters.base import CallWaiting
from promptgraft.adapters.calling.gathering import AT_ONCE, BatchExecutor
from promptgraft.cli.eval_progress import EvalProgress
from promptgraft.cli.exits import cancelled_by_signals
from promptgraft.cli.output import is_plain_terminal
from promptgraft.evals import gate
from promptgraft.evals.attempt import CaseAttempt
from promptgraft.evals.metrics.base import judges_of
from promptgraft.evals.types import Case
from promptgraft.ground.serde import digest
from promptgraft.journal import FileJournal
from promptgraft.journal.base import Journal
from promptgraft.runtime import Deadline, EventBus, Session

P = ParamSpec("P")
T = TypeVar("T")


class _WatchedExecutor(BatchExecutor):
    """An executor that reports the beginning and the end of each answer to the progress."""

    def __init__(
        self,
        workers: int,
        progress: EvalProgress,
        *,
        journal: Journal | None,
        deadline: Deadline,
        notices: EventBus,
    ) -> None:
        super().__init__(workers, journal=journal, deadline=deadline, notices=notices)
        self._progress = progress

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        def work() -> T:
            self._progress.begun()
            attempt: CaseAttempt | None = None
            try:
                answer = fn(*args, **kwargs)
                attempt = answer if isinstance(answer, CaseAttempt) else None
                return answer
            finally:
                self._progress.ended(attempt)

        return super().submit(work)


def progress_of(title: str, total: int, *, quiet: bool) -> EvalProgress:
    """Return the progress of an evaluation of ``total`` answers: a panel on a terminal."""
    if quiet or sys.stderr is None or not sys.stderr.isatty() or is_plain_terminal():
        return EvalProgress(total, quiet=quiet or sys.stderr is None)
    from promptgraft.cli.panel import EvalPanel

    return EvalPanel(title, total)


def evaluated_report(
    subject: gate.Subject,
    num_runs: int,
    baseline: gate.Baseline | None,
    *,
    workers: int,
    quiet: bool,
    folder: Path,
) -> gate.GateReport:
    """Evaluate a prompt; critical cases that score below the baseline are answered again.

    ``folder`` keeps the ids of pending batches, so that an interrupted evaluation can collect
    answers that were already paid for.
    """
    total = len(subject.cases) * num_runs
    batches_kept = _kept_batches(subject, folder)
    if batches_kept is None:
        return _report(subject, num_runs, baseline, workers=min(workers, total), quiet=quiet)
    batches_kept.parent.mkdir(parents=True, exist_ok=True)
    with FileJournal(batches_kept) as journal:
        journal.begin({"batches": str(subject.prompt.descriptor.key)})
        threads = min(AT_ONCE, total)
        report = _report(subject, num_runs, baseline, workers=threads, quiet=quiet, journal=journal)
    # Kept after a stop: the next evaluation collects the answers that were paid for.
    if not report.stopped:
        batches_kept.unlink()
    return report


def _kept_batches(subject: gate.Subject, folder: Path) -> Path | None:
    """Return the file for the ids of pending batches; None if no model answers in batches."""
    models = (subject.adapter, *judges_of(subject.metrics))
    if not any(map(is_in_batches, models)):
        return None
    prompt = subject.prompt.descriptor
    # A file for each, so that gates side by side do not exclude each other by its lock.
    what = digest([prompt.ns, prompt.key, subject.tried, subject.split])
    return folder / f"evaluation-{what[:16]}.batches"


def _report(
    subject: gate.Subject,
    num_runs: int,
    baseline: gate.Baseline | None,
    *,
    workers: int,
    quiet: bool,
    journal: Journal | None = None,
) -> gate.GateReport:
    total = len(subject.cases) * num_runs
    notices = EventBus()
    progress = progress_of(f"promptgraft eval {subject.prompt.descriptor.key}", total, quiet=quiet)
    with progress, cancelled_by_signals() as cancellation:
        notices.subscribe(CallWaiting, progress.waits)
        deadline = Deadline(cancellation=cancellation)
        session = Session(notices=notices, deadline=deadline)
        executor = _WatchedExecutor(
            workers, progress, journal=journal, deadline=deadline, notices=notices
        )

        def ask(cases: Sequence[Case], runs: int) -> gate.GateReport:
            evaluation = subject.evaluate(cases, num_runs=runs, executor=executor, session=session)
            answered = map(gate.Answered.of, evaluation.attempts)
            return subject.report(answered, num_runs=runs, stopped=evaluation.stopped)

        try:
            report = ask(subject.cases, num_runs)
            return (
                report
                if baseline is None
                else gate.confirm(baseline, report, lambda ids, _: ask(subject.of(ids), 1))
            )
        finally:
            # Wake up calls that still wait, and do not join threads that are stuck in a call.
            cancellation.set("the evaluation is over")
            executor.shutdown(wait=False, cancel_futures=True)
