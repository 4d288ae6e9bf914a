"""The command line as a whole: its commands, and the boundary where errors become messages."""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from promptgraft import __version__
from promptgraft.cli.exits import EXPECTED, ExitCode, complain, conclude
from promptgraft.cli.options import command, examples
from promptgraft.cli.output import echo, spell_for_encoding
from promptgraft.errors import CallerError, PromptgraftError
from promptgraft.ground.files import nearest_folder
from promptgraft.ground.text import raised, visible, visible_line
from promptgraft.ground.under_way import left_behind

_GRACE = 0.5
"""Seconds that threads have to finish after their command has ended."""

_COMPLETE = "_PROMPTGRAFT_COMPLETE"
"""The environment variable by which completion scripts ask for completions."""

# Each module is imported when its command is used, so that `--help` is fast.
_COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("demo", "Improve an example prompt, without an API key or a network."),
    "init": ("project", "Create a project that is ready to run."),
    "import": ("importing", "Convert files of another tool into a project, or unpack a run."),
    "check": ("project", "Check a project without calling a model."),
    "plan": ("project", "Show the expected and the maximum usage of a run."),
    "optimize": ("optimize", "Improve a prompt of the project."),
    "resume": ("optimize", "Resume a run."),
    "replay": ("replaying", "Run a run again from its journal, without a call."),
    "describe": ("render", "List the nodes, edges and parts of a prompt or graph."),
    "runs": ("runs", "List the runs."),
    "watch": ("runs", "Follow a run in another process."),
    "report": ("runs", "Write the HTML report of a run."),
    "compare": ("runs", "Compare two runs side by side."),
    "apply": ("apply", "Apply the winner of a run to the store or the source."),
    "restore": (
        "apply",
        "Restore the texts that an interrupted run has replaced in files and callbacks.",
    ),
    "eval": ("eval", "Evaluate a prompt on its cases as a gate for CI."),
    "render": ("render", "Print the prompt in force as a model receives it."),
    "export": ("render", "Print the prompt in force as a template, or pack a run."),
    "show": ("show", "Show a run, or the overrides in a store."),
    "diff": ("revisions", "Show what overrides change."),
    "history": ("revisions", "List every revision of a tag."),
    "rollback": ("revisions", "Point a tag at an earlier revision."),
    "tag": ("revisions", "Point the tag NAME at a revision of another tag."),
    "meta": ("meta", "Change the meta-prompts for the reflection model and the simulated user."),
    "docs": ("project", "Print a page of the documentation."),
    "completion": ("main", "Print a shell completion script."),
}
"""The module and the summary of each command of the core, in the order of the help."""


_WRITERS = frozenset({"optimize", "resume", "eval", "apply"})
"""Commands that may write to the sources of a project, and complete an interrupted write."""


class _LazyGroup(click.Group):
    """A group that imports each command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *_added()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS:
            module = importlib.import_module(f"promptgraft.cli.{_COMMANDS[cmd_name][0]}")
            command: object = getattr(module, f"{cmd_name}_command")
            return command if isinstance(command, click.Command) else None
        from promptgraft.cli.adding import added_command

        return added_command(cmd_name) if cmd_name in _added() else None

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        # The inherited method would import every command while the shell waits.
        items = [
            click.shell_completion.CompletionItem(name, help=summary)
            for name, summary in _summaries().items()
            if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-") and name not in _added():
            from promptgraft.ground.serde import did_you_mean

            ctx.fail(f"no such command `{name}`{did_you_mean(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            summaries = _summaries()
            formatter.write_dl([(name, summaries[name]) for name in self.list_commands(ctx)])


def _added() -> tuple[str, ...]:
    """Return the names of the commands that packages add, of ours the service's."""
    from promptgraft.cli.adding import added_names  # entry points take 30 ms to read

    return tuple(name for name in added_names() if name not in _COMMANDS)


def _summaries() -> dict[str, str]:
    from promptgraft.cli.adding import added_summaries

    core = {name: summary for name, (_, summary) in _COMMANDS.items()}
    return {**added_summaries(), **core}


