"""``promptgraft demo``: its options; what it does is imported when it is done."""

from __future__ import annotations

from typing import TypedDict, Unpack

import click

from promptgraft.cli.exits import ExitCode
from promptgraft.cli.options import (
    at_least,
    command,
    json_option,
    quiet_option,
    tag,
    workers_option,
)


class DemoOptions(TypedDict):
    """What the command line asks for."""

    seed: int
    budget: int | None
    workers: int | None
    store: str | None
    tag: str
    journal: str | None


@command("demo", "demo", "demo --seed 7 --store /tmp/demo", "demo --json --quiet")
@click.option(
    "--seed",
    default="0",
    show_default=True,
    type=at_least(0),
    help="Decides every random choice: the same seed, the same winner.",
)
@click.option(
    "--budget", type=at_least(1), help="Rollouts that may be used; by default those of the example."
)
@workers_option
@click.option(
    "--store",
    metavar="DIR",
    help="The folder that `.promptgraft` is made in; by default the nearest one upwards that "
    "has it, or the root of the repository, or the current folder.",
)
@click.option(
    "--tag",
    default="triage-demo",
    show_default=True,
    type=tag,
    help="The tag that gets the winner.",
)
@click.option(
    "--journal",
    metavar="FILE",
    help="Keep every answer, so that the same command resumes after an interruption.",
)
@json_option
@quiet_option
def demo_command(*, as_json: bool, quiet: bool, **given: Unpack[DemoOptions]) -> ExitCode:
    """Improve an example prompt now, without a key or a network.

    Runs GEPA on a support-ticket triage prompt with the embedded offline model, measures
    the winner on tickets that the search never saw, and keeps it under a tag of a local
    store. What the tag held before is replaced; its history stays.
    """
    from promptgraft.cli.demo_run import demonstrate

    return demonstrate(given, as_json=as_json, quiet=quiet)
