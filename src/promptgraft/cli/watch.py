"""``promptgraft watch``: follow a run of another process."""

from __future__ import annotations

import sys

import click

from promptgraft.cli.exits import ExitCode
from promptgraft.cli.figures import print_next
from promptgraft.cli.options import (
    events_option,
    examples,
    project_option,
    quiet_option,
    run_argument,
    runs_option,
)
from promptgraft.cli.output import Screen
from promptgraft.cli.progress import PlainProgress, Progress, progress_for
from promptgraft.cli.run_choice import Runs, chosen_runs
from promptgraft.cli.running import exit_code_for
from promptgraft.cli.runs import summary_json
from promptgraft.cli.text import echo
from promptgraft.clock import SystemClock
from promptgraft.runs import RunFolder, RunSummary, State
from promptgraft.runs.finding import summarize
from promptgraft.runs.following import follow
from promptgraft.runs.lines import encoded_json
from promptgraft.text import change, visible_line


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
def command(
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
        _print(Screen(), summary, chosen)
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


def _print(screen: Screen, summary: RunSummary, runs: Runs) -> None:
    told = change(summary.baseline_mean, summary.best_mean, estimated=summary.estimated)
    if summary.state is State.ENDED:
        verdict = "improved" if summary.improved else "not improved"
        screen.line(f"{summary.id} has ended: {verdict}, {told}; stopped by {summary.stop_reason}")
        next_ = runs.command("apply" if summary.improved else "show", summary.folder)
    else:
        screen.line(f"{summary.id} was {summary.state}: {told}")
        next_ = runs.command("resume", summary.folder)
    print_next(screen, next_)
