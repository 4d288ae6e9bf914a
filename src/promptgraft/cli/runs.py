"""``promptgraft runs``, ``watch`` and ``report``: which runs there are, and how one goes."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from promptgraft.cli.choosing import Runs, chosen_runs
from promptgraft.cli.exits import ExitCode, complain
from promptgraft.cli.options import (
    events_option,
    examples,
    json_option,
    project_option,
    quiet_option,
    run_argument,
    runs_option,
)
from promptgraft.cli.outcome import exit_code_for, print_next
from promptgraft.cli.output import Screen, echo, make_room, print_json, relative
from promptgraft.cli.progress import PlainProgress, Progress, progress_for
from promptgraft.cli.sentences import ESTIMATED
from promptgraft.clock import SystemClock
from promptgraft.runs import RunFolder, RunSummary, State, list_runs
from promptgraft.runs.finding import summarize
from promptgraft.runs.following import follow
from promptgraft.runs.lines import encoded_json
from promptgraft.search.ledger import money
from promptgraft.serde import Json
from promptgraft.text import change, counted, difference, score, visible_line


@click.command("runs", epilog=examples("promptgraft runs", "promptgraft runs --runs runs --json"))
@project_option
@runs_option
@json_option
def runs_command(*, project: str | None, runs: str | None, as_json: bool) -> ExitCode:
    """List the runs of the project, or of a folder, the newest first.

    A run is running, has ended, or was interrupted: `promptgraft resume` goes on with it.
    """
    chosen = chosen_runs(runs, project)
    found = list_runs(chosen.root)
    if as_json:
        print_json(
            {
                "runs_folder": str(chosen.root.absolute()),
                "runs": [summary_json(one) for one in found],
            }
        )
        return ExitCode.OK
    screen = Screen()
    if not found:
        screen.line(f"no runs in {relative(chosen.root)}; `promptgraft optimize` makes one")
        return ExitCode.OK
    screen.line(f"{counted(len(found), 'run')} in {relative(chosen.root)}", bold=True)
    screen.table([_HEAD, *(_row(one) for one in found)])
    if any(mark for one in found for mark in one.estimated):
        screen.line(ESTIMATED)
    for one in found:
        if one.fault:
            complain(one.fault)
    return ExitCode.OK


_HEAD = ("state", "base", "best", "gain", "rollouts", "dollars", "run")


def _row(run: RunSummary) -> tuple[str, ...]:
    of = "" if run.budget is None or run.stop_reason else f"/{run.budget}"
    return (
        f"{run.state}",
        score(run.baseline_mean, estimated=run.estimated[0]),
        score(run.best_mean, estimated=run.estimated[1]),
        difference(run.baseline_mean, run.best_mean, estimated=run.estimated),
        f"{run.rollouts}{of}",
        "unknown" if run.cost is None else f"{run.cost:.4f}",
        run.id,
    )


def summary_json(run: RunSummary) -> dict[str, Json]:
    """Return what machines are told of a run in a list."""
    unseen = run.held_out
    return {
        "id": run.id,
        "folder": str(run.folder.path.absolute()),
        "state": str(run.state),
        "created": run.created.isoformat(),
        "prompt": run.prompt,
        "steps": run.steps,
        "candidates": run.candidates,
        "rollouts": run.rollouts,
        "budget": run.budget,
        "baseline_mean": run.baseline_mean,
        "baseline_estimated": run.estimated[0],
        "best_mean": run.best_mean,
        "best_estimated": run.estimated[1],
        "held_out": None
        if unseen is None
        else {"baseline_mean": unseen[0], "winner_mean": unseen[1]},
        "improved": run.improved,
        "stop_reason": run.stop_reason or None,
        "cost": money(run.cost),
        "fault": run.fault or None,
    }


@click.command(
    "watch",
    epilog=examples(
        "promptgraft watch", "promptgraft watch 20260131-1204", "promptgraft watch --json"
    ),
)
@run_argument
@project_option
@runs_option
@events_option
@quiet_option
def watch_command(
    run: str, *, project: str | None, runs: str | None, as_json: bool, quiet: bool
) -> ExitCode:
    """Follow a run of another process until it ends, by reading its files.

    RUN is an id, the start of one, or `latest`. Nothing is written, and the run does not
    notice. Ctrl+C ends only this command. The exit code is that of the run, and 3 when it was
    interrupted.
    """
    if as_json and quiet:
        raise click.UsageError(
            "--quiet: with --json there is no progress beside the lines; leave it out"
        )
    chosen = chosen_runs(runs, project)
    folder = chosen.find(run)
    if as_json:
        _tell(folder)
    else:
        _show(folder, quiet=quiet)
    summary = summarize(folder)
    if as_json:
        echo(encoded_json({"event": "summary", **summary_json(summary)}))
    else:
        _print_end(Screen(), summary, chosen)
    if summary.improved is None:
        return ExitCode.STOPPED_EARLY
    return exit_code_for(summary.stop_reason, improved=summary.improved)


class _Lines(PlainProgress):
    """The lines of a run as the answer of the command."""

    def say(self, what: str) -> None:
        echo(visible_line(what))


def _tell(folder: RunFolder) -> None:
    for text, _ in follow(folder, wait=SystemClock().sleep):
        echo(text)


def _show(folder: RunFolder, *, quiet: bool) -> None:
    with _progress(f"run {folder.id}", quiet=quiet) as progress:
        for _, event in follow(folder, wait=SystemClock().sleep):
            progress.on_line(event)


def _progress(title: str, *, quiet: bool) -> Progress:
    piped = sys.stdout is None or not sys.stdout.isatty()
    return _Lines(title) if piped and not quiet else progress_for(title, quiet=quiet)


def _print_end(screen: Screen, summary: RunSummary, runs: Runs) -> None:
    told = change(summary.baseline_mean, summary.best_mean, estimated=summary.estimated)
    if summary.state is State.ENDED:
        verdict = "improved" if summary.improved else "not improved"
        screen.line(f"{summary.id} has ended: {verdict}, {told}; stopped by {summary.stop_reason}")
        next_ = runs.command("apply" if summary.improved else "show", summary.folder)
    else:
        screen.line(f"{summary.id} was {summary.state}: {told}")
        next_ = runs.command("resume", summary.folder)
    print_next(screen, next_)


@click.command(
    "report",
    epilog=examples(
        "promptgraft report",
        "promptgraft report 20260131-1204 --out night.html",
    ),
)
@run_argument
@click.option(
    "--out",
    metavar="FILE",
    help="Where to; its folder is made. By default `report.html` in the folder of the run.",
)
@project_option
@runs_option
@json_option
def report_command(
    run: str, *, out: str | None, project: str | None, runs: str | None, as_json: bool
) -> ExitCode:
    """Write a run as one HTML file that needs nothing else, and say where it is.

    A run that has ended has its report already. This writes it again, or that of a run which
    goes on. RUN is an id, the start of one, or `latest`.
    """
    from promptgraft.runs.report import write_report

    folder = chosen_runs(runs, project).find(run)
    target = None if out is None else Path(out)
    if target is not None:
        make_room(target)
    written = write_report(folder, target)
    if as_json:
        size = written.stat().st_size
        print_json({"run": folder.id, "report": str(written.absolute()), "bytes": size})
    else:
        Screen().line(str(relative(written)))
    return ExitCode.OK
