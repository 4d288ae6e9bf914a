"""``promptgraft runs``, ``watch``, ``report`` and ``compare``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import click

from promptgraft.cli import options
from promptgraft.cli.choosing import Runs, chosen_runs, runs_options
from promptgraft.cli.display import progress_for
from promptgraft.cli.exits import ExitCode, complain
from promptgraft.cli.output import Screen, echo, make_room, print_json, relative
from promptgraft.cli.progress import ESTIMATED, PlainProgress
from promptgraft.cli.summary import exit_code_for, means_row, print_next
from promptgraft.errors import ConfigError
from promptgraft.evals.gains import Gain
from promptgraft.ground.clock import SystemClock
from promptgraft.ground.serde import Json, unstructure
from promptgraft.ground.text import change, counted, listed, visible_line
from promptgraft.runs import RunRecord, RunSummary, State, list_runs, read_run
from promptgraft.runs.comparing import (
    Incomparable,
    figure_rows,
    figures_json,
    gain_between,
    incomparable,
)
from promptgraft.runs.documents import gain_json
from promptgraft.runs.event_file import encoded_json
from promptgraft.runs.folder import write_text
from promptgraft.runs.history import shown_mean
from promptgraft.runs.reading import follow, summarize
from promptgraft.search.ledger import money
from promptgraft.search.stopping import may_be_resumed, stop_sentence
from promptgraft.search.verdict import RunVerdict

html_option = click.option(
    "--html",
    "page",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a self-contained HTML page to this file instead of printing; creates its folder.",
)


@click.group(
    "runs",
    invoke_without_command=True,
    epilog=options.examples("runs", "runs --html history.html", "runs rm 20260131-1204 --yes"),
)
@html_option
@options.project_option
@options.runs_option
@options.json_option
@click.pass_context
def runs_command(
    context: click.Context,
    *,
    page: Path | None,
    project: str | None,
    runs: str | None,
    as_json: bool,
) -> None:
    """List the runs of the project, or of a folder, the newest first; or remove runs.

    The state of a run is running, ended, stopped, interrupted or damaged; `promptgraft resume`
    resumes a run that was stopped or interrupted.
    """
    if context.invoked_subcommand is None:
        _list(chosen_runs(runs, project), page, as_json=as_json)
    elif page is not None or project is not None or runs is not None or as_json:
        raise click.UsageError(f"put options of `{context.invoked_subcommand}` after its name")


@runs_command.command(
    "rm", epilog=options.examples("runs rm 20260131-1204", "runs rm latest --yes")
)
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Remove the runs; without it they are only listed.")
@runs_options
@options.json_option
def rm_command(*, names: tuple[str, ...], yes: bool, runs: Runs, as_json: bool) -> None:
    """Remove runs with everything in them.

    That includes answers that were paid for, candidates and reports. RUN is an id, the beginning
    of one, or `latest`. If one of the runs is in progress, none is removed. Applied winners stay
    in the store.
    """
    folders = list({folder.id: folder for folder in map(runs.find, names)}.values())
    # All are checked before the first is removed.
    if busy := [folder.id for folder in folders if folder.is_locked]:
        raise ConfigError(f"running: {listed(busy)}; stop them first; nothing was removed")
    if not yes:
        if not as_json:
            chosen = [summary for summary in list_runs(runs.root) if summary.folder in folders]
            _print_runs(Screen(), chosen)
        # Full ids: `latest` may mean another run by the time that the line is copied.
        words = [*(folder.id for folder in folders), "--yes", runs.options]
        again = " ".join(["promptgraft runs rm", *filter(None, words)])
        raise ConfigError(f"nothing was removed; `{again}` removes them")
    for folder in folders:
        folder.remove()
    if as_json:
        print_json({"runs_folder": str(runs.root.absolute()), "removed": [f.id for f in folders]})
    else:
        Screen().line(f"removed {listed(folder.id for folder in folders)}")


def _list(runs: Runs, page: Path | None, *, as_json: bool) -> None:
    summaries = list_runs(runs.root)
    if page is not None:
        from promptgraft.runs.report.page import history_page

        _write(page, history_page(str(relative(runs.root)), summaries), as_json=as_json)
    elif as_json:
        rows = [summary_json(summary) for summary in summaries]
        print_json({"runs_folder": str(runs.root.absolute()), "runs": rows})
    elif not summaries:
        Screen().line(f"no runs in {runs.root.absolute()}; `promptgraft optimize` makes one")
    else:
        _print_list(Screen(), runs, summaries)


def _write(page: Path, text: str, *, as_json: bool) -> None:
    """Write a page about several runs, and print where it is."""
    make_room(page)
    write_text(page, text)
    if as_json:
        print_json({"page": str(page.absolute()), "bytes": page.stat().st_size})
    else:
        Screen().line(str(relative(page)))


def _print_list(screen: Screen, runs: Runs, summaries: Sequence[RunSummary]) -> None:
    screen.line(f"{counted(len(summaries), 'run')} in {relative(runs.root)}", bold=True)
    _print_runs(screen, summaries)
    for summary in summaries:
        if summary.fault:
            complain(summary.fault)


def _print_runs(screen: Screen, summaries: Sequence[RunSummary]) -> None:
    gains = "base", "best", "gain", "unseen cases (95 %)"
    head = ("state", *gains, "verdict", "test calls", "dollars", "run")
    table = [head, *(_row(summary) for summary in summaries)]
    # Without the column for gains on unseen cases the table fits on a narrow terminal.
    if not any(summary.held_out for summary in summaries):
        table = [(*row[:4], *row[5:]) for row in table]
    screen.table(table, optional=("base", "best", "test calls"))
    if any(mark for summary in summaries for mark in summary.estimated):
        screen.line(ESTIMATED)


def _row(run: RunSummary) -> tuple[str, ...]:
    of = "" if run.budget is None or run.stop_reason else f"/{run.budget}"
    return (
        f"{run.state}",
        *means_row(run.baseline_mean, run.best_mean, estimated=run.estimated),
        run.held_out.short if run.held_out else "",
        run.verdict or "",
        f"{run.rollouts}{of}",
        "unknown" if run.cost is None else f"{run.cost:.4f}",
        run.id,
    )


def summary_json(run: RunSummary) -> dict[str, Json]:
    """Return what lists show of a run, as plain data."""
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
        "held_out": None if run.held_out is None else gain_json(run.held_out),
        "verdict": run.verdict and str(run.verdict),
        "stop_reason": run.stop_reason or None,
        "cost": money(run.cost),
        "fault": run.fault or None,
    }


@options.command("watch", "watch", "watch 20260131-1204", "watch --json")
@options.run_argument
@runs_options
@options.events_option
@options.quiet_option
def watch_command(run: str, *, runs: Runs, as_json: bool, quiet: bool) -> ExitCode:
    """Follow a run in another process until it ends, by reading its files.

    RUN is an id, the beginning of one, or `latest`. Nothing is written, and the run is not
    affected. Ctrl+C ends only this command. The exit code is that of the run, or 3 if the run
    was interrupted.
    """
    if as_json and quiet:
        raise click.UsageError(
            "--quiet: with --json there is no other progress to hide; leave it out"
        )
    folder = runs.find(run)
    lines = follow(folder, wait=SystemClock().sleep)
    if as_json:
        for text, _ in lines:
            echo(text)
        summary = summarize(folder)
        echo(encoded_json({"event": "summary", **summary_json(summary)}))
    else:
        title, piped = f"run {folder.id}", sys.stdout is None or not sys.stdout.isatty()
        # `promptgraft watch > file` is expected to write the lines to the file.
        is_answer = piped and not quiet
        with _RunLines(title) if is_answer else progress_for(title, quiet=quiet) as progress:
            for _, event in lines:
                progress.on_line(event)
        summary = summarize(folder)
        _print_end(Screen(), summary, runs)
    # The run has not come to its end, so that there is nothing to pass or fail.
    if summary.verdict is None:
        return ExitCode.STOPPED_EARLY
    improved = summary.verdict is RunVerdict.IMPROVED
    return exit_code_for(summary.stop_reason, improved=improved)


class _RunLines(PlainProgress):
    """Progress on standard output: in a pipe it is the answer of the command."""

    def say(self, what: str) -> None:
        echo(visible_line(what))


def _print_end(screen: Screen, summary: RunSummary, runs: Runs) -> None:
    means = change(summary.baseline_mean, summary.best_mean, estimated=summary.estimated)
    means = f"{means} in validation"
    if (gain := summary.held_out) is not None and gain.interval:
        means = f"{change(gain.mean_before, gain.mean_after)} on {counted(gain.cases, 'test case')}"
    ending = ""
    if summary.stop_reason:
        ending = f"; stopped: {stop_sentence(summary.stop_reason, summary.stop_detail)}"
    if summary.state is State.ENDED:
        screen.line(f"{summary.id} has ended: {summary.verdict}, {means}{ending}")
        next_ = runs.command(
            "apply" if summary.verdict is RunVerdict.IMPROVED else "show", summary.folder
        )
    else:
        screen.line(f"{summary.id} was {summary.state}: {means}{ending}")
        resumable = may_be_resumed(summary.stop_reason)
        next_ = runs.command("resume" if resumable else "show", summary.folder)
    print_next(screen, next_)


@options.command("report", "report", "report 20260131-1204 --out night.html")
@options.run_argument
@click.option(
    "--out",
    metavar="FILE",
    help="The file to write; creates its folder. By default `report.html` in the run's folder.",
)
@click.option("--open", "opened", is_flag=True, help="Open the report in the browser.")
@runs_options
@options.json_option
def report_command(run: str, *, out: str | None, opened: bool, runs: Runs, as_json: bool) -> None:
    """Write the HTML report of a run, one self-contained file, and print its path.

    A run writes its report when it ends. This command writes it again, or for a run that is in
    progress or was interrupted. RUN is an id, the beginning of one, or `latest`.
    """
    from promptgraft.runs.report.page import write_report

    folder = runs.find(run)
    target = None if out is None else Path(out)
    if target is not None:
        make_room(target)
    written = write_report(folder, target)
    if as_json:
        size = written.stat().st_size
        print_json({"run": folder.id, "report": str(written.absolute()), "bytes": size})
    else:
        Screen().line(str(relative(written)))
    if opened:
        _open(written)


def _open(page: Path) -> None:
    import webbrowser  # loads much of the standard library, for one option

    if not webbrowser.open(page.absolute().as_uri()):
        raise ConfigError(
            f"--open: no browser can be started; open {relative(page)} yourself, or name a "
            "browser in BROWSER"
        )


@options.command("compare", "compare 20260131-1204 latest", "compare 20260131 --html both.html")
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="[RUN]", default="latest")
@html_option
@runs_options
@options.json_option
def compare_command(
    first: str, second: str, *, page: Path | None, runs: Runs, as_json: bool
) -> None:
    """Compare two runs side by side: quality, cost, why they ended, and the path to the best.

    A RUN is an id, the beginning of one, or `latest`; the second is `latest` by default. If data
    or metrics differ, the output says that the scores cannot be compared.
    """
    first_run, second_run = (read_run(runs.find(name)) for name in (first, second))
    if page is not None:
        from promptgraft.runs.report.page import comparison_page

        _write(page, comparison_page(first_run, second_run), as_json=as_json)
        return
    differing = incomparable(first_run, second_run)
    between = gain_between(first_run, second_run, differing)
    if as_json:
        plain: list[Json] = [figures_json(first_run), figures_json(second_run)]
        reasons = unstructure(attrs.asdict(differing))
        gained = None if between is None else gain_json(between)
        print_json({"runs": plain, "incomparable": reasons, "between": gained})
    else:
        _print(Screen(), {"A": first_run, "B": second_run}, differing, between=between)


def _print(
    screen: Screen, sides: Mapping[str, RunRecord], differing: Incomparable, *, between: Gain | None
) -> None:
    screen.fields(
        [(name, f"{record.id}, {record.prompt}, {record.state}") for name, record in sides.items()]
    )
    for reason in differing.reasons:
        screen.line(reason, color="yellow")
    screen.line()
    screen.table([("", *sides, "B - A"), *figure_rows(sides["A"], sides["B"], differing)])
    if between is not None:
        screen.line()
        screen.line(f"B's winner against A's, on unseen cases: {between.line()}; {between.meaning}")
    for name, side in sides.items():
        screen.line()
        screen.fields([(f"{name} stopped", side.stopped or "has not ended")])
        screen.line(f"{name}, from your prompt to the best candidate:", bold=True)
        for point in side.line:
            text = (
                f"candidate {point.candidate}, {point.changed}"
                if point.candidate
                else "your prompt"
            )
            screen.line(f"  {shown_mean(point):>6}  {text}")
    if any(point.estimated for side in sides.values() for point in side.line):
        screen.line()
        screen.line(ESTIMATED)
