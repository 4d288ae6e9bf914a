"""Carrying out an evaluation: what is checked first, what is written, how it ends."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

import attrs

from promptgraft.adapters.base import CallWaiting
from promptgraft.cli.choosing import loaded_project
from promptgraft.cli.eval_report import Evaluated, print_evaluated
from promptgraft.cli.exits import ExitCode, complain
from promptgraft.cli.interrupts import cancelled_by_signals
from promptgraft.cli.output import Screen, echo, is_plain_terminal, make_room, print_json
from promptgraft.cli.sentences import waiting
from promptgraft.evals.evaluate import Evaluation
from promptgraft.evals.gate import (
    Answered,
    Baseline,
    GateDecision,
    GateOutcome,
    GateReport,
    GateRules,
    Subject,
    compare,
    decide,
    junit_xml,
    read_baseline,
    write_baseline,
)
from promptgraft.evals.gate.baseline import check_comparable
from promptgraft.files import write_atomically
from promptgraft.integrations.gate import Choice, subject_of
from promptgraft.runtime import Deadline, EventBus, Session
from promptgraft.text import visible_line

P = ParamSpec("P")
T = TypeVar("T")

Tell = Callable[[int, str], None]
"""Takes how many more answers are done, and what a call waits for."""


class CountingExecutor(ThreadPoolExecutor):
    """Threads that report each piece of work that is done.

    Args:
        workers: how many threads.
        tell: called for each.
    """

    def __init__(self, workers: int, tell: Tell) -> None:
        super().__init__(max_workers=workers)
        self._tell = tell

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(lambda _: self._tell(1, ""))
        return future


@contextlib.contextmanager
def shown_progress(total: int, *, quiet: bool) -> Iterator[Tell]:
    """Give what shows the progress of an evaluation of ``total`` answers."""
    if quiet or sys.stderr is None:
        yield lambda *_: None
    elif not sys.stderr.isatty() or is_plain_terminal():
        yield _say
    else:
        with _bar(total) as tell:
            yield tell


def _say(done: int, what: str) -> None:
    del done
    if what:
        with contextlib.suppress(OSError):
            echo(visible_line(what), error=True)


@contextlib.contextmanager
def _bar(total: int) -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("evaluating"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.description}", markup=False),
    )
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task("", total=total)

    def tell(done: int, what: str) -> None:
        progress.update(task, advance=done, description=visible_line(what))

    with progress:
        yield tell


@attrs.frozen(kw_only=True)
class Asked:
    """What the command line asks for.

    Attributes:
        choice: which text of which prompt, on which cases.
        rules: what the scores must be.
        baseline: the file with the scores to compare with.
        save_baseline: the file that keeps the scores if the gate is passed.
        junit: the file for JUnit XML.
        num_runs: how often each case is answered.
        workers: cases side by side; None as the project says.
    """

    choice: Choice
    rules: GateRules
    baseline: str | None
    save_baseline: str | None
    junit: str | None
    num_runs: int
    workers: int | None

    @property
    def anything(self) -> bool:
        """Whether anything is asked of the scores."""
        limits = (self.rules.fail_under, self.rules.min_pass_rate, self.baseline)
        return any(limit is not None for limit in limits)


def carry_out(asked: Asked, *, project: str | None, as_json: bool, quiet: bool) -> ExitCode:
    """Evaluate, decide, write what was asked for, and print.

    Raises:
        PromptgraftError: the project, the baseline or an option is at fault; or a provider
            refuses for good.
        OSError: a file cannot be written.
    """
    baseline = None if asked.baseline is None else read_baseline(asked.baseline)
    for file in (asked.junit, asked.save_baseline):
        if file is not None:
            # Before anything is paid for.
            make_room(Path(file))
    with loaded_project(project) as found:
        subject = subject_of(found, asked.choice)
        if baseline is not None:
            check_comparable(baseline, subject.report(()), where=f"baseline {asked.baseline}")
        report = _report(subject, asked, workers=asked.workers or found.workers, quiet=quiet)
    evaluated = _judged(subject, report, asked, baseline)
    if as_json:
        print_json(evaluated.to_json())
    else:
        print_evaluated(Screen(), evaluated)
    return _conclude(evaluated)


def _report(subject: Subject, asked: Asked, *, workers: int, quiet: bool) -> GateReport:
    found = _evaluation(subject, asked, workers=workers, quiet=quiet)
    answered = [Answered.of(attempt) for attempt in found.attempts]
    return subject.report(answered, num_runs=asked.num_runs, stopped=found.stopped)


def _evaluation(subject: Subject, asked: Asked, *, workers: int, quiet: bool) -> Evaluation:
    total = len(subject.cases) * asked.num_runs
    notices = EventBus()
    with shown_progress(total, quiet=quiet) as tell, cancelled_by_signals() as cancellation:
        notices.subscribe(
            CallWaiting,
            lambda notice: tell(0, waiting(notice.model, notice.seconds, notice.reason)),
        )
        session = Session(notices=notices, deadline=Deadline(cancellation=cancellation))
        executor = CountingExecutor(min(workers, total), tell)
        try:
            return subject.evaluate(num_runs=asked.num_runs, executor=executor, session=session)
        finally:
            # What was stopped leaves behind what does not end.
            executor.shutdown(wait=False, cancel_futures=True)


def _judged(
    subject: Subject, report: GateReport, asked: Asked, baseline: Baseline | None
) -> Evaluated:
    """Decide, and write what was asked for."""
    comparison = None if baseline is None else compare(baseline, report)
    decision = decide(report, asked.rules, comparison)
    if asked.junit is not None:
        write_atomically(Path(asked.junit), junit_xml(report, decision))
    return Evaluated(
        report=report,
        decision=decision,
        comparison=comparison,
        notes=subject.notes,
        asked=asked.anything,
        saved=_saved(report, decision, asked.save_baseline),
    )


def _saved(report: GateReport, decision: GateDecision, file: str | None) -> str | None:
    if file is None or not decision.passed:
        return None
    write_baseline(file, report)
    return file


def _conclude(found: Evaluated) -> ExitCode:
    match found.decision.outcome:
        case GateOutcome.STOPPED:
            complain(f"stopped early: {found.report.stopped}")
        case GateOutcome.UNSCORED:
            complain(f"no verdict: {found.decision.rulings[0].said}; run it again")
        case _:
            pass
    return found.code
