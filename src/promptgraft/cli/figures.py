"""The figures of a run, for people and for machines."""

from __future__ import annotations

from collections.abc import Sequence

from promptgraft.cli.output import Screen
from promptgraft.cli.running import went_to_its_end
from promptgraft.cli.sentences import ESTIMATED
from promptgraft.overrides import PartDiff
from promptgraft.search.ledger import LedgerEntry
from promptgraft.search.result import RunResult
from promptgraft.text import counted, difference, dollars, duration, score

FIELD = 9
"""Columns that the names of fields take in summaries."""

Scores = tuple[float | None, float | None]
"""Means of the baseline and of the best; None when nothing was scored."""

Told = tuple[str, str, str]
"""Means of the baseline and of the best, and the gain, as tables show them."""


def told(scores: Scores, *, estimated: tuple[bool, bool] = (False, False)) -> Told:
    """Return two means and their difference; those that are estimated are marked."""
    before, after = (
        score(mean, estimated=mark) for mean, mark in zip(scores, estimated, strict=True)
    )
    return before, after, difference(*scores, estimated=estimated)


def pareto_scores(result: RunResult) -> Told:
    """Return the means on D_pareto."""
    return told(
        (result.baseline_pareto_mean, result.best_pareto_mean),
        estimated=(result.is_estimated(0), result.is_estimated(result.best_index)),
    )


def print_verdict(screen: Screen, prompt: str, result: RunResult) -> None:
    """Print in a few words what came of a run."""
    early = "" if went_to_its_end(result) else ", stopped early"
    verdict = f"{'improved' if result.improved else 'not improved'}{early}"
    screen.line(f"{prompt}: {verdict}", bold=True, color="green" if result.improved else None)


def print_changed(screen: Screen, parts: Sequence[PartDiff]) -> None:
    """Print the names of the parts that the winner changes; nothing when there is none."""
    if parts:
        screen.fields([("changed", ", ".join(part.part for part in parts))], width=FIELD)


def print_next(screen: Screen, command: str) -> None:
    """Print the one command that most people want now, as it can be copied."""
    screen.line()
    screen.line("Next:", bold=True)
    screen.body(command)


def print_scores(screen: Screen, rows: Sequence[tuple[str, Told, str]]) -> None:
    """Print means below each other: what on, baseline and best, of how many examples."""
    screen.table(
        [
            (f"{'':{FIELD}}", "baseline", "best", "gain", ""),
            *((name, *figures, what) for name, figures, what in rows),
        ]
    )
    if any(figure.startswith("~") for _, figures, _ in rows for figure in figures):
        screen.line(ESTIMATED)


def print_figures(
    screen: Screen, result: RunResult, budget: int, *, seconds: float | None = None
) -> None:
    """Print what a run used, why it stopped, and what became of its proposals.

    Args:
        screen: where to.
        result: what came of the run.
        budget: rollouts that it might have used.
        seconds: wall time; None leaves it out.
    """
    rejected = ", ".join(f"{n} {reason}" for reason, n in result.rejected_by_reason.items())
    used = f"{result.total_rollouts:,} of {budget:,} rollouts"
    time = "" if seconds is None else f" in {duration(seconds)}"
    merged = f", {counted(result.accepted_merges, 'merge')}" if result.accepted_merges else ""
    screen.fields(
        [
            ("used", f"{used}, {counted(result.total_reflections, 'reflection')}"),
            ("spent", f"{dollars(result.total_cost)}{time}"),
            ("stopped", f"{result.stop_reason}: {result.stop_detail}"),
            ("accepted", f"{counted(result.accepted_mutations, 'mutation')}{merged}"),
            ("rejected", rejected or "none"),
        ],
        width=FIELD,
    )


def print_ledger(screen: Screen, result: RunResult) -> None:
    """Print calls, tokens, money and time by role and model; columns of zeros are left out."""
    head = ("", "calls", "retries", "in", "cached", "out", "dollars", "seconds", "model")
    rows = [_ledger_row(entry) for entry in result.ledger]
    columns = [
        column
        for column in zip(head, *rows, strict=True)
        if column[0] == "calls" or any(cell.strip("0.") for cell in column[1:])
    ]
    screen.table(list(zip(*columns, strict=True)))


def _ledger_row(entry: LedgerEntry) -> tuple[str, ...]:
    usage = entry.usage
    return (
        entry.role,
        f"{entry.calls:,}",
        f"{entry.retries:,}",
        f"{usage.input_tokens:,}",
        f"{usage.cached_tokens:,}",
        f"{usage.output_tokens:,}",
        "unknown" if entry.unpriced_calls else f"{entry.cost:,.4f}",
        f"{entry.seconds:,.1f}",
        entry.model,
    )
