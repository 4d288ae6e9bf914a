"""``promptgraft runs``: which runs there are."""

from __future__ import annotations

import click

from promptgraft.cli.exits import ExitCode, complain
from promptgraft.cli.options import examples, json_option, project_option, runs_option
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.run_choice import chosen_runs, relative
from promptgraft.cli.sentences import ESTIMATED
from promptgraft.runs import RunSummary, list_runs
from promptgraft.search.ledger import money
from promptgraft.serde import Json
from promptgraft.text import counted, difference, score


@click.command("runs", epilog=examples("promptgraft runs", "promptgraft runs --runs runs --json"))
@project_option
@runs_option
@json_option
def command(*, project: str | None, runs: str | None, as_json: bool) -> ExitCode:
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