@click.group(
    cls=_LazyGroup,
    name="promptgraft",
    invoke_without_command=True,
    epilog=examples("demo", "init mine", "optimize", "apply", "COMMAND --help"),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="promptgraft %(version)s")
@click.pass_context
def app(context: click.Context) -> None:
    """Improve the prompts of AI agents on real examples.

    Begin with `promptgraft init`, which makes a project, and `promptgraft optimize`: it tries new
    texts of the prompt on your examples, and tests the best on examples that chose nothing.

    `promptgraft apply` keeps that text as an override, in place of the source's, in a folder
    `.promptgraft`, where you can read, compare and revert it. The source changes only with
    `promptgraft apply --to-source`.
    """
    if context.invoked_subcommand is None:
        echo(context.get_help())
    elif context.invoked_subcommand != "restore":
        _mind_left_over(settles=context.invoked_subcommand in _WRITERS)


def _mind_left_over(*, settles: bool) -> None:
    """Finish, undo or mention what a killed command left half written in the project here.

    Args:
        settles: whether the command may write; others only mention it.
    """
    folder = nearest_folder(Path(".promptgraft", "sources.json"))
    if folder is None:
        return
    from promptgraft.agents import writing

    # If another process is still at work, or settling fails, the commands that read these
    # texts report it themselves; the others are not affected.
    with contextlib.suppress(PromptgraftError, OSError):
        here = folder.resolve()
        if line := writing.settle_left_over(here, None) if settles else writing.left_over(here):
            complain(line)


@command("completion", "completion bash >> ~/.bashrc", "completion zsh >> ~/.zshrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL")
def completion_command(*, shell: str) -> None:
    """Print a shell completion script.

    It completes commands and options. The shell reads it at startup: append it to `~/.bashrc` or
    `~/.zshrc`, or write it to `~/.config/fish/completions/promptgraft.fish`.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click knows all of the choices
    complete = kind(app, {}, "promptgraft", _COMPLETE)
    echo(complete.source_template % complete.source_vars())


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors become one line."""
    try:
        return _invoke(arguments)
    except EXPECTED as error:
        return conclude(error)
    # The end of the process, where 1 would mean "not improved".
    except (Exception, GeneratorExit) as error:  # noqa: BLE001
        from promptgraft.ground.functions import place_of  # slow to import, and seldom needed

        if place := place_of(error, innermost=True):
            return conclude(CallerError(f"{place} raised {raised(error)}"))
        echo(visible(traceback.format_exc()).removesuffix("\n"), error=True)
        complain("this is a bug in promptgraft; please report it with the lines above")
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


class _VisibleLines(logging.Formatter):
    """Formats messages, which may hold texts of others, as lines without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        line = visible_line(record.getMessage())
        return (
            f"{line}\n{visible(self.formatException(record.exc_info))}" if record.exc_info else line
        )


def main() -> None:
    """Run the command line of this process, and exit without waiting for stuck threads."""
    # Imports create hundreds of thousands of objects that all stay alive, so collecting is futile.
    gc.set_threshold(100_000, 50, 50)
    spell_for_encoding(sys.stdout, sys.stderr)
    if logging.lastResort is not None:  # prints warnings of code that sets up no logs
        logging.lastResort.setFormatter(_VisibleLines())
    if instruction := os.environ.get(_COMPLETE):
        from click.shell_completion import shell_complete

        shell_complete(app, {}, "promptgraft", _COMPLETE, instruction)
        sys.exit(ExitCode.OK)
    code = run(sys.argv[1:])
    work_left = left_behind(_GRACE)
    if not work_left:
        loader = sys.modules.get("promptgraft.project.python_source")
        if loader is None or not loader.has_run_code():
            # The interpreter would look for garbage in all that was imported. It has to in code of
            # the user: a file in a cycle of objects is written out when that is found.
            gc.freeze()
        sys.exit(code)
    complain(f"exiting without waiting for: {'; '.join(work_left)}")
    # `sys.exit` would join threads that hang in a user's code or a call.
    os._exit(code)
