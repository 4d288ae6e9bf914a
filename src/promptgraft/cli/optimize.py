"""``promptgraft optimize`` and ``resume``: run a prompt of a project, or a job."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import TextIO, TypedDict, Unpack

import attrs
import click

from promptgraft.cli import options
from promptgraft.cli.baml import baml_options
from promptgraft.cli.choosing import Runs, chosen_runs, runs_of
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.outcome import MODEL
from promptgraft.cli.progress import Progress, progress_for
from promptgraft.cli.running import Keeping, conclude_run
from promptgraft.project.outcome import Outcome
from promptgraft.project.running import Changes, Runnable, loaded, loaded_again, run_dry
from promptgraft.project.services import ExecutorConfig, cluster
from promptgraft.runs import RunFolder


class Limits(TypedDict):
    """The limits of a run that the command line gives."""

    budget: int | None
    max_cost: Decimal | None
    max_tokens: int | None
    timeout: float | None


limit_options = options.together(
    click.option(
        "--budget", type=options.at_least(1), help="Rollouts that the run may use in all."
    ),
    click.option(
        "--max-cost",
        type=options.dollars,
        help="US dollars that the run may use in all; for models whose price is known.",
    ),
    click.option(
        "--max-tokens",
        type=options.at_least(1),
        help="Tokens that the run may use in all, sent and received.",
    ),
    click.option(
        "--timeout",
        type=options.seconds,
        help="How long this command may run; `promptgraft resume` resumes the run.",
    ),
)


dask_option = click.option(
    "--dask",
    metavar="ADDRESS",
    help="Make rollouts on the workers of a dask cluster, such as tcp://10.0.0.5:8786.",
)


@options.command(
    "optimize",
    "optimize",
    "optimize triage --budget 500",
    "optimize optimize.py:job --dry-run",
    "optimize agent.jobs:JOB --workers 8 --json",
    "optimize --baml baml_src --function Extract",
)
@click.argument("target", metavar="[PROMPT|JOB]", required=False)
@options.project_option
@options.runs_option
@click.option(
    "--dry-run",
    "dry",
    is_flag=True,
    help="Use the embedded offline model for everything, and keep nothing.",
)
@limit_options
@options.workers_option
@dask_option
@click.option(
    "--tag",
    type=options.tag,
    help="The tag that the search begins from and that gets the winner; by default the project's "
    "or the job's.",
)
@click.option(
    "--pick",
    metavar="WEIGHTS",
    help="Let the candidate win that is best by these weights of objectives, such as "
    "`score=0.8,tokens=0.2`; by default the one with the highest score.",
)
@click.option(
    "--seed",
    type=options.at_least(0),
    help="Decides every random choice of the search; by default the project's or the job's.",
)
@options.events_option
@options.quiet_option
@baml_options
def optimize_command(
    target: str | None,
    *,
    project: str | None,
    runs: str | None,
    dry: bool,
    workers: int | None,
    dask: str | None,
    tag: str | None,
    pick: str | None,
    seed: int | None,
    as_json: bool,
    quiet: bool,
    **limits: Unpack[Limits],
) -> ExitCode:
    """Improve a prompt of the project, or run a job.

    PROMPT is a name in `promptgraft.yaml`; with one prompt it may be left out. JOB is
    `file.py:NAME` or `module:NAME`: an OptimizationJob, or a function without arguments that
    returns one. The run is kept in a folder of its own. The winner of a project is not in
    force before `promptgraft apply`; that of a job goes where the job says. Ctrl+C stops the
    run with the best so far; a second one ends the command at once.
    """
    if dry:
        _refuse_without_effect(limits, runs, dask)
    changes = Changes(tag=tag, pick=pick, seed=seed, **limits)
    stream = sys.stdout if as_json else None
    with loaded(target, project) as found:
        title = f"promptgraft optimize {found.name}{f', dry run on the {MODEL}' if dry else ''}"
        progress = progress_for(title, quiet=quiet, stream=stream)
        source = found.changed(changes)
        kept_in = runs_of(found.runs, runs=runs, project=project)
        threads = workers or (found.workers if dry else None)
        with _keeping(source, progress, stream, workers=threads, dask=dask) as keeping:
            if dry:
                outcome = run_dry(source.job, keeping.run)
            else:
                outcome = keeping.kept(source.make_folder(kept_in.root), source.job)
    return _concluded(outcome, kept_in, stream=stream, to_source=found.to_source)


@contextlib.contextmanager
def _keeping(
    source: Runnable,
    progress: Progress,
    stream: TextIO | None,
    *,
    workers: int | None,
    dask: str | None,
) -> Iterator[Keeping]:
    """Give how the run is carried out, on a cluster if one is named and ``workers`` are not."""
    named = source.executor if workers is None else None
    if dask is not None:
        named = ExecutorConfig(dask=dask)
    with cluster(named, code=source.code, say=progress.say) as executor:
        yield Keeping(
            progress=progress,
            workers=workers or source.workers,
            executor=executor,
            stream=stream,
            trackers=source.trackers,
        )


def _refuse_without_effect(limits: Limits, runs: str | None, dask: str | None) -> None:
    """Refuse what a dry run, which costs nothing and is not kept, does not look at."""
    for name, value in (("max-cost", limits["max_cost"]), ("max-tokens", limits["max_tokens"])):
        if value is not None:
            raise click.UsageError(
                f"--{name}: a dry run has no limit in money or tokens; leave it out"
            )
    if runs is not None:
        raise click.UsageError("--runs: a dry run is not kept; leave it out")
    if dask is not None:
        raise click.UsageError("--dask: a dry run is made in threads; leave it out")


@options.command(
    "resume", "resume", "resume 20260131-1204 --budget 1000", "resume latest --max-cost 5 --json"
)
@options.run_argument
@options.project_option
@options.runs_option
@limit_options
@click.option(
    "--reuse-scores",
    is_flag=True,
    help="Resume with the scores of the recorded answers, although functions such as that of a "
    "metric were changed since.",
)
@options.workers_option
@dask_option
@options.events_option
@options.quiet_option
def resume_command(
    run: str,
    *,
    project: str | None,
    runs: str | None,
    reuse_scores: bool,
    workers: int | None,
    dask: str | None,
    as_json: bool,
    quiet: bool,
    **limits: Unpack[Limits],
) -> ExitCode:
    """Resume a run that was interrupted, or that has ended.

    RUN is an id, the start of one, or `latest`. Recorded answers are neither requested nor
    paid again. Limits may differ from before: a larger `--budget` resumes a run that used up
    its own. What determines the path of the run, such as its cases, must be unchanged.
    """
    stream = sys.stdout if as_json else None
    kept_in = chosen_runs(runs, project, runs_again=True)
    folder = RunFolder(kept_in.find(run).path.absolute())
    with loaded_again(folder, Changes(**limits), project=project) as source:
        progress = progress_for(f"promptgraft resume {folder.id}", quiet=quiet, stream=stream)
        context = attrs.evolve(source.job.context, reuse_scores=reuse_scores)
        with _keeping(source, progress, stream, workers=workers, dask=dask) as keeping:
            outcome = keeping.kept(folder, source.job.within(context), config=source.config)
    return _concluded(outcome, kept_in, stream=stream, to_source=source.to_source)


def _concluded(outcome: Outcome, runs: Runs, *, stream: TextIO | None, to_source: bool) -> ExitCode:
    """Print what became of a run, and write its winner where the project asks for that."""
    code = conclude_run(outcome, runs, stream=stream)
    if not to_source or outcome.folder is None or outcome.error is not None:
        return code
    from promptgraft.cli.apply import apply_unattended

    return apply_unattended(outcome.folder) or code
