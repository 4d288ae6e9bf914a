"""``promptgraft optimize``: run a job."""

from __future__ import annotations

import attrs
import click

from promptgraft.cli.exits import ExitCode, complain
from promptgraft.cli.interrupts import cancelled_by_signals
from promptgraft.cli.jobs import loaded_job
from promptgraft.cli.options import (
    at_least,
    examples,
    job_argument,
    journal_option,
    json_option,
    quiet_option,
    read_tag,
)
from promptgraft.cli.outcome import Outcome, outcome_json, print_outcome
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.progress import Progress, progress_for
from promptgraft.cli.running import MODEL, carry_out, complaint, exit_code_of_run
from promptgraft.errors import ConfigError, WinnerNotStoredError
from promptgraft.optimizers.gepa import GepaResult, OptimizationJob


@click.command(
    "optimize",
    epilog=examples(
        "promptgraft optimize optimize.py:job --dry-run",
        "promptgraft optimize optimize.py:job --workers 8 -q",
        "promptgraft optimize my_agent.jobs:JOB --json --quiet",
    ),
)
@job_argument
@click.option(
    "--dry-run",
    "dry",
    is_flag=True,
    help="Use the embedded offline model for everything, and store nothing.",
)
@journal_option
@click.option(
    "--workers",
    metavar="N",
    callback=at_least(1),
    help="Rollouts side by side; by default as the job says. The result does not depend on it.",
)
@click.option(
    "--tag",
    metavar="TAG",
    callback=read_tag,
    help="The tag that gets the winner; by default the job's.",
)
@click.option(
    "--pick",
    metavar="WEIGHTS",
    help="Let the candidate win that is best by these weights of objectives, such as "
    "`score=0.8,tokens=0.2`; by default the one with the highest score.",
)
@json_option
@quiet_option
def command(
    job: str,
    *,
    dry: bool,
    journal: str | None,
    workers: int | None,
    tag: str | None,
    pick: str | None,
    as_json: bool,
    quiet: bool,
) -> ExitCode:
    """Run a job: improve its prompt.

    The winner is kept where the job says. JOB is `file.py:NAME` or `module:NAME`: an
    OptimizationJob, or a function without arguments that returns one. Ctrl+C stops the run
    with the best so far; a second one ends the command at once.
    """
    if dry and journal is not None:
        raise click.UsageError("--dry-run stores nothing, so it takes no --journal; leave one out")
    with loaded_job(job) as found:
        chosen = found if tag is None else _with_tag(found, tag)
        if pick is not None:
            chosen = attrs.evolve(chosen, config=attrs.evolve(chosen.config, pick=pick))
        title = f"promptgraft optimize {job}{f', dry run on the {MODEL}' if dry else ''}"
        outcome = _run(
            chosen,
            dry=dry,
            journal=journal,
            workers=workers,
            progress=progress_for(title, quiet=quiet),
        )
    if as_json:
        print_json(outcome_json(outcome))
    else:
        print_outcome(Screen(), outcome)
    return _conclude(outcome, journal)


def _with_tag(job: OptimizationJob, tag: str) -> OptimizationJob:
    return attrs.evolve(job, context=attrs.evolve(job.context, overrides_tag=tag))


def _run(
    job: OptimizationJob,
    *,
    dry: bool,
    journal: str | None,
    workers: int | None,
    progress: Progress,
) -> Outcome:
    chosen = job.dry() if dry else job
    problem = ""
    with progress, cancelled_by_signals() as cancellation:
        try:
            result = carry_out(
                chosen,
                progress=progress,
                cancellation=cancellation,
                workers=workers,
                journal=journal,
            )
        except WinnerNotStoredError as error:
            if not isinstance(error.result, GepaResult):
                raise
            result, problem = error.result, str(error)
        except ConfigError as error:
            if not dry:
                raise
            raise ConfigError(f"--dry-run: {error}") from error
    return Outcome(job=chosen, dry=dry, result=result, problem=problem)


def _conclude(outcome: Outcome, journal: str | None) -> ExitCode:
    if outcome.problem:
        complain(outcome.problem)
        return ExitCode.WRONG_USE
    code = exit_code_of_run(outcome.result)
    if said := complaint(outcome.result):
        complain(f"{said}; the same command goes on from {journal}" if journal else said)
    return code
