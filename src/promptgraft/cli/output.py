"""Standard output: text for people, or one JSON document for machines."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence

import click

from promptgraft.cli.text import visible, visible_line
from promptgraft.overrides import PartDiff

_DIFF_STYLES: Mapping[str, str] = {"+": "green", "-": "red", "@": "cyan"}
_INDENT = "  "


def is_plain_terminal(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether terminals are asked for text without colours and movements."""
    return environment.get("TERM", "") in ("dumb", "unknown")


def print_json(document: object) -> None:
    """Print one JSON document; in ASCII, so that every locale can carry it."""
    click.echo(json.dumps(document, indent=2))


def _stripped(text: str | None) -> str:
    return (text or "").rstrip("\n")


class Screen:
    """Prints text for people; colours only on a terminal that wants them.

    Every text is made :func:`~promptgraft.cli.text.visible` here and nowhere else.
    """

    def __init__(self) -> None:
        self._terminal = sys.stdout is not None and sys.stdout.isatty()
        self._color = self._terminal and not is_plain_terminal() and not os.environ.get("NO_COLOR")

    def line(self, text: str = "", *, color: str | None = None, bold: bool = False) -> None:
        """Print one line."""
        self._print(visible_line(text), color=color, bold=bold)

    def fields(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print names and values, the values below each other; wrapped on a terminal."""
        width = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            line = f"{name:{width}}  {visible_line(value)}".rstrip()
            for part in self._wrapped(line, width + 2):
                self._print(part)

    def body(self, text: str) -> None:
        """Print a text of several lines, indented."""
        for line in visible(text).split("\n"):
            self._print(f"{_INDENT}{line}".rstrip())

    def diff(self, part: PartDiff) -> None:
        """Print the unified diff of a part."""
        # That a text does not end with a line break is worth a line only if nothing else is.
        remarks = _stripped(part.before) == _stripped(part.after)
        for line in visible(part.text).removesuffix("\n").split("\n"):
            if remarks or not line.startswith("\\"):
                self._print(line, color=_DIFF_STYLES.get(line[:1]))

    def _wrapped(self, line: str, indent: int) -> list[str]:
        if not self._terminal:
            return [line]
        # Paths and ids stay whole, so that they can be copied.
        return textwrap.wrap(
            line,
            width=shutil.get_terminal_size().columns,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def _print(self, text: str, *, color: str | None = None, bold: bool = False) -> None:
        styled = click.style(text, fg=color, bold=bold or None) if self._color else text
        # True means: take nothing away; what is in the text has been decided here.
        click.echo(styled, color=True)
