"""``promptgraft demo``: the options. Its implementation is imported when it runs."""

from __future__ import annotations

from typing import Unpack

import click

from promptgraft.cli import options
from promptgraft.cli.exits import ExitCode


@options.command("demo", "demo", "demo --seed 7 --store /tmp/demo", "demo --json --quiet")
@click.option(
    "--seed",
    default="0",
    show_default=True,
    type=options.at_least(0),
    help="Seed of every random choice: the same seed gives the same winner.",
)
@click.option(
    "--budget",
    type=options.at_least(1),
    help="Test calls that may be made: one case tried with one text each; by default as in the "
    "example.",
)
@options.workers_option
@click.option(
    "--store",
    metavar="DIR",
    help="The folder of `.promptgraft`; by default the nearest one here or above that has it, else "
    "the root of the repository, else the current folder.",
)
@click.option(
    "--tag",
    default="triage-demo",
    show_default=True,
    type=options.tag,
    help="The tag that the winner is stored under.",
)
@click.option(
    "--journal",
    metavar="FILE",
    help="Record every answer in this file; after an interruption, the same command resumes.",
)
@options.json_option
@options.quiet_option
def demo_command(*, as_json: bool, quiet: bool, **given: Unpack[options.DemoOptions]) -> ExitCode:
    """Improve an example prompt, without an API key or a network.

    Runs GEPA on a prompt that triages support tickets, with the embedded offline model. Measures
    the winner on tickets that the search never saw, and stores it under a tag of a local store.
    Earlier overrides under the tag are replaced, but stay in its history.
    """
    from promptgraft.cli.demo_run import demonstrate

    return demonstrate(given, as_json=as_json, quiet=quiet)
