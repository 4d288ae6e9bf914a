"""``promptgraft optimize``: run a prompt of a project, or a job."""

from __future__ import annotations

import sys

import attrs
import click

from promptgraft.cli.changes import Changes, limit_options
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.keeping import Keeping, conclude_run, config_of, keep, run_dry
from promptgraft.cli.options import (
    events_option,
    examples,
    project_option,
    quiet_option,
    read_tag,
    runs_option,
    workers_option,
)
from promptgraft.cli.progress import progress_for
from promptgraft.cli.run_choice import runs_of
from promptgraft.cli.runnable import loaded
from promptgraft.cli.running import MODEL
from promptgraft.clock import SystemClock
from promptgraft.runs.folder import make_run


@click.command(
    "optimize",
    epilog=examples(
        "promptgraft optimize",
        "promptgraft optimize triage --budget 500",
        "promptgraft optimize optimize.py:job --dry-run",
        "promptgraft optimize agent.jobs:JOB --workers 8 --json",
    ),
)
@click.argument("target", metavar="[PROMPT|JOB]", required=False)
@project_option
@runs_option
@click.option(
    "--dry-run",
    "dry",
    is_flag=True,
    help="Use the embedded offline model for everything, and keep nothing.",
)
@limit_options
@workers_option
@click.option(
    "--tag",
    metavar="TAG",
    callback=read_tag,
    help="The tag that the search begins from and that gets the winner; by default the project's "
    "or the job's.",
)
@click.option(
    "--pick",
    metavar="WEIGHTS",
    help="Let the candidate win that is best by these weights of objectives, such as "
    "`score=0.8,tokens=0.2`; by default the one with the highest score.",
)
@events_option
@quiet_option
def command(
    target: str | None,
    *,
    project: str | None,
    runs: str | None,
    dry: bool,
    limits: Changes,
    workers: int | None,
    tag: str | None,
    pick: str | None,
    as_json: bool,
    quiet: bool,
) -> ExitCode:
    """Improve a prompt of the project, or run a job.

    PROMPT is a name in `promptgraft.yaml`; with one prompt it may be left out. JOB is
    `file.py:NAME` or `module:NAME`: an OptimizationJob, or a function without arguments that
    returns one. The run is kept in a folder of its own. The winner of a project is not in
    force before `promptgraft apply`; that of a job goes where the job says. Ctrl+C stops the
    run with the best so far; a second one ends the command at once.
    """
    if dry:
        _refuse_without_effect(limits, runs)
    changes = attrs.evolve(limits, tag=tag, pick=pick)
    stream = sys.stdout if as_json else None
    with loaded(target, project) as found:
        title = f"promptgraft optimize {found.name}{f', dry run on the {MODEL}' if dry else ''}"
        keeping = Keeping(
            progress=progress_for(title, quiet=quiet, stream=stream),
            workers=found.workers if workers is None else workers,
            stream=stream,
        )
        job = changes.applied(found.job)
        kept_in = runs_of(found.runs, runs=runs, project=project)
        if dry:
            outcome = run_dry(job, keeping)
        else:
            config = config_of(found, job, changes)
            key, root = job.prompt.descriptor.key, kept_in.root.absolute()
            folder = make_run(root, key, config, now=SystemClock().now())
            outcome = keep(folder, job, keeping)
    return conclude_run(outcome, kept_in, stream=stream)


def _refuse_without_effect(limits: Changes, runs: str | None) -> None:
    """Refuse what a dry run, which costs nothing and is not kept, does not look at."""
    for name, value in (("max-cost", limits.max_cost), ("max-tokens", limits.max_tokens)):
        if value is not None:
            raise click.UsageError(
                f"--{name}: a dry run has no limit in money or tokens; leave it out"
            )
    if runs is not None:
        raise click.UsageError("--runs: a dry run is not kept; leave it out")
