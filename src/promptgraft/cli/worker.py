"""``promptgraft worker``: carries out the jobs of a database."""

from __future__ import annotations

import click

from promptgraft.cli import options
from promptgraft.cli.job_options import (
    jobs_option,
    managed,
    named_projects,
    projects_option,
    sending,
    webhooks_option,
)
from promptgraft.cli.output import echo
from promptgraft.cli.signals import handled


@options.command("worker", "worker --jobs sqlite:///jobs.db", "worker --processes 4 --until-idle")
@click.option("--processes", type=options.at_least(1), default="1", help="Jobs side by side.")
@click.option("--until-idle", is_flag=True, help="End when nothing is left to do.")
@click.option(
    "--calls",
    type=options.at_least(1),
    help="Model calls in flight at an account, for all processes of this worker; by default they "
    "find out what the account allows.",
)
@click.option("--name", help="How the worker is shown; by default host and process.")
@webhooks_option
@projects_option
@jobs_option
def worker_command(
    *,
    processes: int,
    until_idle: bool,
    name: str | None,
    calls: int | None,
    webhooks: str | None,
    projects: tuple[str, ...],
    url: str | None,
) -> None:
    """Carry out the jobs of a project.

    Each runs in a process of its own, until the worker is asked to end. SIGTERM and Ctrl+C pause
    the jobs after their step and put them back.
    """
    named = named_projects(projects)
    with managed(url, named) as manager, sending(manager, webhooks):
        from promptgraft.jobs import Worker

        worker = Worker(manager, processes=processes, name=name, calls=calls)
        with handled(lambda *_: worker.stop()):
            echo(f"worker for {', '.join(named)}", error=True)
            worker.run(until_idle=until_idle)
