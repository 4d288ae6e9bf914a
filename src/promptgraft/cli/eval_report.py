"""What ``promptgraft eval`` says: figures, failing cases, the gate."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping

import attrs

from promptgraft.cli.exits import ExitCode
from promptgraft.cli.output import Screen
from promptgraft.evals.gate import (
    Comparison,
    GateDecision,
    GateOutcome,
    GateReport,
    TriedCase,
)
from promptgraft.serde import Json
from promptgraft.text import counted, score, visible_line

_ROWS_IN_PIPES = 20
_FEWEST_ROWS = 5
_OTHER_LINES = 16
_ID_COLUMNS = 24
_TOLD_EACH = 3
_REASON_IN_PIPES = 160
_FEWEST_REASON = 40

EXIT_CODES: Mapping[GateOutcome, ExitCode] = {
    GateOutcome.PASSED: ExitCode.OK,
    GateOutcome.FAILED: ExitCode.NOT_IMPROVED,
    GateOutcome.STOPPED: ExitCode.STOPPED_EARLY,
    GateOutcome.UNSCORED: ExitCode.PROVIDER_FAILED,
}


@attrs.frozen(kw_only=True)
class Evaluated:
    """How an evaluation ended.

    Attributes:
        report: every case.
        decision: of the gate.
        comparison: with the baseline, if there is one.
        notes: what users should know of what was tried.
        asked: whether anything was asked of the scores.
        saved: the file that the scores were kept in; None for none.
    """

    report: GateReport
    decision: GateDecision
    comparison: Comparison | None
    notes: tuple[str, ...]
    asked: bool
    saved: str | None = None

    @property
    def code(self) -> ExitCode:
        """The exit code."""
        return EXIT_CODES[self.decision.outcome]

    def to_json(self) -> dict[str, Json]:
        """Return all of it as one document."""
        return {
            "version": 1,
            **self.report.to_json(),
            "notes": list(self.notes),
            "gate": {**self.decision.to_json(), "asked": self.asked},
            "baseline": None if self.comparison is None else self.comparison.to_json(),
            "saved": self.saved,
            "exit_code": int(self.code),
        }


def print_evaluated(screen: Screen, found: Evaluated) -> None:
    """Print figures, failing cases and the gate, on one screen of a terminal."""
    report = found.report
    screen.line(
        f"{report.prompt}: {counted(len(report.cases), 'case')} of {report.split}", bold=True
    )
    screen.fields(_figures(found))
    for note in found.notes:
        screen.line(f"warning: {note}", color="yellow")
    failing = report.failing
    unscored = tuple(case for case in report.cases if case.unscored and case.passed is not False)
    if failing or unscored:
        screen.line()
        _print_cases(screen, (*failing, *unscored))
    screen.line()
    _print_gate(screen, found)


def _figures(found: Evaluated) -> list[tuple[str, str]]:
    report = found.report
    answers = sum(len(case.outcomes) for case in report.cases)
    passes = sum(case.passes for case in report.cases)
    several = f" in {report.num_runs} runs" if report.num_runs > 1 else ""
    missing = f", {report.unscored} unscored" if report.unscored else ""
    passing = f"{passes} of {counted(answers, 'answer')}{several} pass{missing}"
    rows = [
        ("tried", report.tried),
        ("model", report.model),
        ("mean score", score(report.mean_score)),
        ("pass rate", f"{score(report.pass_rate)}  {passing}"),
    ]
    if found.comparison is not None:
        rows.append(("baseline", f"{score(found.comparison.before)}  {found.comparison.line()}"))
    if report.stopped:
        rows.append(("stopped", report.stopped))
    return rows


def _print_cases(screen: Screen, cases: tuple[TriedCase, ...]) -> None:
    rows, columns = _room()
    groups = _grouped(cases)
    shown = groups[:rows]
    width = min(_ID_COLUMNS, max(len(visible_line(case.id)) for case, *_ in shown))
    screen.line(
        f"{counted(len(cases), 'case')} that {'does' if len(cases) == 1 else 'do'} not pass"
    )
    for case, *others in shown:
        name = _cropped(visible_line(case.id), width)
        mark = "critical " if case.critical else ""
        reason = visible_line(f"{mark}{_with(others)}{_why(case)}")
        screen.line(
            f"  {name:{width}}  {score(case.score):>5}  {_cropped(reason, columns - width - 11)}"
        )
    if more := sum(map(len, groups[rows:])):
        screen.line(f"  and {more} more; `--json` has all")


def _grouped(cases: tuple[TriedCase, ...]) -> list[tuple[TriedCase, ...]]:
    """Return the cases row by row: in one those that more than a few share a fault with."""
    alike: dict[tuple[bool, str], list[TriedCase]] = {}
    for case in cases:
        if all(outcome.error for outcome in case.outcomes):
            alike.setdefault((case.critical, _why(case)), []).append(case)
    together = {group[0].id: tuple(group) for group in alike.values() if len(group) > _TOLD_EACH}
    later = {case.id for group in together.values() for case in group[1:]}
    return [together.get(case.id, (case,)) for case in cases if case.id not in later]


def _with(others: list[TriedCase]) -> str:
    if not others:
        return ""
    named = ", ".join(f"`{_cropped(case.id, _ID_COLUMNS)}`" for case in others[:2])
    return f"and {len(others)} more ({named}, …): "


def _why(case: TriedCase) -> str:
    reason = " ".join(case.reason.split())
    if len(case.outcomes) == 1:
        return f"unscored: {reason}" if case.passed is None else reason
    missing = f", {case.unscored} unscored" if case.unscored else ""
    return f"{case.passes} of {len(case.outcomes)} pass{missing}: {reason}"


def _room() -> tuple[int, int]:
    """Return how many rows and columns there are for cases."""
    if sys.stdout is None or not sys.stdout.isatty():
        return _ROWS_IN_PIPES, _REASON_IN_PIPES
    size = shutil.get_terminal_size()
    return max(_FEWEST_ROWS, size.lines - _OTHER_LINES), max(_FEWEST_REASON, size.columns)


def _cropped(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _print_gate(screen: Screen, found: Evaluated) -> None:
    decision = found.decision
    if decision.passed:
        asked = "" if found.asked else " (nothing was asked of the scores; see `--fail-under`)"
        screen.line(f"gate: passed{asked}", color="green", bold=True)
    else:
        screen.line(f"gate: {decision.outcome}", color="red", bold=True)
    for ruling in decision.broken:
        screen.line(f"  {ruling.rule}: {ruling.said}")
    if found.saved is not None:
        screen.line(f"saved as baseline {found.saved}")
