"""How commands end: exit codes for CI, one line on standard error, and signals."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import TYPE_CHECKING

import click

from promptgraft import errors
from promptgraft.cli.output import echo, wrapped
from promptgraft.ground import signals
from promptgraft.ground.clock import SystemClock
from promptgraft.ground.text import clip, listed, visible_line

if TYPE_CHECKING:
    from promptgraft.runtime import Cancellation


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    OK = 0
    """Improved, or done."""
    NOT_IMPROVED = 1
    """Nothing beat the baseline; for ``diff --exit-code``, there are differences."""
    WRONG_USE = 2
    """The command cannot be carried out as given; the reason is on standard error."""
    STOPPED_EARLY = 3
    """A limit was reached, or Ctrl+C was pressed."""
    PROVIDER_FAILED = 4
    """The model's provider failed."""
    INTERNAL_ERROR = 70
    """A bug in promptgraft (``EX_SOFTWARE``)."""
    CLOSED_PIPE = 141
    """The reader has closed the output (what a shell reports for ``SIGPIPE``)."""


EXPECTED = (click.ClickException, click.Abort, KeyboardInterrupt, errors.PromptgraftError, OSError)
"""Errors that commands may end with; any other is a bug in promptgraft."""


_MENDS: Mapping[int, str] = {
    errno.ENOSPC: "; make space on the disk",
    errno.EDQUOT: "; make space on the disk",
    errno.ENOENT: "; name one that exists",
    errno.ELOOP: "; name one that no circle of links leads to",
    errno.ENAMETOOLONG: "; name a shorter one",
    errno.EMFILE: "; allow more open files, as `ulimit -n 4096` does",
    errno.EROFS: "; name a path that can be written to",
    errno.EACCES: "; give yourself access to it, or name another path",
    errno.EEXIST: "; name a path below a folder",
    errno.ENOTDIR: "; name a path below a folder",
    errno.EISDIR: "; name a file",
}
"""What to do about an error of the system."""


def conclude(error: BaseException) -> ExitCode:
    """Report the error that ended a command, one line per fault, and return the exit code."""
    if isinstance(error, click.ClickException):
        complain(usage_line(error))
        return ExitCode.WRONG_USE
    if isinstance(error, errors.PromptgraftError):
        for line in error.faults if isinstance(error, errors.DataFormatError) else (str(error),):
            complain(line)
        return exit_code_of(error)
    if isinstance(error, BrokenPipeError):
        _abandon_output()
        return ExitCode.CLOSED_PIPE
    if isinstance(error, OSError):
        mend = _MENDS.get(error.errno or 0, "")
        # Without a name, a path was asked for the current folder, or the output is closed or full.
        nameless = "the current folder" if error.errno == errno.ENOENT else "the output"
        complain(f"{error.filename or nameless}: {error.strerror or error}{mend}")
        _abandon_output()
        return ExitCode.WRONG_USE
    complain("interrupted")
    return ExitCode.STOPPED_EARLY


def exit_code_of(error: errors.PromptgraftError) -> ExitCode:
    """Return the exit code of a command that ends with ``error``."""
    if isinstance(error, errors.ProviderError):
        return ExitCode.PROVIDER_FAILED
    if isinstance(error, errors.LimitReachedError):
        return ExitCode.STOPPED_EARLY
    return ExitCode.WRONG_USE


def complain(message: str) -> None:
    """Write one line of bounded length to standard error; a terminal wraps it between words."""
    line = clip(visible_line(message), errors.LONGEST_MESSAGE, around=" ")
    with contextlib.suppress(OSError):
        echo("\n".join(wrapped(f"promptgraft: {line}", sys.stderr)), error=True)


def usage_line(error: click.ClickException) -> str:
    """Return a mistake on the command line as one line that says how to fix it."""
    message = _message(error)
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return message
    # `complain` already begins every message with the name of the program.
    command = context.command_path.partition(" ")[2]
    where = f"{command}: " if command else ""
    is_missing = isinstance(error, click.MissingParameter)
    says_mend = isinstance(error, click.BadParameter) or ";" in message
    mend = f"; see `{context.command_path} --help`" if is_missing or not says_mend else ""
    return f"{where}{message}{mend}"


_ELSEWHERE = {
    "--max-evals": "`--budget`",
    "--trials": "`--budget`, which counts test calls, not steps",
    "--parallel": "`--workers`",
    "--output-dir": "`--runs`",
    "--verbose": "`--json`, which prints every event",
    "--weight": "`--weights`",
    "--reflection-model": "`--reflection`",
    "--resume": "`promptgraft resume`",
    "--reset-gepa-prompts": "`promptgraft meta`, which edits the questions",
}


_WRONG = re.compile(r"'(.*)' is not one of ")
_UNKNOWN = re.compile(r"No such command '([^']*)'")
_LISTS = {
    "RUN": "; `promptgraft runs` lists the runs",
    "JOB": "; `promptgraft jobs list` lists the jobs",
}


