"""The command line as a whole: its commands, and the boundary where errors become lines."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from promptgraft import __version__
from promptgraft.cli.exits import EXPECTED, ExitCode, complain, conclude
from promptgraft.cli.options import examples
from promptgraft.cli.output import echo, spell_for_encoding
from promptgraft.errors import CallerError, PromptgraftError
from promptgraft.files import nearest_folder
from promptgraft.text import raised
from promptgraft.under_way import left_behind

_GRACE = 0.5
"""Seconds that what is left of a command is given to end."""

# Modules are imported when their command is used: the help must come at once.
_COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("demo", "Improve an example prompt now, without a key or a network."),
    "init": ("project", "Create a project that runs at once."),
    "import": ("importing", "Make a project out of what another tool has."),
    "check": ("project", "Check a project without calling a model."),
    "plan": ("project", "Show what a run is expected to use, and at most."),
    "optimize": ("optimize", "Improve a prompt of the project."),
    "resume": ("optimize", "Resume a run."),
    "describe": ("describe", "List the nodes, edges and parts of a graph."),
    "runs": ("runs", "List the runs."),
    "watch": ("runs", "Follow a run of another process."),
    "report": ("runs", "Write a run as one HTML file."),
    "compare": ("runs", "Show two runs side by side."),
    "apply": ("apply", "Apply the winner of a run to the store or the source."),
    "restore": (
        "restore",
        "Put back the texts that an interrupted run has left in files and callbacks.",
    ),
    "eval": ("eval", "Evaluate a prompt on its cases as a gate for CI."),
    "render": ("render", "Print the prompt in force as a model receives it."),
    "export": ("render", "Print the prompt in force as a template."),
    "show": ("show", "Show a run, or the overrides that a store holds."),
    "diff": ("revisions", "Show what overrides change."),
    "history": ("revisions", "List every revision of a tag."),
    "rollback": ("revisions", "Point a tag at an earlier revision."),
    "tag": ("revisions", "Copy what another tag holds to the tag NAME."),
    "meta": (
        "meta",
        "Change the questions that the reflection model and the simulated user are asked.",
    ),
    "jobs": ("jobs", "Submit optimization jobs to a database or a server, and look after them."),
    "worker": ("worker", "Carry out the jobs of a project."),
    "serve": ("serve", "Serve jobs over HTTP, with a dashboard."),
    "tokens": ("serve", "Make, list and revoke the tokens of a server."),
    "docs": ("project", "Print a page of the documentation."),
    "completion": ("completion", "Print the script that completes commands in a shell."),
}
"""The commands with the module that has them and a summary, in the order of the help."""


class _LazyGroup(click.Group):
    """Knows its commands by name and imports them when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"promptgraft.cli.{_COMMANDS[cmd_name][0]}")
        command: object = getattr(module, f"{cmd_name}_command")
        return command if isinstance(command, click.Command) else None

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        # Without an import of each command, for which a shell would wait.
        items = [
            click.shell_completion.CompletionItem(name, help=summary)
            for name, (_, summary) in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            from promptgraft.serde import did_you_mean

            ctx.fail(f"no such command `{name}`{did_you_mean(name, list(_COMMANDS))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


@click.group(
    cls=_LazyGroup,
    name="promptgraft",
    invoke_without_command=True,
    epilog=examples("demo", "show", "COMMAND --help"),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="promptgraft %(version)s")
@click.pass_context
def app(context: click.Context) -> None:
    """Improve the prompts of AI agents on real examples.

    Winners are kept as overrides in a folder `.promptgraft`: you can read them, compare
    them and take them back. The source of a prompt changes only with
    `promptgraft apply --to-source`.
    """
    if context.invoked_subcommand is None:
        echo(context.get_help())
    elif context.invoked_subcommand != "restore":
        _settle_left_over()


def _settle_left_over() -> None:
    """Settle, before anything else, what a command that was killed has left in the project here."""
    folder = nearest_folder(Path(".promptgraft", "sources.json"))
    if folder is not None:
        from promptgraft.agents.writing import settle_left_over

        # What runs now in another process, or cannot be settled, stops what reads the texts.
        with contextlib.suppress(PromptgraftError, OSError):
            if settled := settle_left_over(folder.resolve(), None):
                complain(settled)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors become one line."""
    try:
        return _invoke(arguments)
    except EXPECTED as error:
        return conclude(error)
    except Exception as error:  # noqa: BLE001 - the end of the process; 1 would mean "not improved"
        from promptgraft.functions import place_of  # what it takes to read code takes its time

        if place := place_of(error, innermost=True):
            return conclude(CallerError(f"{place} raised {raised(error)}"))
        traceback.print_exc()
        complain("this is a fault in promptgraft; please report it with the lines above")
        return ExitCode.INTERNAL_ERROR


def _invoke(arguments: Sequence[str]) -> int:
    try:
        with app.make_context("promptgraft", list(arguments)) as context:
            code: int | None = app.invoke(context)
    except click.exceptions.Exit as exit_:
        code = exit_.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        echo(str(error.message))
        code = ExitCode.OK
    if sys.stdout is not None:
        sys.stdout.flush()
    return code or ExitCode.OK


def main() -> None:
    """Run the command line of this process, and leave behind what does not end."""
    # Imports make objects by the hundred thousand, all of which stay: no garbage is among them.
    gc.set_threshold(100_000, 50, 50)
    spell_for_encoding(sys.stdout, sys.stderr)
    if asked := os.environ.get("_PROMPTGRAFT_COMPLETE"):
        from promptgraft.cli.completion import answer_shell

        sys.exit(answer_shell(asked))
    code = run(sys.argv[1:])
    left = left_behind(_GRACE)
    if not left:
        sys.exit(code)
    complain(f"left behind, as it does not end: {'; '.join(left)}")
    os._exit(code)
