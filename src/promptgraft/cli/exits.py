"""How commands end: exit codes that CI can use, and one line on standard error."""

from __future__ import annotations

import contextlib
import os
import sys
from enum import IntEnum

import click

from promptgraft.cli.output import echo
from promptgraft.errors import (
    LONGEST_MESSAGE,
    DataFormatError,
    LimitReachedError,
    PromptgraftError,
    ProviderError,
)
from promptgraft.text import clip, visible_line


class ExitCode(IntEnum):
    """What a command says of its outcome."""

    OK = 0
    """Improved, or done."""
    NOT_IMPROVED = 1
    """Nothing beat the baseline; with ``diff --exit-code``: there are differences."""
    WRONG_USE = 2
    """The command cannot be carried out as given; standard error says why."""
    STOPPED_EARLY = 3
    """A limit was reached, or Ctrl+C was pressed."""
    PROVIDER_FAILED = 4
    """The model's provider failed."""
    INTERNAL_ERROR = 70
    """promptgraft itself is wrong (``EX_SOFTWARE``)."""
    CLOSED_PIPE = 141
    """The output is no longer read (what a shell reports for ``SIGPIPE``)."""


EXPECTED = (click.ClickException, click.Abort, KeyboardInterrupt, PromptgraftError, OSError)
"""What a command may end with; everything else is a fault in promptgraft."""


def conclude(error: BaseException) -> ExitCode:
    """Say why a command ended, a line for each fault, and return the exit code."""
    if isinstance(error, click.ClickException):
        complain(usage_line(error))
        return ExitCode.WRONG_USE
    if isinstance(error, PromptgraftError):
        for line in error.faults if isinstance(error, DataFormatError) else (str(error),):
            complain(line)
        return exit_code_of(error)
    if isinstance(error, BrokenPipeError):
        _abandon_output()
        return ExitCode.CLOSED_PIPE
    if isinstance(error, OSError):
        complain(f"{error.filename or 'the output'}: {error.strerror or error}")
        _abandon_output()
        return ExitCode.WRONG_USE
    complain("interrupted")
    return ExitCode.STOPPED_EARLY


def exit_code_of(error: PromptgraftError) -> ExitCode:
    """Return the exit code of a command that ends with ``error``."""
    if isinstance(error, ProviderError):
        return ExitCode.PROVIDER_FAILED
    if isinstance(error, LimitReachedError):
        return ExitCode.STOPPED_EARLY
    return ExitCode.WRONG_USE


def complain(message: str) -> None:
    """Write one line of bounded length to standard error, whatever the message holds."""
    line = clip(visible_line(message), LONGEST_MESSAGE, around=" ")
    with contextlib.suppress(OSError):
        echo(f"promptgraft: {line}", error=True)


def usage_line(error: click.ClickException) -> str:
    """Return a mistake on the command line as one line that names the mend."""
    message = _message(error)
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return message
    # The name of the program stands before every message already.
    command = context.command_path.partition(" ")[2]
    where = f"{command}: " if command else ""
    is_missing = isinstance(error, click.MissingParameter)
    says_mend = isinstance(error, click.BadParameter) or ";" in message
    mend = f"; see `{context.command_path} --help`" if is_missing or not says_mend else ""
    return f"{where}{message}{mend}"


def _message(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):
        near = " or ".join(f"`{name}`" for name in error.possibilities or ())
        asked = f" (did you mean {near}?)" if near else ""
        return f"no such option `{error.option_name}`{asked}"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return f"{_name(error.param, error.ctx)} is missing"
    if isinstance(error, click.BadParameter) and error.param is not None:
        hint = error.param_hint
        name = hint if isinstance(hint, str) else _name(error.param, error.ctx)
        return f"{name}: {error.message}"
    message = error.format_message().rstrip(".")
    return message[:1].lower() + message[1:]


def _name(parameter: click.Parameter, context: click.Context | None) -> str:
    return parameter.get_error_hint(context).replace("'", "").strip("[]")


def _abandon_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter ends without another error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
