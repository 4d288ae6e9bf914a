"""``promptgraft eval``: evaluate a prompt on its cases as a gate for CI."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import ParamSpec, TypedDict, TypeVar, Unpack

import attrs
import click

from promptgraft.adapters.abilities import is_in_batches
from promptgraft.adapters.base import CallWaiting
from promptgraft.adapters.calling.gathering import AT_ONCE, BatchExecutor
from promptgraft.cli import options
from promptgraft.cli.choosing import tried_options
from promptgraft.cli.exits import ExitCode, cancelled_by_signals, complain
from promptgraft.cli.output import Screen, is_plain_terminal, make_room, print_json, wrapped
from promptgraft.cli.progress import EvalProgress
from promptgraft.evals import gate
from promptgraft.evals.aggregate import CaseStatus
from promptgraft.evals.attempt import CaseAttempt
from promptgraft.evals.gate.baseline import check_comparable
from promptgraft.evals.gate.report import in_a_row
from promptgraft.evals.metrics.base import judges_of
from promptgraft.evals.types import Case
from promptgraft.ground.files import write_atomically
from promptgraft.ground.serde import Json, digest
from promptgraft.ground.text import (
    cases_of_split,
    clip_line,
    counted,
    model_in_words,
    score,
    visible_line,
)
from promptgraft.journal import FileJournal
from promptgraft.journal.base import Journal
from promptgraft.project.gate import Choice, subject_of
from promptgraft.project.origins import loaded_project
from promptgraft.project.settings import num_runs_of
from promptgraft.runtime import Deadline, EventBus, Session
from promptgraft.runtime.deadline import sooner

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
    timeout: float | None,
    quiet: bool,
    folder: Path,
) -> gate.GateReport:
    """Evaluate a prompt; critical cases that score below the baseline are answered again.

    ``folder`` keeps the ids of pending batches, so that an interrupted evaluation can collect
    answers that were already paid for.
    """
    total = len(subject.cases) * num_runs
    batches_kept = _kept_batches(subject, folder)
    evaluated = functools.partial(
        _report, subject, num_runs, baseline, timeout=timeout, quiet=quiet
    )
    if batches_kept is None:
        return evaluated(workers=min(workers, total))
    batches_kept.parent.mkdir(parents=True, exist_ok=True)
    with FileJournal(batches_kept) as journal:
        journal.begin({"batches": str(subject.prompt.descriptor.key)})
        report = evaluated(workers=min(AT_ONCE, total), journal=journal)
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
    timeout: float | None,
    quiet: bool,
    journal: Journal | None = None,
) -> gate.GateReport:
    total = len(subject.cases) * num_runs
    notices = EventBus()
    progress = progress_of(f"promptgraft eval {subject.prompt.descriptor.key}", total, quiet=quiet)
    with progress, cancelled_by_signals() as cancellation:
        notices.subscribe(CallWaiting, progress.waits)
        deadline = Deadline(cancellation=cancellation)
        if timeout is not None:
            deadline = sooner(deadline, timeout)
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


_LINES_IN_PIPES = 20
_FEWEST_LINES = 5
_OTHER_LINES = 16  # of the output besides cases, so that all of it fits on one screen
_ID_COLUMNS = 24
_SHOWN_EACH = 3  # more cases than this with the same error share a row
_COLUMNS = 160
_LONGEST_WHY = 250

_EXIT_CODES: Mapping[gate.GateOutcome, ExitCode] = {
    gate.GateOutcome.PASSED: ExitCode.OK,
    gate.GateOutcome.FAILED: ExitCode.NOT_IMPROVED,
    gate.GateOutcome.STOPPED: ExitCode.STOPPED_EARLY,
    gate.GateOutcome.UNSCORED: ExitCode.PROVIDER_FAILED,
}


class _Given(TypedDict):
    """The options that decide the gate and its outputs."""

    fail_under: float | None
    min_pass_rate: float | None
    baseline: str | None
    tolerance: float | None
    refuse_unclear: bool
    max_unscored: int
    save_baseline: str | None
    junit: str | None
    num_runs: int | None
    workers: int | None
    timeout: float | None


@options.command(
    "eval",
    "eval --fail-under 0.8",
    "eval --baseline old.json --junit gate.xml",
    "eval --source --save-baseline old.json",
    "eval --run latest --num-runs 3",
)
@tried_options
@click.option(
    "--split",
    type=click.Choice(("test", "validation", "train", "all")),
    default="test",
    show_default=True,
    help="The cases to evaluate.",
)
@click.option(
    "--fail-under", metavar="SCORE", type=options.share, help="The minimum mean score, 0 to 1."
)
@click.option(
    "--min-pass-rate",
    metavar="R",
    type=options.share,
    help="The minimum share of answers that pass, 0 to 1.",
)
@click.option(
    "--baseline",
    metavar="FILE",
    help="Saved scores to compare with: fails if the mean or a critical case is worse.",
)
@click.option(
    "--tolerance",
    metavar="T",
    type=options.share,
    help="How far the mean may fall below that of the baseline, 0 to 1.",
)
@click.option(
    "--refuse-unclear",
    is_flag=True,
    help="Also fail if it is unclear whether the mean is worse than that of the baseline.",
)
@click.option(
    "--max-unscored",
    type=options.at_least(0),
    default="0",
    help="How many answers may have no score; those of critical cases always need one.",
)
@click.option(
    "--save-baseline", metavar="FILE", help="Save the scores to this file if the gate passes."
)
@click.option("--junit", metavar="FILE", help="Write the results as JUnit XML to this file.")
@click.option(
    "--num-runs",
    type=options.at_least(1),
    help="Answers per case; by default `objectives.num_runs` of the project, or 1.",
)
@options.workers_option
@click.option(
    "--timeout",
    type=options.seconds,
    help="Seconds that this command may run; answers that are missing then have no score.",
)
@options.quiet_option
def eval_command(
    *,
    choice: Choice,
    split: str,
    project: str | None,
    as_json: bool,
    quiet: bool,
    **given: Unpack[_Given],
) -> ExitCode:
    """Evaluate a prompt on its cases as a gate for CI.

    PROMPT is its name in the project. By default the overrides of the project's tag are
    evaluated, with the metrics, model and data of `promptgraft optimize`. Exits with 1 if a
    required score is not reached, and with 4 if answers have no score.
    """
    if given["baseline"] is None:
        for name, is_given in (
            ("--tolerance", given["tolerance"] is not None),
            ("--refuse-unclear", given["refuse_unclear"]),
        ):
            if is_given:
                raise click.UsageError(f"{name} needs a baseline to compare with; give --baseline")
    baseline = None if given["baseline"] is None else gate.read_baseline(given["baseline"])
    outputs = [Path(file) for file in (given["junit"], given["save_baseline"]) if file is not None]
    if len(outputs) > len({path.resolve() for path in outputs}):
        raise click.UsageError("--junit and --save-baseline: name two files")
    for path in outputs:
        # An unusable path is reported before anything is paid for.
        make_room(path)
    with loaded_project(project) as opened:
        subject = subject_of(opened, attrs.evolve(choice, split=split))
        if baseline is not None:
            # Before the evaluation: answers that cannot be compared would be paid for in vain.
            check_comparable(baseline, subject.report(()), where=f"baseline {given['baseline']}")
        workers = given["workers"] or opened.workers
        report = evaluated_report(
            subject,
            given["num_runs"] or num_runs_of(opened.config.optimizer),
            baseline,
            workers=workers,
            timeout=given["timeout"],
            quiet=quiet,
            folder=opened.runs_folder,
        )
    evaluated = _judged(report, given, baseline, (*subject.notes, *report.constants))
    decision = evaluated.decision
    code, write_error = _EXIT_CODES[decision.outcome], None
    try:
        _write_files(evaluated, given["junit"])
    except OSError as error:
        # Answers that were paid for are shown all the same.
        evaluated = attrs.evolve(evaluated, saved=None)
        code, write_error = ExitCode.WRONG_USE, error
    if as_json:
        print_json(evaluated.to_json(code))
    else:
        _print_evaluated(Screen(), evaluated)
    if write_error is not None:
        raise write_error
    if decision.outcome is gate.GateOutcome.STOPPED:
        complain(f"stopped early: {report.stopped}")
    elif decision.outcome is gate.GateOutcome.UNSCORED:
        complain(f"no verdict: {decision.rulings[0].said}; {_mend_of_unscored(report)}")
    return code


def _mend_of_unscored(report: gate.GateReport) -> str:
    """Return why the first unscored answer has no score, and what to do about it."""
    case, outcome = next(
        (case, outcome)
        for case in report.cases
        for outcome in case.outcomes
        if outcome.status is CaseStatus.UNSCORED
    )
    why = clip_line(outcome.error, _LONGEST_WHY)
    first = f"the first, case `{case.id}`: {why}"
    if report.mean_score is not None:
        allowed = "" if report.critical_unscored else ", or allow them with `--max-unscored`"
        return f"{first}; run it again{allowed}"
    # With verdicts there is an answer, so that a metric failed.
    mend = "mend the metric, or what it asks," if outcome.verdicts else "mend that"
    return f"{first}; no answer has a score: {mend} before you run it again"


def _judged(
    report: gate.GateReport, given: _Given, baseline: gate.Baseline | None, notes: tuple[str, ...]
) -> Evaluated:
    """Apply the gate to a report."""
    rules = gate.GateRules(
        fail_under=given["fail_under"],
        min_pass_rate=given["min_pass_rate"],
        refuse_unclear=given["refuse_unclear"],
        max_unscored=given["max_unscored"],
    )
    tolerance = given["tolerance"] or 0.0
    comparison = None if baseline is None else gate.compare(baseline, report, tolerance=tolerance)
    decision = gate.decide(report, rules, comparison)
    limits = (given["fail_under"], given["min_pass_rate"], given["baseline"])
    return Evaluated(
        report=report,
        decision=decision,
        comparison=comparison,
        notes=notes,
        asked=any(limit is not None for limit in limits),
        # A baseline of a failed gate would lower the bar for every later one.
        saved=given["save_baseline"] if decision.passed else None,
    )


def _write_files(evaluated: Evaluated, junit: str | None) -> None:
    """Write the JUnit file, which is read when the gate fails, and the baseline."""
    if junit is not None:
        write_atomically(Path(junit), gate.junit_xml(evaluated.report, evaluated.decision))
    if evaluated.saved is not None:
        gate.write_baseline(evaluated.saved, evaluated.report)


@attrs.frozen(kw_only=True)
class Evaluated:
    """An evaluation with the decision of the gate.

    Attributes:
        report: the scores.
        decision: whether the gate is passed, with its rulings.
        comparison: the comparison with the baseline; None without one.
        notes: warnings about the prompt that was evaluated.
        asked: whether any score was required.
        saved: the baseline file that was written; None for none.
    """

    report: gate.GateReport
    decision: gate.GateDecision
    comparison: gate.Comparison | None
    notes: tuple[str, ...]
    asked: bool
    saved: str | None = None

    def to_json(self, code: ExitCode) -> dict[str, Json]:
        """Return the document that ``--json`` prints; ``code`` is that of the command."""
        return {
            "version": 1,
            **self.report.to_json(),
            "notes": list(self.notes),
            "gate": {**self.decision.to_json(), "asked": self.asked},
            "baseline": None if self.comparison is None else self.comparison.to_json(),
            "saved": self.saved,
            "exit_code": int(code),
        }


def _print_evaluated(screen: Screen, evaluated: Evaluated) -> None:
    """Print figures, failing cases and the gate; they fit on one screen."""
    report = evaluated.report
    screen.line(f"{report.prompt}: {cases_of_split(len(report.cases), report.split)}", bold=True)
    screen.fields(_figures(evaluated))
    for note in evaluated.notes:
        screen.line(f"warning: {note}", color="yellow")
    failing = report.failing
    unscored = tuple(case for case in report.cases if case.unscored and case.passed is not False)
    if failing or unscored:
        screen.line()
        _print_cases(screen, (*failing, *unscored))
    screen.line()
    _print_gate(screen, evaluated)


def _figures(evaluated: Evaluated) -> list[tuple[str, str]]:
    report = evaluated.report
    answers = sum(len(case.outcomes) for case in report.cases)
    passes = sum(case.passes for case in report.cases)
    several = f" in {report.num_runs} runs" if report.num_runs > 1 else ""
    missing = f", {report.unscored} unscored" if report.unscored else ""
    passing = f"{passes} of {counted(answers, 'answer')}{several} pass{missing}"
    rows = [
        ("tried", report.tried),
        ("model", model_in_words(report.model)),
        ("mean score", score(report.mean_score)),
        ("pass rate", f"{score(report.pass_rate)}  {passing}"),
    ]
    if evaluated.comparison is not None:
        gain = evaluated.comparison.gain
        rows.append(("baseline", f"{score(gain.mean_before)}  {gain.line()}"))
    if report.repaired:
        rows.append(("repaired", report.repaired.replace(" repaired:", ":", 1)))
    if report.stopped:
        rows.append(("stopped", report.stopped))
    return rows


def _print_cases(screen: Screen, cases: tuple[gate.CaseResult, ...]) -> None:
    groups = _grouped(cases)
    width = min(_ID_COLUMNS, max(len(visible_line(case.id)) for case, *_ in groups))
    screen.line(
        f"{counted(len(cases), 'case')} that {'does' if len(cases) == 1 else 'do'} not pass"
    )
    room, left = _lines_for_cases(), len(cases)
    for case, *repeats in groups:
        name = _cropped(visible_line(case.id), width)
        mark = "critical " if case.critical else ""
        reason = _cropped(visible_line(_reason(case)), _COLUMNS - width - 11)
        line_text = f"{mark}{visible_line(_also(repeats))}{reason}"
        first, *more = wrapped(line_text, sys.stdout, width + 11)
        room -= 1 + len(more)
        if room < 0:
            screen.line(f"  and {left} more; `--json` has all")
            break
        screen.line(f"  {name:{width}}  {score(case.score):>5}  {first}")
        for line in more:
            screen.line(f"{'':{width + 11}}{line}")
        left -= 1 + len(repeats)


def _grouped(cases: tuple[gate.CaseResult, ...]) -> list[tuple[gate.CaseResult, ...]]:
    """Group cases into rows; many cases that failed with the same error share one row."""
    alike: dict[tuple[bool, str], list[gate.CaseResult]] = {}
    for case in cases:
        if all(outcome.error for outcome in case.outcomes):
            alike.setdefault((case.critical, _reason(case)), []).append(case)
    together = {group[0].id: tuple(group) for group in alike.values() if len(group) > _SHOWN_EACH}
    later = {case.id for group in together.values() for case in group[1:]}
    return [together.get(case.id, (case,)) for case in cases if case.id not in later]


def _also(others: list[gate.CaseResult]) -> str:
    if not others:
        return ""
    named = ", ".join(f"`{_cropped(case.id, _ID_COLUMNS)}`" for case in others[:2])
    return f"and {len(others)} more ({named}, …): "


def _reason(case: gate.CaseResult) -> str:
    reason = in_a_row(case.reason)
    if len(case.outcomes) == 1:
        return f"unscored: {reason}" if case.passed is None else reason
    missing = f", {case.unscored} unscored" if case.unscored else ""
    return f"{case.passes} of {len(case.outcomes)} pass{missing}: {reason}"


def _lines_for_cases() -> int:
    """Return how many lines are available for cases."""
    if sys.stdout is None or not sys.stdout.isatty():
        return _LINES_IN_PIPES
    return max(_FEWEST_LINES, shutil.get_terminal_size().lines - _OTHER_LINES)


def _cropped(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _print_gate(screen: Screen, evaluated: Evaluated) -> None:
    decision = evaluated.decision
    if decision.passed:
        note = "" if evaluated.asked else " (no threshold set, see `--fail-under`)"
        screen.line(f"gate: passed{note}", color="green", bold=True)
    else:
        screen.line(f"gate: {decision.outcome}", color="red", bold=True)
    for ruling in decision.rulings:
        is_open = evaluated.comparison is not None and ruling.said == evaluated.comparison.said
        if is_open or not ruling.held:
            screen.line(f"  {ruling.rule}: {ruling.said}")
    if evaluated.saved is not None:
        screen.line(f"saved as baseline {evaluated.saved}")
