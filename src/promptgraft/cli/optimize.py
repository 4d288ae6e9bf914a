"""``promptgraft optimize`` and ``resume``: run a prompt of a project, a BAML function, or a job."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TextIO, TypedDict, Unpack

import attrs
import click

from promptgraft.cli import options
from promptgraft.cli.choosing import Runs, chosen_runs, runs_of
from promptgraft.cli.display import progress_for
from promptgraft.cli.exits import ExitCode, complain
from promptgraft.cli.outcome import MODEL, Runner, conclude_run
from promptgraft.cli.progress import Progress
from promptgraft.project.adding import cluster, executor_named
from promptgraft.project.files import ProjectFile
from promptgraft.project.outcome import RunOutcome
from promptgraft.project.parts import DEFAULT_REFLECTION, FORMATS, FormatOptions, named_options
from promptgraft.project.running import Changes, Runnable, loaded, loaded_again, run_dry
from promptgraft.runs import RunFolder
from promptgraft.search.settings import Size


class LimitOptions(TypedDict):
    """The limits of a run that the command line gives."""

    budget: int | None
    max_cost: Decimal | None
    max_tokens: int | None
    timeout: float | None


class _OptimizeOptions(LimitOptions, FormatOptions):
    """The options of ``optimize`` that are passed on together."""

    auto: Size | None
    parts: tuple[str, ...]


limit_options = options.together(
    click.option(
        "--budget",
        type=options.at_least(1),
        help="Test calls that the run may make: one case tried with one text each.",
    ),
    click.option(
        "--max-cost",
        type=options.dollars,
        help="Total US dollars that the run may spend; needs models with known prices.",
    ),
    click.option(
        "--max-tokens",
        type=options.at_least(1),
        help="Total tokens, sent and received, that the run may use.",
    ),
    click.option(
        "--timeout",
        type=options.seconds,
        help="Seconds that this command may run; `promptgraft resume` resumes the run.",
    ),
)

dask_option = click.option(
    "--dask",
    metavar="ADDRESS",
    help="Make test calls on the workers of a dask cluster, such as tcp://10.0.0.5:8786.",
)

_baml_options = options.together(
    click.option("--baml", metavar="DIR", help="A folder of BAML files, in place of a project."),
    click.option(
        "--function",
        multiple=True,
        metavar="NAME",
        help="With --baml: a function to improve; may be repeated. By default all with a test, one "
        "after another.",
    ),
    click.option(
        "--test",
        multiple=True,
        metavar="PATTERN",
        help="With --baml: tests to use, such as `ExtractReceipt::Short*`; by default all.",
    ),
    click.option(
        "--weights",
        metavar="WEIGHTS",
        help="With --baml: weights of the objectives, such as `accuracy=0.8,tokens=0.2`; also "
        "latency, prompt_tokens, completion_tokens and the names of checks.",
    ),
    click.option(
        "--reflection",
        metavar="MODEL",
        help="With --baml: the reflection model: `openai/MODEL`, `anthropic/MODEL`, `offline` or "
        f"`file.py:NAME`; by default {DEFAULT_REFLECTION}.",
    ),
)


def _keep(file: ProjectFile) -> None:
    if line := file.keep():
        complain(line)


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
    help="Use the embedded offline model in place of models, and keep nothing. Code of yours, such "
    "as an agent, a tool or a BAML function, is called.",
)
@limit_options
@click.option(
    "--auto",
    type=click.Choice(("light", "medium", "heavy")),
    help="The size of the run, in place of `--budget`; by default that of the project, or `light`.",
)
@options.workers_option
@dask_option
@click.option(
    "--tag",
    type=options.tag,
    help="The tag that the search starts from and that the winner is stored under; by default that "
    "of the project or job.",
)
@options.part_option
@click.option(
    "--pick",
    metavar="WEIGHTS",
    help="Choose the winner by these weights of the objectives, such as `score=0.8,tokens=0.2`; "
    "by default the candidate with the highest score wins.",
)
@click.option(
    "--seed",
    type=options.at_least(0),
    help="Seed of every random choice of the search; by default that of the project or job.",
)
@options.events_option
@options.quiet_option
@_baml_options
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
    **given: Unpack[_OptimizeOptions],
) -> ExitCode:
    """Improve a prompt of the project, or run a job.

    PROMPT is a name in `promptgraft.yaml`; it may be left out if there is only one. JOB is
    `file.py:NAME` or `module:NAME`: an OptimizationJob, or a function without arguments that
    returns one. Each run is kept in a folder of its own. The winner of a project takes effect
    with `promptgraft apply`; that of a job is stored where the job says. Ctrl+C stops the run
    and keeps the best candidate so far; a second Ctrl+C ends the command at once.
    """
    named = named_options(given)
    if given["baml"] is not None:
        if target is not None or project is not None:
            raise click.UsageError("--baml: names the prompt; leave PROMPT and --project out")
    elif named:
        raise click.UsageError(f"{named[0]}: is for a BAML project; name it with --baml")
    if dry:
        _refuse_ignored_options(given, runs, dask)
    if given["auto"] and given["budget"]:
        raise click.UsageError("--auto: --budget already says how many test calls; leave one out")
    changes = Changes(
        tag=tag,
        pick=pick,
        seed=seed,
        budget=given["budget"] or given["auto"],
        max_cost=given["max_cost"],
        max_tokens=given["max_tokens"],
        timeout=given["timeout"],
        tuning={"targets": {"parts": list(given["parts"])}} if given["parts"] else None,
    )
    run = partial(
        _optimized,
        changes=changes,
        runs=runs,
        dry=dry,
        workers=workers,
        dask=dask,
        quiet=quiet,
        stream=sys.stdout if as_json else None,
    )
    if given["baml"] is None:
        return run(target, project)
    files = FORMATS.load("baml").projects(Path(given["baml"]), given, auto=given["auto"])
    for file in files if len(files) > 1 else ():
        # All are checked before the first is paid for.
        _check_plan(file, changes)
    code = ExitCode.OK
    for file in files:
        with file.written() as path:
            # The worst of several, so that no failure is hidden by a success after it.
            code = max(code, run(None, str(path), partial(_keep, file)))
        if code > ExitCode.NOT_IMPROVED:
            break
    return code


def _check_plan(file: ProjectFile, changes: Changes) -> None:
    with file.written() as path, loaded(None, str(path), changes=changes, to_plan=True) as source:
        source.plan()


def _optimized(
    target: str | None,
    project: str | None,
    on_start: Callable[[], None] = lambda: None,
    *,
    changes: Changes,
    runs: str | None,
    dry: bool,
    workers: int | None,
    dask: str | None,
    quiet: bool,
    stream: TextIO | None,
) -> ExitCode:
    """Make one run; ``on_start`` is called when nothing can refuse it any more."""
    # A dry run asks no model of the project, so that it needs no secrets.
    with loaded(target, project, changes=changes, to_plan=dry) as source:
        title = f"promptgraft optimize {source.name}{f', dry run on the {MODEL}' if dry else ''}"
        progress = progress_for(title, quiet=quiet, stream=stream)
        kept_in = runs_of(source.runs, runs=runs, project=project)
        threads = workers or (source.workers if dry else None)
        with _runner(source, progress, stream, workers=threads, dask=dask) as runner:
            if dry:
                outcome = run_dry(source.job, runner.run)
            else:
                checked = source.checked()
                folder = checked.make_folder(kept_in.root)
                on_start()
                outcome = runner.run_in(folder, checked.job)
    return _concluded(outcome, kept_in, stream=stream, to_source=source.to_source)


@contextlib.contextmanager
def _runner(
    source: Runnable,
    progress: Progress,
    stream: TextIO | None,
    *,
    workers: int | None,
    dask: str | None,
) -> Iterator[Runner]:
    """Yield the runner of a command; ``--dask`` or ``--workers`` replace the source's executor."""
    named = source.executor if workers is None else None
    if dask is not None:
        named = executor_named("dask", dask, "--dask")
    with cluster(named, code=source.code, say=progress.say) as executor:
        yield Runner(
            progress=progress,
            workers=workers or source.workers,
            executor=executor,
            stream=stream,
            trackers=source.trackers,
        )


