"""``promptgraft jobs datasets``: the data sets of projects, in a database or on a server."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import attrs
import click

from promptgraft.cli import options
from promptgraft.cli.output import Screen, echo, print_json
from promptgraft.service.commands.options import JobsPlace, place_options, projects_option


@click.group(
    "datasets",
    epilog=options.examples(
        "jobs datasets save hard cases.csv",
        "jobs datasets list",
        "jobs submit triage --dataset hard",
    ),
)
def datasets_command() -> None:
    """Save, list and print the data sets of a project.

    A job uses one with `--dataset NAME`, instead of the cases in the file of its project.
    """


@datasets_command.command("save", epilog=options.examples("jobs datasets save hard cases.csv"))
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path))
@projects_option
@place_options
def save_command(name: str, file: Path, *, projects: tuple[str, ...], place: JobsPlace) -> None:
    """Save the cases in FILE under NAME, as the latest revision of that data set."""
    project = place.project(projects)
    with place.opened(projects, creates=True) as jobs:
        saved = jobs.save_dataset(project, name, file)
    echo(f"data set {saved.id}: revision {saved.number}, {saved.cases:,} cases")


@datasets_command.command("list", epilog=options.examples("jobs datasets list --json"))
@click.argument("name", required=False)
@projects_option
@place_options
@options.json_option
def list_command(
    name: str | None, *, projects: tuple[str, ...], place: JobsPlace, as_json: bool
) -> None:
    """List the data sets of a project, or the revisions of the data set NAME."""
    project = place.project(projects)
    with place.opened(projects) as jobs:
        rows = jobs.dataset_history(project, name) if name else jobs.datasets(project)
    if as_json:
        print_json({"datasets": [{**attrs.asdict(row), "id": row.id} for row in rows]})
        return
    table = [
        (
            row.name,
            str(row.number),
            f"{row.cases:,}",
            f"{datetime.fromtimestamp(row.created, UTC):%Y-%m-%d %H:%MZ}",
            f"{row.digest[:12]}{row.author and f' by {row.author}'}",
        )
        for row in rows
    ]
    Screen().table([("name", "revision", "cases", "saved", "digest"), *table])


@datasets_command.command("show", epilog=options.examples("jobs datasets show hard > hard.jsonl"))
@click.argument("which", metavar="NAME[@DIGEST]")
@projects_option
@place_options
def show_command(which: str, *, projects: tuple[str, ...], place: JobsPlace) -> None:
    """Print the cases of a data set, a JSON object per line."""
    project = place.project(projects)
    with place.opened(projects) as jobs:
        text = jobs.dataset(project, which).text
    echo(text.rstrip("\n"))
