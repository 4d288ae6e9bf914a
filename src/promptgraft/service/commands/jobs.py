"""``promptgraft jobs``: optimization jobs in a database or on a server."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from promptgraft.cli import options
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.output import Screen, echo, print_json, relative
from promptgraft.cli.summary import exit_code_for
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.ground.text import change, counted, duration
from promptgraft.project.files import project_around, runs_folder_of
from promptgraft.service.commands.approvals import approvals_command
from promptgraft.service.commands.datasets import datasets_command
from promptgraft.service.commands.options import (
    JobsPlace,
    jobs_option,
    named_projects,
    opened,
    place_options,
    projects_option,
)

if TYPE_CHECKING:
    from promptgraft.service.jobs import Job, Jobs

job_argument = click.argument("job", metavar="JOB")

_limits = options.together(
    click.option(
        "--budget",
        type=options.at_least(1),
        help="Test calls that the job may make: one case tried with one text each.",
    ),
    click.option("--max-cost", type=options.dollars, help="US dollars at which the job pauses."),
    click.option("--max-tokens", type=options.at_least(1), help="Tokens at which the job pauses."),
    click.option(
        "--max-iterations", type=options.at_least(1, 100), help="Candidates that it may try."
    ),
    click.option(
        "--patience",
        type=options.at_least(1, 50),
        help="Steps in a row without a better candidate after which it ends.",
    ),
    click.option(
        "--target-score",
        type=options.share,
        metavar="SCORE",
        help="Mean on the validation set at which it ends, 0 to 1.",
    ),
    click.option(
        "--priority", type=int, help="-100 to 100; jobs with a higher priority run first."
    ),
    click.option("--note", help="A note that lists and pages show."),
    click.option(
        "--set",
        "settings",
        metavar="NAME=VALUE",
        multiple=True,
        help="Any other setting of the job, its value in JSON: `--set timeout=600`.",
    ),
)


@click.group(
    "jobs",
    epilog=options.examples(
        "jobs submit triage --jobs sqlite:///jobs.db",
        "worker --until-idle --jobs sqlite:///jobs.db",
        "jobs list --jobs sqlite:///jobs.db",
    ),
)
def jobs_command() -> None:
    """Submit and manage optimization jobs in a database or on a server.

    Jobs are stored in SQLite, PostgreSQL or MySQL and run by `promptgraft worker`. JOB is an id,
    or at least 4 leading digits that identify one.
    """


@jobs_command.command("submit", epilog=options.examples("jobs submit triage --budget 500"))
@click.argument("prompt", metavar="[PROMPT]", required=False)
@_limits
@click.option("--seed", type=options.at_least(0), help="Seed of every random choice.")
@click.option("--tag", type=options.tag, help="The tag that the winner may be applied to.")
@click.option(
    "--model",
    metavar="NAME",
    help="The model of the project that answers and proposes: `task`, `reflection` or a judge.",
)
@click.option(
    "--dataset",
    metavar="NAME",
    help="A data set (`promptgraft jobs datasets`) instead of the file of cases.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    default=None,
    help="Use the embedded offline model in place of models, and store nothing. Code of the "
    "project, such as an agent, is called.",
)
@options.part_option
@click.option("--key", help="An idempotency key: the same key returns the same job.")
@projects_option
@place_options
@options.json_option
def submit_command(
    prompt: str | None,
    *,
    key: str | None,
    parts: tuple[str, ...],
    projects: tuple[str, ...],
    place: JobsPlace,
    as_json: bool,
    **given: object,
) -> None:
    """Submit a job. Invalid settings are refused before it is queued."""
    project, changes = place.project(projects), _changes_of(given)
    if parts:
        tuning = changes.get("tuning", {})
        if not isinstance(tuning, dict) or "targets" in tuning:
            raise ConfigError("--part: --set tuning= already says what may change; leave one out")
        changes["tuning"] = {**tuning, "targets": {"parts": list(parts)}}
    with place.opened(projects, creates=True) as jobs:
        new_job = jobs.submit(project, prompt, changes, key=key)
    if as_json:
        print_json({**job_json(new_job.job), "new": new_job.is_new})
        return
    state = "queued" if new_job.is_new else f"there already, {new_job.job.state}"
    echo(f"job {new_job.job.id} is {state}")


def _changes_of(given: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that options change: those given, and the pairs of ``--set``."""
    import json

    values = {
        name: value for name, value in given.items() if value is not None and name != "settings"
    }
    settings = given["settings"]
    for setting in settings if isinstance(settings, tuple) else ():
        name, sign, text = str(setting).partition("=")
        if not sign:
            raise ConfigError(f"--set: expected NAME=VALUE, found {setting!r}")
        if values.get(name, False) is not False:
            raise ConfigError(f"--set: {name} is given twice; leave one out")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


