"""``promptgraft meta``: the group of commands."""

from __future__ import annotations

import click

from promptgraft.cli.meta.changing import apply_command, reset_command
from promptgraft.cli.meta.looking import diff_command, list_command
from promptgraft.cli.meta.writing import FOLDER, write_command
from promptgraft.cli.options import examples


@click.group(
    "meta",
    epilog=examples(
        "promptgraft meta list",
        f"promptgraft meta write {FOLDER}",
        f"promptgraft meta diff {FOLDER}",
        f"promptgraft meta apply {FOLDER}",
        "promptgraft meta reset",
    ),
)
def command() -> None:
    """Change the questions that the reflection model is asked.

    They are prompts of the namespace `promptgraft/gepa`, and a store may override them like
    any other prompt.
    """


for _command in (list_command, write_command, diff_command, apply_command, reset_command):
    command.add_command(_command)
