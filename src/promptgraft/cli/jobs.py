"""``promptgraft jobs``: optimization jobs in a database."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from promptgraft.cli import options
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.job_options import (
    jobs_option,
    managed,
    named_projects,
    opened,
    projects_option,
)
from promptgraft.cli.outcome import exit_code_for
from promptgraft.cli.output import Screen, echo, print_json, relative
from promptgraft.errors import ConfigError
from promptgraft.project.files import runs_folder_of
from promptgraft.serde import Json
from promptgraft.text import change, counted, duration

if TYPE_CHECKING:
    from promptgraft.jobs import Job

job_argument = click.argument("job", metavar="JOB")


@click.group(
    "jobs",
    epilog=options.examples(
        "jobs submit triage --jobs sqlite:///jobs.db",
        "worker --until-idle --jobs sqlite:///jobs.db",
        "jobs list --jobs sqlite:///jobs.db",
    ),
)
def jobs_command() -> None:
    """Submit optimization jobs to a database, and look after them.

    Jobs are kept in SQLite, PostgreSQL or MySQL and carried out by `promptgraft worker`. JOB is an
    id, or at least 4 digits that only one id begins with.
    """


@jobs_command.command("submit", epilog=options.examples("jobs submit triage --budget 500"))
@click.argument("prompt", metavar="[PROMPT]", required=False)
@click.option("--budget", type=options.at_least(1), help="Rollouts that the job may use.")
@click.option("--max-cost", type=options.dollars, help="US dollars at which the job is paused.")
@click.option("--max-tokens", type=options.at_least(1), help="Tokens at which the job is paused.")
@click.option("--seed", type=options.at_least(0), help="Decides every random choice.")
@click.option("--tag", type=options.tag, help="The tag that gets the winner.")
@click.option("--priority", type=int, default=0, help="Higher ones go first, -100 to 100.")
@click.option("--note", default="", help="Words for people.")
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Any other change of the job, its value in JSON: `--set patience=5`.",
)
@click.option("--dry-run", "dry_run", is_flag=True, help="Use the embedded offline model.")
@click.option("--key", help="An idempotency key: the same one gives the same job again.")
@projects_option
@jobs_option
@options.json_option
def submit_command(
    prompt: str | None,
    *,
    settings: tuple[str, ...],
    key: str | None,
    projects: tuple[str, ...],
    url: str | None,
    as_json: bool,
    **given: object,
) -> None:
    """Submit a job; what does not fit is refused before it is queued."""
    named = named_projects(projects)
    if len(named) > 1:
        raise ConfigError("--project: a job is of one project; name it once")
    changes = {name: value for name, value in given.items() if value not in (None, "", 0, False)}
    changes |= _settings(settings)
    with managed(url, named) as manager:
        (project,) = named
        made = manager.submit(project, prompt, changes, key=key)
    if as_json:
        print_json({**job_json(made.job), "new": made.is_new})
        return
    state = "queued" if made.is_new else f"there already, {made.job.state}"
    echo(f"job {made.job.id} is {state}")


def _settings(given: tuple[str, ...]) -> dict[str, Json]:
    import json

    found: dict[str, Json] = {}
    for one in given:
        name, sign, text = one.partition("=")
        if not sign:
            raise ConfigError(f"--set: expected NAME=VALUE, found {one!r}")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


@jobs_command.command("list", epilog=options.examples("jobs list --state running"))
@click.option("--state", help="Only jobs in this state.")
@click.option("--prompt", help="Only jobs of this prompt.")
@click.option("--limit", type=options.at_least(1), default="20", help="How many, at most 100.")
@jobs_option
@options.json_option
def list_command(
    *, state: str | None, prompt: str | None, limit: int, url: str | None, as_json: bool
) -> None:
    """List jobs, the newest first."""
    with managed(url) as manager:
        found = manager.list(state=state, prompt=prompt, limit=limit)
    if as_json:
        print_json({"jobs": [job_json(job) for job in found]})
        return
    screen = Screen()
    screen.line(f"{counted(len(found), 'job')}", bold=True)
    if found:
        screen.table([("state", "done", "base to best", "rollouts", "job"), *map(_row, found)])


def _row(job: Job) -> tuple[str, ...]:
    status = job.status
    means = change(status.baseline, status.best) if status.baseline is not None else ""
    where = f"{job.id[:8]}  {job.project}/{job.prompt}, tag {job.tag}"
    return str(job.state), f"{job.progress:.0f} %", means, f"{status.rollouts:,}", where


@jobs_command.command("show", epilog=options.examples("jobs show 3f2a"))
@job_argument
@jobs_option
@options.json_option
def show_command(job: str, *, url: str | None, as_json: bool) -> None:
    """Show a job and its attempts."""
    with managed(url) as manager:
        found, attempts = manager.get(job), manager.attempts(job)
    if as_json:
        print_json({**job_json(found), "tries": [attrs.asdict(one) for one in attempts]})
        return
    _print_job(found)
    screen = Screen()
    for one in attempts:
        ended = "" if one.ended is None else f", {duration(one.ended - one.started)}"
        screen.line(f"attempt {one.number} by {one.worker}{ended}{_said(one.error)}")


def _said(text: str) -> str:
    return f": {text}" if text else ""


def _print_job(job: Job) -> None:
    screen, status = Screen(), job.status
    wish = f", asked to {job.wish}" if job.wish else ""
    screen.line(f"job {job.id}: {job.state}{wish}", bold=True)
    moment = datetime.fromtimestamp(job.created, UTC)
    changes = ", ".join(f"{name}={value}" for name, value in _changes(job).items())
    rows = [
        ("prompt", f"{job.project}/{job.prompt}, tag {job.tag}"),
        ("asked for", changes),
        ("created", f"{moment:%Y-%m-%d %H:%M:%SZ}"),
        ("reason", job.reason),
        ("progress", f"{job.progress:.0f} %, step {status.step}, {status.rollouts:,} rollouts"),
        ("doing", status.stage),
        ("waits for", status.waiting),
        ("validation", "" if status.baseline is None else change(status.baseline, status.best)),
        ("stored", status.revision[:12] if status.revision else status.unstored and "no"),
        ("why not", status.unstored),
        ("forked from", job.origin or ""),
    ]
    screen.fields([(name, value) for name, value in rows if value])


def _changes(job: Job) -> dict[str, Json]:
    from promptgraft.jobs.preparing import written_changes

    return written_changes(job.changes)


@jobs_command.command("events", epilog=options.examples("jobs events 3f2a --after 40"))
@job_argument
@click.option("--after", type=options.at_least(0), default="0", help="The number to go on behind.")
@jobs_option
def events_command(job: str, *, after: int, url: str | None) -> None:
    """Print the events of a job, one JSON object a line, as far as there are any."""
    with managed(url) as manager:
        while page := manager.events(job, after=after):
            after = page[-1][0]
            for _, _, line in page:
                echo(line.decode("ascii"))


@jobs_command.command("wait", epilog=options.examples("jobs wait 3f2a --timeout 3600"))
@job_argument
@click.option("--timeout", type=options.seconds, help="How long to wait; by default for ever.")
@jobs_option
@options.json_option
def wait_command(job: str, *, timeout: float | None, url: str | None, as_json: bool) -> ExitCode:
    """Wait until a job is paused or has ended; the exit code is that of its run."""
    with managed(url) as manager:
        found = manager.wait(job, timeout=timeout)
        result = manager.result(job) or {}
    if as_json:
        print_json(job_json(found))
    else:
        _print_job(found)
    reason = found.reason.partition(":")[0]
    if found.state == "completed":
        return exit_code_for(reason, improved=result.get("improved") is True)
    return ExitCode.WRONG_USE if found.state == "failed" else ExitCode.STOPPED_EARLY


def _asks(name: str, about: str) -> None:
    """Add a command that asks something of a job by the method of that name."""

    @jobs_command.command(name, help=about, epilog=options.examples(f"jobs {name} 3f2a"))
    @job_argument
    @jobs_option
    @options.json_option
    def ask(job: str, *, url: str | None, as_json: bool) -> None:
        with managed(url) as manager:
            asks = {"pause": manager.pause, "resume": manager.resume, "cancel": manager.cancel}
            found = asks[name](job)
        _print_state(found, as_json=as_json)


_asks("pause", "Pause a running job after its step.")
_asks("resume", "Let a paused job continue.")
_asks("cancel", "End a job for good; what is in flight is dropped.")


def _print_state(job: Job, *, as_json: bool) -> None:
    if as_json:
        print_json(job_json(job))
        return
    wish = f", asked to {job.wish}" if job.wish else ""
    forked = f", forked from {job.origin}" if job.origin else ""
    echo(f"job {job.id} is {job.state}{wish}{forked}")


_limits = options.together(
    click.option("--budget", type=options.at_least(1), help="Rollouts that it may use."),
    click.option("--max-cost", type=options.dollars, help="US dollars at which it is paused."),
    click.option("--max-tokens", type=options.at_least(1), help="Tokens at which it is paused."),
    click.option("--note", help="Words for people."),
)


@jobs_command.command("change", epilog=options.examples("jobs change 3f2a --budget 2000"))
@job_argument
@_limits
@jobs_option
@options.json_option
def change_command(job: str, *, url: str | None, as_json: bool, **given: object) -> None:
    """Change the limits of a job; a running one takes them up when it is resumed."""
    changes = {name: one for name, one in given.items() if one is not None}
    with managed(url) as manager:
        found = manager.change(job, changes)
    _print_state(found, as_json=as_json)


@jobs_command.command("fork", epilog=options.examples("jobs fork 3f2a --budget 2000"))
@job_argument
@_limits
@projects_option
@jobs_option
@options.json_option
def fork_command(
    job: str, *, projects: tuple[str, ...], url: str | None, as_json: bool, **given: object
) -> None:
    """Submit a job that begins with the answers of another one, with other limits."""
    changes = {name: one for name, one in given.items() if one is not None}
    with managed(url, named_projects(projects)) as manager:
        made = manager.fork(job, changes)
    _print_state(made, as_json=as_json)


@jobs_command.command("result", epilog=options.examples("jobs result 3f2a"))
@job_argument
@jobs_option
def result_command(job: str, *, url: str | None) -> None:
    """Print what came of a job as JSON, as `result.json` of a run has it."""
    with managed(url) as manager:
        found, result = manager.get(job), manager.result(job)
    if result is None:
        raise ConfigError(f"job {found.id} is {found.state}; there is no result yet")
    print_json(result)


@jobs_command.command("export", epilog=options.examples("jobs export 3f2a --runs runs"))
@job_argument
@options.runs_option
@projects_option
@jobs_option
def export_command(
    job: str, *, runs: str | None, projects: tuple[str, ...], url: str | None
) -> None:
    """Write a job as a run directory, or bring that up to date.

    `show`, `compare`, `report` and `watch` read it like any other run.
    """
    named = named_projects(projects)
    root = Path(runs) if runs is not None else runs_folder_of(next(iter(named.values())))
    with managed(url, named) as manager:
        folder = manager.mirror(job, root)
    echo(f"{relative(folder)}")


@jobs_command.command("prune", epilog=options.examples("jobs prune 3f2a 77b0"))
@click.argument("names", metavar="JOB...", nargs=-1, required=True)
@jobs_option
def prune_command(*, names: tuple[str, ...], url: str | None) -> None:
    """Remove jobs that have ended, with all that is kept of them."""
    with managed(url) as manager:
        found = [manager.get(name) for name in names]
        for job in found:
            manager.delete(job.id)
            echo(f"removed job {job.id}")


@jobs_command.command("schema", epilog=options.examples("jobs schema --jobs sqlite:///jobs.db"))
@jobs_option
def schema_command(*, url: str | None) -> None:
    """Print the SQL that makes the tables, for those who make them beforehand."""
    echo(opened(url).definition().rstrip())


def job_json(job: Job) -> dict[str, Json]:
    """Return a job as plain data."""
    plain = attrs.asdict(job, recurse=False)
    plain.pop("number")
    return {
        **plain,
        "state": str(job.state),
        "wish": str(job.wish),
        "changes": _changes(job),
        "status": attrs.asdict(job.status),
    }