def _refuse_ignored_options(limits: LimitOptions, runs: str | None, dask: str | None) -> None:
    """Refuse options that a dry run, which is free and not kept, would ignore."""
    for name, value in (("max-cost", limits["max_cost"]), ("max-tokens", limits["max_tokens"])):
        if value is not None:
            raise click.UsageError(
                f"--{name}: a dry run has no limit in money or tokens; leave it out"
            )
    if runs is not None:
        raise click.UsageError("--runs: a dry run is not kept; leave it out")
    if dask is not None:
        raise click.UsageError("--dask: a dry run uses threads; leave it out")


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
    help="Keep the recorded scores although metrics or other functions have changed since.",
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
    **limits: Unpack[LimitOptions],
) -> ExitCode:
    """Resume a run that was interrupted, or that has ended.

    RUN is an id, the beginning of one, or `latest`. Recorded answers are neither requested nor
    paid for again. Limits may change: a larger `--budget` resumes a run that has used up its
    own. What determines the course of the run, such as its cases, must be unchanged.
    """
    stream = sys.stdout if as_json else None
    kept_in = chosen_runs(runs, project, runs_again=True)
    # Absolute, because a job is loaded in the folder that it ran in then.
    folder = RunFolder(kept_in.find(run).path.absolute())
    with loaded_again(folder, Changes(**limits), project=project) as source:
        progress = progress_for(f"promptgraft resume {folder.id}", quiet=quiet, stream=stream)
        checked = source.checked()
        context = attrs.evolve(checked.job.context, reuse_scores=reuse_scores)
        with _runner(source, progress, stream, workers=workers, dask=dask) as runner:
            outcome = runner.run_in(folder, checked.job.within(context), config=checked.config)
        # Cases that are held out may have changed since the run began.
        source.keep_sources(folder)
    return _concluded(outcome, kept_in, stream=stream, to_source=source.to_source)


def _concluded(
    outcome: RunOutcome, runs: Runs, *, stream: TextIO | None, to_source: bool
) -> ExitCode:
    """Print the outcome of a run, and write its winner to the source if the project asks for it."""
    code = conclude_run(outcome, runs, stream=stream)
    if not to_source or outcome.folder is None or outcome.error is not None:
        return code
    from promptgraft.cli.apply import apply_unattended

    # OK is 0: the code of the run counts unless its winner could not be applied.
    return apply_unattended(outcome.folder) or code
