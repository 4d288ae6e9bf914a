"""Commands that installed packages add to ``promptgraft``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from promptgraft.errors import ConfigError
from promptgraft.ground import entry_points

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "promptgraft.commands"
"""The entry point group of commands: each a ``click.Command``, or a :class:`LateCommand`."""


class LateCommand(NamedTuple):
    """A command that is imported when it is used, so that ``promptgraft --help`` is fast.

    Attributes:
        target: where the command is, as ``module:ATTRIBUTE``.
        summary: what it does, in one line of the help.
    """

    target: str
    summary: str


def added_names() -> tuple[str, ...]:
    """Return the names of added commands, without importing their packages."""
    return entry_points.installed(GROUP)


def added_command(name: str) -> click.Command:
    """Return an added command.

    Raises:
        ConfigError: there is none, it cannot be imported, or it is no command.
    """
    command = _checked(entry_points.load(GROUP, name, noun="command"))
    if not isinstance(command, LateCommand):
        return command
    from importlib.metadata import EntryPoint

    offer = entry_points.imported(EntryPoint(name, command.target, GROUP), "command")
    if isinstance(offer.value, click.Command):
        return offer.value
    raise offer.unfit("a click.Command")


def added_summaries() -> dict[str, str]:
    """Return the summary of each added command, or why there is none, for the help."""
    return {name: _summary(point) for name, point in entry_points.members(GROUP).items()}


def _summary(point: EntryPoint) -> str:
    try:
        command = _checked(entry_points.imported(point, "command"))
    except ConfigError as error:
        return f"({error})"
    if isinstance(command, LateCommand):
        return command.summary
    return command.get_short_help_str(limit=100)


def _checked(offer: entry_points.Offer) -> click.Command | LateCommand:
    if isinstance(offer.value, (click.Command, LateCommand)):
        return offer.value
    raise offer.unfit("a click.Command or a LateCommand")
