"""``promptgraft restore``: settle by hand what a run that was interrupted has left."""

from __future__ import annotations

import click

from promptgraft.agents.sources import CallbackSource
from promptgraft.agents.writing import SourceWriter
from promptgraft.cli import options
from promptgraft.cli.choosing import opened_project
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.output import Screen
from promptgraft.project.format_sources import TextsConfig
from promptgraft.project.python_source import beside
from promptgraft.project.sources import callbacks_of


@options.command("restore", "restore", "restore --overwrite", "restore --keep")
@click.option("--overwrite", is_flag=True, help="Also put back what something else has written.")
@click.option("--keep", is_flag=True, help="Leave every text as it is now, for good.")
@options.project_option
def restore_command(*, overwrite: bool, keep: bool, project: str | None) -> ExitCode:
    """Put back the texts that an interrupted run has left in files and callbacks.

    A run with `delivery: live`, or a write of a winner, that was killed is settled by the next
    command by itself. This does it by hand, and decides what is to become of texts that
    something else has written meanwhile: without an option they stay as they are, and the
    command ends with 2.
    """
    if overwrite and keep:
        raise click.UsageError("--overwrite and --keep exclude each other; leave one out")
    found = opened_project(project)
    stored: dict[str, CallbackSource] = {}
    with beside(found.folder):
        for name, spec in found.config.prompts.items():
            if isinstance(spec, TextsConfig):
                path = ("prompts", name, "callbacks")
                stored.update(callbacks_of(spec, path, found.surroundings))
        writer, screen = SourceWriter(found.folder.resolve(), stored), Screen()
        with writer.locked():
            if keep:
                left = writer.recorded()
                settled = tuple(text.where for text in left.texts) if left else ()
                writer.end()
            else:
                settled = writer.settle(overwrite=overwrite)
    if not settled:
        screen.line("there is nothing to restore")
    screen.fields([("kept" if keep else "restored", where) for where in settled])
    return ExitCode.OK
