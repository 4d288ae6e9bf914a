"""``promptgraft optimize`` and ``resume``: run a prompt of a project, or a job."""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import TextIO, TypedDict, Unpack

import attrs
import click
from attrs.converters import optional

from promptgraft.cli import options
from promptgraft.cli.baml import baml_options
from promptgraft.cli.choosing import Runs, chosen_runs, runs_of
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.outcome import MODEL, Outcome
from promptgraft.cli.progress import progress_for
from promptgraft.cli.runnable import Runnable, loaded, loaded_again
from promptgraft.cli.running import Keeping, conclude_run, keep, run_dry
from promptgraft.clock import SystemClock
from promptgraft.runs import RunFolder
from promptgraft.runs.documents import run_config
from promptgraft.runs.folder import make_run, read_document
from promptgraft.search.job import OptimizationJob
from promptgraft.search.scores import weights_of
from promptgraft.serde import Json
from promptgraft.strict import structure


@attrs.frozen(kw_only=True)
class Changes:
    """What the command line changes of a job, as ``config.json`` keeps it; None changes nothing.

    Attributes:
        pick: weights of objectives that decide which candidate wins.
        max_cost: US dollars, a decimal number as text.
        timeout: seconds that this one command may take; not kept.
    """

    tag: str | None = None
    pick: str | None = None
    seed: int | None = None
    budget: int | None = None
    max_cost: str | None = attrs.field(default=None, converter=optional(str))
    max_tokens: int | None = None
    timeout: float | None = None

    def applied(self, job: OptimizationJob) -> OptimizationJob:
        """Return the job with the changes."""
        given = attrs.asdict(self, filter=_is_given)
        tag, pick = (given.pop(name, None) for name in ("tag", "pick"))
        own = {"budget": "rollout_budget", "seed": "seed"}
        settings = {own[name]: given.pop(name) for name in own if name in given}
        limits = attrs.evolve(job.config.limits, **given)
        config = attrs.evolve(job.config, limits=limits, **settings)
        if pick is not None:
            objectives = attrs.evolve(config.objectives, pick=weights_of(pick, "pick"))
            config = attrs.evolve(config, objectives=objectives)
        context = job.context if tag is None else attrs.evolve(job.context, overrides_tag=tag)
        return OptimizationJob(job.subject, context, config)


def _is_given(_: object, value: object) -> bool:
    return value is not None


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
        _refuse_without_effect(limits, runs)
    changes = Changes(tag=tag, pick=pick, seed=seed, **limits)
    stream = sys.stdout if as_json else None
    with loaded(target, project) as found:
        title = f"promptgraft optimize {found.name}{f', dry run on the {MODEL}' if dry else ''}"
        progress = progress_for(title, quiet=quiet, stream=stream)
        keeping = Keeping(
            progress=progress,
            workers=workers or found.workers,
            stream=stream,
            trackers=found.trackers,
        )
        job = changes.applied(found.job)
        kept_in = runs_of(found.runs, runs=runs, project=project)
        if dry:
            outcome = run_dry(job, keeping)
        else:
            config = _config(found, job, changes)
            key, root = job.name.rpartition("/")[2], kept_in.root.absolute()
            folder = make_run(root, key, config, now=SystemClock().now())
            outcome = keep(folder, job, keeping)
    return _concluded(outcome, kept_in, stream=stream, to_source=found.to_source)


def _config(source: Runnable, job: OptimizationJob, changes: Changes) -> dict[str, Json]:
    """Return what ``config.json`` says of a run."""
    kept = attrs.asdict(attrs.evolve(changes, timeout=None), filter=_is_given)
    return run_config(job, origin=source.origin, settings=source.settings, options=kept)


def _refuse_without_effect(limits: Limits, runs: str | None) -> None:
    """Refuse what a dry run, which costs nothing and is not kept, does not look at."""
    for name, value in (("max-cost", limits["max_cost"]), ("max-tokens", limits["max_tokens"])):
        if value is not None:
            raise click.UsageError(
                f"--{name}: a dry run has no limit in money or tokens; leave it out"
            )
    if runs is not None:
        raise click.UsageError("--runs: a dry run is not kept; leave it out")


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
@options.events_option
@options.quiet_option
def resume_command(
    run: str,
    *,
    project: str | None,
    runs: str | None,
    reuse_scores: bool,
    workers: int | None,
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
    config = read_document(folder.config)
    kept = structure(config.get("options"), Changes, where=f"{folder.config}: options")
    changes = attrs.evolve(kept, **attrs.asdict(Changes(**limits), filter=_is_given))
    with loaded_again(folder, config, project) as source:
        progress = progress_for(f"promptgraft resume {folder.id}", quiet=quiet, stream=stream)
        keeping = Keeping(
            progress=progress,
            workers=workers or source.workers,
            stream=stream,
            trackers=source.trackers,
        )
        job = changes.applied(source.job)
        job = job.within(attrs.evolve(job.context, reuse_scores=reuse_scores))
        same = {name: config[name] for name in ("id", "created", "origin")}
        fresh = {**same, **_config(source, job, changes), **same}
        outcome = keep(folder, job, keeping, config=fresh)
    return _concluded(outcome, kept_in, stream=stream, to_source=source.to_source)


def _concluded(outcome: Outcome, runs: Runs, *, stream: TextIO | None, to_source: bool) -> ExitCode:
    """Print what became of a run, and write its winner where the project asks for that."""
    code = conclude_run(outcome, runs, stream=stream)
    if not to_source or outcome.folder is None or outcome.error is not None:
        return code
    from promptgraft.cli.writing_back import apply_unattended

    return apply_unattended(outcome.folder) or code