def _message(error: click.ClickException) -> str:
    from promptgraft.ground.serde import did_you_mean  # slow to import, and needed by mistakes only

    if isinstance(error, click.NoSuchOption):
        arguments = () if error.ctx is None else error.ctx.command.params
        if error.option_name == "--run" and any(param.name == "run" for param in arguments):
            return "no such option `--run`; name the run without it"
        near = " or ".join(f"`{name}`" for name in error.possibilities or ())
        # Options of the specification of typed functions, and of BAML's command line.
        near = _ELSEWHERE.get(error.option_name, near)
        suggestion = f" (did you mean {near}?)" if near else ""
        return f"no such option `{error.option_name}`{suggestion}"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        name = _name(error.param, error.ctx)
        help_text = getattr(error.param, "help", "") or ""
        what = f": {help_text[:1].lower()}{help_text[1:].rstrip('.')}" if help_text else ""
        return f"{name} is missing{what}{_LISTS.get(name.rstrip('.'), '')}"
    if isinstance(error, click.BadParameter) and error.param is not None:
        hint = error.param_hint
        name = hint if isinstance(hint, str) else _name(error.param, error.ctx)
        if isinstance(error.param.type, click.Choice) and (wrong := _WRONG.match(error.message)):
            choices = [str(choice) for choice in error.param.type.choices]
            near = did_you_mean(wrong[1], choices)
            return f"{name}: expected one of {listed(choices)}, found '{wrong[1]}'{near}"
        return f"{name}: {error.message}"
    message = error.format_message().rstrip(".")
    group = error.ctx.command if isinstance(error, click.UsageError) and error.ctx else None
    if isinstance(group, click.Group) and (unknown := _UNKNOWN.match(message)):
        names = sorted(group.commands)
        near = did_you_mean(unknown[1], names)
        return f"no such command `{unknown[1]}`{near}; there: {listed(names)}"
    return message[:1].lower() + message[1:]


def _name(parameter: click.Parameter, context: click.Context | None) -> str:
    return parameter.get_error_hint(context).replace("'", "").strip("[]")


def _abandon_output() -> None:
    """Discard buffered output, so that the interpreter exits without another error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            # At exit the interpreter flushes both streams, and would print a traceback if it fails.
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


_REASONS: dict[int, str] = {
    signal.SIGINT: "interrupted (Ctrl+C)",
    signal.SIGTERM: "asked to end (SIGTERM)",
}


def handling_signals(act: Callable[[int, object], None]) -> AbstractContextManager[None]:
    """Return a context in which SIGINT and SIGTERM call ``act`` in the main thread."""
    return signals.handling(_REASONS, act)


@contextlib.contextmanager
def cancelled_by_signals() -> Iterator[Cancellation]:
    """Yield a cancellation that SIGINT (Ctrl+C) and SIGTERM set.

    A second signal ends the process at once, unless it repeats the first within half a second. No
    answer is lost: each is in the journal before it is used. Outside the main thread, where Python
    delivers no signals, the cancellation is never set.
    """
    from promptgraft.runtime import Cancellation

    cancellation = Cancellation()
    if threading.current_thread() is not threading.main_thread():
        yield cancellation
        return

    def stop(number: int, _: object = None) -> None:
        cancellation.set(_REASONS[number])

    # Handlers run in the main thread, which may be stuck in a call that never returns. The
    # watcher reads signal numbers from the wakeup descriptor and need not wait for it.
    reading, writing = os.pipe()
    # Required by Python: a full pipe must not block the signal handler.
    os.set_blocking(writing, False)
    watcher = threading.Thread(target=_watch, args=(reading, stop), daemon=True)
    with handling_signals(stop):
        watcher.start()
        # Python runs handlers in the main thread only, which may be stuck in a call; this pipe is
        # written at once.
        woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        try:
            yield cancellation
        finally:
            signal.set_wakeup_fd(woken)
            os.close(writing)
            watcher.join()
            os.close(reading)


# `timeout` signals a process and then its group; `npm` and `uv run` pass on the Ctrl+C that the
# process has got from the terminal already.
_ECHO_SECONDS = 0.5


def _watch(reading: int, stop: Callable[[int], None]) -> None:
    clock, first, echoes_end = SystemClock(), 0, 0.0
    while byte := os.read(reading, 1):
        if byte[0] not in _REASONS or (byte[0] == first and clock.monotonic() < echoes_end):
            continue
        if first:
            _end_at_once()
        stop(byte[0])
        first, echoes_end = byte[0], clock.monotonic() + _ECHO_SECONDS


def _end_at_once() -> None:
    # `print` could block on a lock that a stuck thread holds, and `write` on a full pipe.
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, b"promptgraft: interrupted again, ended at once\n")
    os._exit(ExitCode.STOPPED_EARLY)