@jobs_command.command("list", epilog=options.examples("jobs list --state running"))
@click.option("--state", help="Only jobs in this state.")
@click.option("--project", metavar="NAME", help="Only jobs of this project.")
@click.option("--prompt", help="Only jobs of this prompt.")
@click.option("--limit", type=options.at_least(1), default="20", help="The number of jobs to list.")
@place_options
@options.json_option
def list_command(
    *,
    state: str | None,
    project: str | None,
    prompt: str | None,
    limit: int,
    place: JobsPlace,
    as_json: bool,
) -> None:
    """List jobs, the newest first."""
    with place.opened() as jobs:
        jobs_listed = _listed(jobs, state=state, project=project, prompt=prompt, limit=limit)
        # Only a list without jobs is worth reading all of them for.
        is_unexplained = not (jobs_listed or as_json) and (project or prompt)
        all_jobs = _listed(jobs) if is_unexplained else []
    unknown_names = [
        *_unknown("project", project, [job.project for job in all_jobs]),
        *_unknown("prompt", prompt, [job.prompt for job in all_jobs]),
    ]
    if as_json:
        print_json({"jobs": [job_json(job) for job in jobs_listed]})
        return
    screen = Screen()
    screen.line(counted(len(jobs_listed), "job"), bold=True)
    if jobs_listed:
        screen.table([("state", "verdict", "gain on unseen cases", "job"), *map(_row, jobs_listed)])
    for line in unknown_names:
        screen.line(line)


def _unknown(what: str, name: str | None, names: Sequence[str]) -> Iterator[str]:
    """Yield a line if no job has a name; ``names`` are those of all jobs."""
    different = list(dict.fromkeys(names))
    if name and different and name not in different:
        there = ", ".join(f"`{other}`" for other in different)
        yield f"no job has the {what} `{name}`{did_you_mean(name, different)}; {what}s: {there}"


def _listed(jobs: Jobs, *, limit: int | None = None, **filters: Any) -> list[Job]:
    """Return the jobs that a :class:`JobFilter` has, the newest first; all without a limit."""
    from promptgraft.service.jobs import interface, types  # needs the extra `server`

    where = types.JobFilter(**filters)
    listed: list[Job] = []
    while limit is None or len(listed) < limit:
        size = min(interface.LARGEST_PAGE, limit - len(listed) if limit else interface.LARGEST_PAGE)
        page = jobs.list(where, limit=size, before=listed[-1].number if listed else None)
        listed += page
        if len(page) < size:
            break
    return listed


def _row(job: Job) -> tuple[str, ...]:
    status = job.status
    why = _said(job.reason) if job.state in ("queued", "paused", "failed") else ""
    dry = ", dry run" if job.changes.dry_run else ""
    where = f"{job.id[:8]}  {job.project}/{job.prompt}, tag {job.tag}{dry}{why}"
    verdict = status.verdict or ("" if job.has_ended else f"{job.progress:.0f} % done")
    return str(job.state), verdict, status.gained, where


@jobs_command.command("show", epilog=options.examples("jobs show 3f2a"))
@job_argument
@place_options
@options.json_option
def show_command(job: str, *, place: JobsPlace, as_json: bool) -> None:
    """Show a job and its attempts."""
    with place.opened() as jobs:
        job_found, attempts, lacking = jobs.get(job), jobs.attempts(job), jobs.no_worker(job)
    if as_json:
        tries: list[Json] = [attrs.asdict(attempt) for attempt in attempts]
        print_json({**job_json(job_found), "tries": tries, "no_worker": lacking})
        return
    _print_job(job_found)
    screen = Screen()
    if lacking:
        screen.line(lacking, color="yellow")
    for attempt in attempts:
        ended = "" if attempt.ended is None else f", {duration(attempt.ended - attempt.started)}"
        screen.line(f"attempt {attempt.number} by {attempt.worker}{ended}{_said(attempt.error)}")


