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

    def load(self) -> click.Command:
        """Import the command."""
        import importlib

        module, _, name = self.target.partition(":")
        command: object = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)  # noqa: S101 - what the package says it is
        return command


def added_names() -> tuple[str, ...]:
    """Return the names of added commands, without importing their packages."""
    return entry_points.installed(GROUP)


def added_command(name: str) -> click.Command:
    """Return an added command.

    Raises:
        ConfigError: there is none, it cannot be imported, or it is no command.
    """
    command = _checked(entry_points.load(GROUP, name, noun="command"))
    return command.load() if isinstance(command, LateCommand) else command


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
