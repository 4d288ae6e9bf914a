"""``promptgraft completion``: the script with which a shell completes commands and options."""

from __future__ import annotations

import click

from promptgraft.cli.exits import ExitCode
from promptgraft.cli.options import command
from promptgraft.cli.output import echo

VARIABLE = "_PROMPTGRAFT_COMPLETE"
"""Is set by the scripts when a shell asks."""


@command(
    "completion",
    "completion bash >> ~/.bashrc",
    "completion zsh >> ~/.zshrc",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL")
def completion_command(*, shell: str) -> None:
    """Print the script that completes commands in a shell.

    It completes options, too. The shell reads it when it starts: append it to `~/.bashrc` or
    `~/.zshrc`, or write it to `~/.config/fish/completions/promptgraft.fish`.
    """
    from click.shell_completion import get_completion_class

    from promptgraft.cli.main import app

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click knows all of the choices
    complete = kind(app, {}, "promptgraft", VARIABLE)
    echo(complete.source_template % complete.source_vars())


def answer_shell(instruction: str) -> int:
    """Answer a shell that asks for completions, and return the exit code."""
    from click.shell_completion import shell_complete

    from promptgraft.cli.main import app

    shell_complete(app, {}, "promptgraft", VARIABLE, instruction)
    return ExitCode.OK