def _said(text: str) -> str:
    return f": {text}" if text else ""


def _print_job(job: Job) -> None:
    from promptgraft.service.jobs.preparing import written_changes

    screen, status, most = Screen(), job.status, job.status.max_iterations
    wish = f", asked to {job.wish}" if job.wish else ""
    screen.line(f"job {job.id}: {job.state}{wish}", bold=True)
    changes = ", ".join(f"{name}={value}" for name, value in written_changes(job.changes).items())
    rows = [
        ("prompt", f"{job.project}/{job.prompt}, tag {job.tag}"),
        ("asked for", changes),
        ("created", f"{datetime.fromtimestamp(job.created, UTC):%Y-%m-%d %H:%M:%SZ}"),
        ("reason", job.reason),
        ("progress", f"{job.progress:.0f} %, step {status.step}, {status.rollouts:,} test calls"),
        ("candidates", f"at most {most:,}; steps without a new text do not count" if most else ""),
        ("doing", status.stage),
        ("waits for", status.waiting),
        ("validation", "" if status.baseline is None else change(status.baseline, status.best)),
        ("verdict", status.verdict),
        ("gain on unseen cases", status.gained),
        ("candidate", f"promptgraft jobs apply {job.id[:8]}" if status.revisions else ""),
        ("not stored", status.unstored),
        ("forked from", job.origin or ""),
    ]
    screen.fields([(name, value) for name, value in rows if value])


@jobs_command.command("events", epilog=options.examples("jobs events 3f2a --after 40"))
@job_argument
@click.option(
    "--after", type=options.at_least(0), default="0", help="Only events with a higher number."
)
@place_options
def events_command(job: str, *, after: int, place: JobsPlace) -> None:
    """Print the events of a job so far, one JSON object per line."""
    with place.opened() as jobs:
        while page := jobs.events(job, after=after):
            after = page[-1][0]
            for _, _, line in page:
                echo(line.decode("ascii"))


@jobs_command.command("wait", epilog=options.examples("jobs wait 3f2a --timeout 3600"))
@job_argument
@click.option("--timeout", type=options.seconds, help="How long to wait; by default forever.")
@place_options
@options.json_option
def wait_command(job: str, *, timeout: float | None, place: JobsPlace, as_json: bool) -> ExitCode:
    """Wait until a job pauses or ends. The exit code is that of its run."""
    with place.opened() as jobs:
        job_ended = jobs.wait(job, timeout=timeout)
        result = jobs.result(job) or {}
    if as_json:
        print_json(job_json(job_ended))
    else:
        _print_job(job_ended)
    if job_ended.state == "completed":
        stop = result.get("stop")
        reason = str(stop["reason"]) if isinstance(stop, dict) else ""
        return exit_code_for(reason, improved=result.get("improved") is True)
    return ExitCode.WRONG_USE if job_ended.state == "failed" else ExitCode.STOPPED_EARLY


def _add_request(what: str, about: str) -> None:
    """Add a command that requests a change of state of a job."""

    @jobs_command.command(what, help=about, epilog=options.examples(f"jobs {what} 3f2a"))
    @job_argument
    @place_options
    @options.json_option
    def request_command(job: str, *, place: JobsPlace, as_json: bool) -> None:
        with place.opened() as jobs:
            request = {"pause": jobs.pause, "resume": jobs.resume, "cancel": jobs.cancel}[what]
            _print_state(request(job), as_json=as_json)


_add_request("pause", "Pause a running job after its current step.")
_add_request("resume", "Resume a paused job.")
_add_request("cancel", "Cancel a job for good; calls in flight are dropped.")


def _print_state(job: Job, *, as_json: bool) -> None:
    if as_json:
        print_json(job_json(job))
        return
    wish = f", asked to {job.wish}" if job.wish else ""
    forked = f", forked from {job.origin}" if job.origin else ""
    echo(f"job {job.id} is {job.state}{wish}{forked}")


