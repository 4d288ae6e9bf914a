"""What ``promptgraft eval`` evaluates, with its progress."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, Self, TypeVar

from promptgraft.adapters.base import CallWaiting
from promptgraft.cli.output import echo, is_plain_terminal
from promptgraft.cli.progress import waiting
from promptgraft.cli.running import cancelled_by_signals
from promptgraft.evals import gate
from promptgraft.evals.attempt import Attempt
from promptgraft.evals.types import Case
from promptgraft.runtime import Deadline, EventBus, Session
from promptgraft.text import visible_line

P = ParamSpec("P")
T = TypeVar("T")


class EvalProgress:
    """Shows how far an evaluation is; called from several threads. This one shows waits only."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def begun(self) -> None:
        """Take account of an answer that is asked for."""

    def ended(self, attempt: Attempt | None) -> None:
        """Take account of an answer that is there; None for one that never will be."""

    def waits(self, notice: CallWaiting) -> None:
        """Say what a call waits for."""
        if not self._quiet:
            with contextlib.suppress(OSError):
                said = waiting(notice.model, notice.seconds, notice.reason)
                echo(visible_line(said), error=True)


class _WatchedExecutor(ThreadPoolExecutor):
    """Threads that report each answer to the progress: when it is asked for, when it is there."""

    def __init__(self, workers: int, progress: EvalProgress) -> None:
        super().__init__(max_workers=workers)
        self._progress = progress

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        def work() -> T:
            self._progress.begun()
            made: object = None
            try:
                answer = fn(*args, **kwargs)
                made = answer
                return answer
            finally:
                self._progress.ended(made if isinstance(made, Attempt) else None)

        return super().submit(work)


def progress_of(title: str, total: int, *, quiet: bool) -> EvalProgress:
    """Return what shows the progress of an evaluation of ``total`` answers."""
    if quiet or sys.stderr is None or not sys.stderr.isatty() or is_plain_terminal():
        return EvalProgress(quiet=quiet or sys.stderr is None)
    from promptgraft.cli.panel import EvalPanel

    return EvalPanel(title, total)


def evaluated_report(
    subject: gate.Subject,
    num_runs: int,
    baseline: gate.Baseline | None,
    *,
    workers: int,
    quiet: bool,
) -> gate.GateReport:
    """Return the report on a prompt; critical cases that a baseline has better are asked again."""
    total = len(subject.cases) * num_runs
    notices = EventBus()
    progress = progress_of(f"promptgraft eval {subject.prompt.descriptor.key}", total, quiet=quiet)
    with progress, cancelled_by_signals() as cancellation:
        notices.subscribe(CallWaiting, progress.waits)
        session = Session(notices=notices, deadline=Deadline(cancellation=cancellation))
        executor = _WatchedExecutor(min(workers, total), progress)

        def ask(cases: Sequence[Case], runs: int) -> gate.GateReport:
            found = subject.evaluate(cases, num_runs=runs, executor=executor, session=session)
            answered = map(gate.Answered.of, found.attempts)
            return subject.report(answered, num_runs=runs, stopped=found.stopped)

        try:
            report = ask(subject.cases, num_runs)
            return (
                report
                if baseline is None
                else gate.confirm(baseline, report, lambda ids, _: ask(subject.of(ids), 1))
            )
        finally:
            # What was stopped leaves behind what does not end; calls that still wait are ended.
            cancellation.set("the evaluation is over")
            executor.shutdown(wait=False, cancel_futures=True)
