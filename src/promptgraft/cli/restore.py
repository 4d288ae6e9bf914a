"""``promptgraft restore``: settle by hand what a run that was interrupted has left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import click

from promptgraft.agents.sources import CallbackSource
from promptgraft.agents.writing import RECORD, SourceWriter
from promptgraft.cli import options
from promptgraft.cli.choosing import in_project, opened_project
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.output import Screen
from promptgraft.files import nearest_folder
from promptgraft.project.agents import callbacks_of
from promptgraft.project.format_agents import TextsConfig
from promptgraft.project.python_source import beside


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
    with _writer(project) as writer:
        record = writer.recorded()
        if record is not None:
            with writer.locked():
                if keep:
                    writer.end()
                else:
                    writer.settle(overwrite=overwrite)
    screen = Screen()
    if record is None:
        screen.line("there is nothing to restore")
        return ExitCode.OK
    done = "kept" if keep else "put back" if record.goal == "old" else "written"
    screen.fields([(done, text.where) for text in record.texts])
    return ExitCode.OK


@contextlib.contextmanager
def _writer(project: str | None) -> Iterator[SourceWriter]:
    """Give what writes the sources of the project, or of the folder that a program has left."""
    if not in_project(project):
        folder = nearest_folder(RECORD) or Path()
        yield SourceWriter(folder.resolve(), None)
        return
    found = opened_project(project)
    stored: dict[str, CallbackSource] = {}
    with beside(found.folder):
        for name, spec in found.config.prompts.items():
            if isinstance(spec, TextsConfig):
                path = ("prompts", name, "callbacks")
                stored.update(callbacks_of(spec, path, found.surroundings))
        yield SourceWriter(found.folder.resolve(), stored)