@jobs_command.command("change", epilog=options.examples("jobs change 3f2a --budget 2000"))
@job_argument
@_limits
@projects_option
@place_options
@options.json_option
def change_command(
    job: str, *, projects: tuple[str, ...], place: JobsPlace, as_json: bool, **given: object
) -> None:
    """Change the limits of a job. A running job uses them once it is resumed.

    They are checked like those of `submit` if the project of the job is here.
    """
    if not (changes := _changes_of(given)):
        raise ConfigError("change: give what changes, such as --budget, --max-cost or --note")
    # A note or a priority changes even where the project is at fault.
    is_planned = bool(changes.keys() - {"note", "priority"}) and project_around() is not None
    with place.opened(projects if projects or is_planned else None) as jobs:
        job_changed = jobs.change(job, changes)
    _print_state(job_changed, as_json=as_json)


@jobs_command.command("fork", epilog=options.examples("jobs fork 3f2a --budget 2000"))
@job_argument
@_limits
@projects_option
@place_options
@options.json_option
def fork_command(
    job: str, *, projects: tuple[str, ...], place: JobsPlace, as_json: bool, **given: object
) -> None:
    """Submit a job that starts from the answers of another. Its limits may differ."""
    with place.opened(projects) as jobs:
        new_job = jobs.fork(job, _changes_of(given))
    _print_state(new_job, as_json=as_json)


@jobs_command.command("result", epilog=options.examples("jobs result 3f2a"))
@job_argument
@place_options
def result_command(job: str, *, place: JobsPlace) -> None:
    """Print the result of a job as JSON. The format is that of `result.json`."""
    with place.opened() as jobs:
        job_found, result = jobs.get(job), jobs.result(job)
    if result is None:
        raise ConfigError(
            f"job {job_found.id} is {job_found.state}; there is no result yet; `promptgraft jobs "
            "wait` waits for it"
        )
    print_json(result)


@jobs_command.command(
    "promote",
    epilog=options.examples(
        "jobs promote triage night --to prod",
        "jobs promote triage night --to prod --expected support/triage=3f2a",
    ),
)
@click.argument("prompt")
@click.argument("tag", type=options.tag)
@click.option("--to", type=options.tag, required=True, help="The tag to point at the winner.")
@click.option(
    "--expected",
    metavar="NS/KEY=REV",
    multiple=True,
    help="The revision that the tag of a prompt must point at now; empty for none. May be "
    "repeated for the prompts of a graph.",
)
@projects_option
@place_options
@options.json_option
def promote_command(
    prompt: str,
    tag: str,
    *,
    to: str,
    expected: tuple[str, ...],
    projects: tuple[str, ...],
    place: JobsPlace,
    as_json: bool,
) -> None:
    """Point another tag at the winner under TAG.

    Stale parts are refused. All prompts of a graph are promoted, or none. A protected tag is not
    moved: see `jobs approvals`.
    """
    expected_ids = {}
    for pair in expected:
        name, sign, expected_ids[name] = pair.partition("=")
        if not sign:
            raise ConfigError(f"--expected: expected NS/KEY=REV, found {pair!r}")
    project = place.project(projects)
    with place.opened(projects) as jobs:
        now = jobs.promote(project, prompt, tag, to=to, expected=expected_ids)
    _print_moved(to, now, as_json=as_json)


def _print_moved(tag: str, revisions: Mapping[str, str], *, as_json: bool) -> None:
    if as_json:
        print_json({"tag": tag, "revisions": dict(revisions)})
        return
    for name, revision in revisions.items():
        echo(f"tag {tag} of {name} points at {revision[:12]}")


@jobs_command.command(
    "apply", epilog=options.examples("jobs apply 3f2a", "jobs apply 3f2a --to prod")
)
@job_argument
@click.option("--to", type=options.tag, help="The tag to point at it; by default that of the job.")
@projects_option
@place_options
@options.json_option
def apply_command(
    job: str, *, to: str | None, projects: tuple[str, ...], place: JobsPlace, as_json: bool
) -> None:
    """Point the tag of a job at its winner, which is only a candidate before.

    Refused if the tag has moved since the winner was found, or if the source of a part has
    changed. A protected tag is not moved: see `jobs approvals`.
    """
    with place.opened(projects) as jobs:
        tag = to or jobs.get(job).tag
        now = jobs.apply(job, to=to)
    _print_moved(tag, now, as_json=as_json)


