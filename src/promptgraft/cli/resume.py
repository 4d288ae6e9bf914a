"""``promptgraft resume``: go on with a run."""

from __future__ import annotations

import sys

import click

from promptgraft.cli.changes import Changes, limit_options, read_changes
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.keeping import Keeping, conclude_run, config_of, keep
from promptgraft.cli.options import (
    events_option,
    examples,
    project_option,
    quiet_option,
    run_argument,
    runs_option,
    workers_option,
)
from promptgraft.cli.progress import progress_for
from promptgraft.cli.run_choice import chosen_runs
from promptgraft.cli.runnable import loaded_again
from promptgraft.runs import RunFolder
from promptgraft.runs.files import read_document


@click.command(
    "resume",
    epilog=examples(
        "promptgraft resume",
        "promptgraft resume 20260131-1204 --budget 1000",
        "promptgraft resume latest --max-cost 5 --json",
    ),
)
@run_argument
@project_option
@runs_option
@limit_options
@workers_option
@events_option
@quiet_option
def command(
    run: str,
    *,
    project: str | None,
    runs: str | None,
    limits: Changes,
    workers: int | None,
    as_json: bool,
    quiet: bool,
) -> ExitCode:
    """Go on with a run that was interrupted, or that has ended.

    RUN is an id, the start of one, or `latest`. What the run was answered is not asked, and
    not paid, again. Limits may be others than before: a larger `--budget` goes on with a run
    that used up its own. What decides the path of the run, such as its cases, must be as it was.
    """
    stream = sys.stdout if as_json else None
    kept_in = chosen_runs(runs, project, runs_again=True)
    found = kept_in.find(run)
    folder = RunFolder(found.path.absolute())
    config = read_document(folder.config)
    changes = limits.over(read_changes(config.get("options"), f"{folder.config}: options"))
    with loaded_again(folder, config, project) as source:
        keeping = Keeping(
            progress=progress_for(f"promptgraft resume {folder.id}", quiet=quiet, stream=stream),
            workers=source.workers if workers is None else workers,
            stream=stream,
        )
        job = changes.applied(source.job)
        kept = {name: config[name] for name in ("id", "created", "origin")}
        fresh = {**kept, **config_of(source, job, changes), **kept}
        outcome = keep(folder, job, keeping, config=fresh)
    return conclude_run(outcome, kept_in, stream=stream)
