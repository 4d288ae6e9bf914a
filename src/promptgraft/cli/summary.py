"""Output shared by commands that make, follow and list runs: means, exit code, next command."""

from __future__ import annotations

from promptgraft.cli.exits import ExitCode
from promptgraft.cli.output import Screen, program
from promptgraft.ground.text import difference, score
from promptgraft.search.scores import Score
from promptgraft.search.stopping import StopReason, is_early


def exit_code_for(stop_reason: str, *, improved: bool) -> ExitCode:
    """Return the exit code of a command about a run that ended for ``stop_reason``."""
    if stop_reason == StopReason.PROVIDER_FAILED:
        return ExitCode.PROVIDER_FAILED
    if is_early(stop_reason):
        return ExitCode.STOPPED_EARLY
    return ExitCode.OK if improved else ExitCode.NOT_IMPROVED


def means_row(
    before: Score, after: Score, *, estimated: tuple[bool, bool] = (False, False)
) -> tuple[str, str, str]:
    """Return two means and their difference as cells of a table; estimates are marked."""
    gain = difference(before, after, estimated=estimated)
    return score(before, estimated=estimated[0]), score(after, estimated=estimated[1]), gain


def print_next(screen: Screen, command: str) -> None:
    """Print the command that most people want next, so that it can be copied."""
    screen.line()
    screen.line("Next:", bold=True)
    start = program()
    lines = (line.removeprefix("promptgraft ") for line in command.split("\n"))
    screen.body("\n".join(f"{start} {line}" for line in lines))