@jobs_command.command("export", epilog=options.examples("jobs export 3f2a --runs runs"))
@job_argument
@options.runs_option
@projects_option
@place_options
def export_command(
    job: str, *, runs: str | None, projects: tuple[str, ...], place: JobsPlace
) -> None:
    """Write a job to a run directory, or update that directory.

    `show`, `compare`, `report` and `watch` read it like any other run.
    """
    if runs is not None:
        root = Path(runs)
    else:
        # With a server `--project` names one of its projects, not a file here.
        files = named_projects(() if place.server else projects)
        root = runs_folder_of(next(iter(files.values())))
    with place.opened(projects) as jobs:
        folder = jobs.mirror(job, root)
    echo(f"{relative(folder)}")


@jobs_command.command(
    "prune",
    epilog=options.examples(
        "jobs prune 3f2a 77b0", "jobs prune --older-than 90 --state failed --dry-run"
    ),
)
@click.argument("names", metavar="[JOB...]", nargs=-1)
@click.option(
    "--older-than", "days", type=options.at_least(0), help="Jobs that ended so many days ago."
)
@click.option(
    "--state",
    "states",
    type=click.Choice(["completed", "failed", "cancelled"]),
    multiple=True,
    help="With --older-than, only jobs in this state; may be repeated. By default all three.",
)
@click.option("--dry-run", is_flag=True, help="List the jobs, and remove none.")
@projects_option
@place_options
def prune_command(
    *,
    names: tuple[str, ...],
    days: int | None,
    states: tuple[str, ...],
    dry_run: bool,
    projects: tuple[str, ...],
    place: JobsPlace,
) -> None:
    """Remove jobs that have ended, with all their data.

    Name the jobs, or their age. A candidate that was not applied is removed from the store of
    its project, if `--project` names that; what was applied stays.
    """
    if bool(names) == (days is not None):
        raise ConfigError("prune: name jobs, or give --older-than; not both")
    if states and days is None:
        raise ConfigError("--state: goes with --older-than")
    with place.opened(projects or None) as jobs:
        if days is None:
            doomed = [jobs.get(name) for name in names]
        else:
            latest = math.ceil(time.time()) - days * 86_400
            doomed = [
                job
                for state in states or (None,)
                for job in _listed(jobs, state=state, ended_by=latest)
            ]
        for job in doomed:
            if not dry_run:
                jobs.delete(job.id)
            echo(f"{'would remove' if dry_run else 'removed'} job {job.id}")
        if not doomed:
            echo(f"no {' or '.join(states) or 'ended'} job is so old")


@jobs_command.command("vacuum", epilog=options.examples("jobs vacuum --jobs sqlite:///jobs.db"))
@jobs_option
def vacuum_command(*, url: str | None) -> None:
    """Give the room of removed jobs back. This may take minutes, in which nobody can write."""
    database = opened(url)
    try:
        database.vacuum()
    finally:
        database.close()
    echo(f"vacuumed database {database.name}")


@jobs_command.command("schema", epilog=options.examples("jobs schema --jobs sqlite:///jobs.db"))
@jobs_option
def schema_command(*, url: str | None) -> None:
    """Print the SQL that creates the tables. For databases that are set up in advance."""
    echo(opened(url).definition().rstrip())


@jobs_command.command(
    "migrate", epilog=options.examples("jobs migrate --dry-run --jobs sqlite:///jobs.db")
)
@click.option("--dry-run", is_flag=True, help="Print the SQL, and change nothing.")
@jobs_option
def migrate_command(*, dry_run: bool, url: str | None) -> None:
    """Change the tables of an earlier promptgraft to those of this one.

    Make a copy of the database, and stop its servers and workers first. SQLite files are migrated
    without this command, when they are opened.
    """
    database = opened(url)
    statements = database.pending_migration()
    if not statements:
        echo(f"database {database.name}: the tables are current")
        return
    if dry_run:
        echo(";\n".join(statements) + ";")
        return
    database.migrate()
    echo(f"database {database.name}: migrated, {counted(len(statements), 'statement')}")


jobs_command.add_command(approvals_command)
jobs_command.add_command(datasets_command)


def job_json(job: Job) -> dict[str, Json]:
    """Return a job as plain data."""
    from promptgraft.service.jobs import preparing  # needs the extra `server`

    return preparing.job_json(job)
