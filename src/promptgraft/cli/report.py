"""``promptgraft report``: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from promptgraft.cli.exits import ExitCode
from promptgraft.cli.options import (
    examples,
    json_option,
    project_option,
    run_argument,
    runs_option,
)
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.room import make_room
from promptgraft.cli.run_choice import chosen_runs, relative


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
def command(
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
