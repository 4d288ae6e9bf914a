"""Writing to standard output and error: text in any encoding, or one JSON document."""

from __future__ import annotations

import codecs
import io
import json
import math
import os
import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeAlias

import click

from promptgraft.errors import ConfigError
from promptgraft.ground.files import named_in_errors
from promptgraft.ground.text import figure_columns, shell_word, spelled, visible, visible_line

if TYPE_CHECKING:
    from promptgraft.overrides import PartDiff

_ERRORS = "promptgraft.spelled"

_SPELLED = {"…": "...", "→": "->", **dict.fromkeys("–—·", "-")}
_SPELLED |= {**dict.fromkeys("‘’", "'"), **dict.fromkeys("“”", '"')}


def echo(text: str, *, error: bool = False) -> None:
    """Print a line to standard output or error; do nothing if the stream is closed."""
    # The stream is passed explicitly: click's own choice writes UTF-8 to ASCII streams. With
    # `color=True` click strips nothing: callers decide what is coloured.
    click.echo(text, file=sys.stderr if error else sys.stdout, color=True)


def spell_for_encoding(*streams: object) -> None:
    """Make ``streams`` replace characters that their encoding lacks instead of failing.

    Typographic characters become plain ones, and all others become escapes.
    """
    codecs.register_error(_ERRORS, _spelled)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def _spelled(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    unknown = error.object[error.start : error.end]
    spellings = (_SPELLED.get(character) or spelled(character) for character in unknown)
    return "".join(spellings), error.end


_DIFF_STYLES: Mapping[str, str] = {"+": "green", "-": "red", "@": "cyan"}
_INDENT = "  "
_PROGRAM = "promptgraft"


def is_plain_terminal(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether ``TERM`` names a terminal without colours and cursor movements."""
    return environment.get("TERM", "") in ("dumb", "unknown")


def print_json(document: object) -> None:
    """Print one JSON document, in ASCII, which is valid in every locale."""
    echo(json.dumps(document, indent=2))


def relative(path: Path) -> Path:
    """Return a path relative to the current folder if it is inside, else absolute."""
    absolute, here = path.absolute(), Path.cwd()
    return absolute.relative_to(here) if absolute.is_relative_to(here) else absolute


def program() -> str:
    """Return what starts this program in the user's shell: a path where `promptgraft` does not."""
    script = Path(sys.argv[0])
    if script.name != _PROGRAM or not script.exists():
        return _PROGRAM
    installed = shutil.which(_PROGRAM)
    if installed is not None and Path(installed).samefile(script):
        return _PROGRAM
    return shell_word(str(relative(script)))


def make_room(path: Path) -> None:
    """Create the parent folders of an output file; refuse one that cannot be written.

    Called before the work whose result the file is to hold.
    """
    if path.is_dir():
        raise ConfigError(f"{path}: expected a file to write, found a folder; name a file in it")
    path.parent.mkdir(parents=True, exist_ok=True)
    with named_in_errors(path):
        # The file will be replaced by one that is made beside it.
        tempfile.TemporaryFile(dir=path.parent).close()


def _columns() -> int:
    return shutil.get_terminal_size().columns


def wrapped(text: str, stream: TextIO | None, indent: int = 0) -> list[str]:
    """Return ``text`` as lines that fit a terminal beside an indent; elsewhere as one line."""
    if stream is None or not stream.isatty():
        return [text]
    # Paths and ids are never broken, so that they can be copied.
    width = max(1, _columns() - indent)
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


_Piece: TypeAlias = tuple[str, str | None]
"""Text and its colour."""
_WORD_AND_SPACE = re.compile(r"\s*\S+|\s+$")


class Screen:
    """Prints text to standard output; with colours only on a terminal that supports them.

    This is the only place where texts are made :func:`~promptgraft.ground.text.visible`.
    """

    def __init__(self) -> None:
        self._terminal = sys.stdout is not None and sys.stdout.isatty()
        self._color = self._terminal and not is_plain_terminal() and not os.environ.get("NO_COLOR")

    def line(self, text: str = "", *, color: str | None = None, bold: bool = False) -> None:
        """Print one line; on a terminal it is wrapped, and wrapped lines keep its indentation."""
        line_shown = visible_line(text)
        indent = len(line_shown) - len(line_shown.lstrip(" "))
        for line in self._wrapped(line_shown.lstrip(" "), indent):
            self._print(f"{'':{indent}}{line}", color=color, bold=bold)

    def fields(self, rows: Sequence[tuple[str, str]], *, width: int = 0) -> None:
        """Print names and values in two columns; values are wrapped on a terminal.

        Names take at least ``width`` columns, so that several calls can be aligned.
        """
        rows = [(visible_line(name), value) for name, value in rows]
        width = max((width, *(len(name) for name, _ in rows)))
        for name, value in rows:
            first, *more = self._wrapped(visible_line(value), width + 2)
            self._print(f"{name:{width}}  {first}".rstrip())
            for line in more:
                self._print(f"{'':{width}}  {line}")

    def table(self, rows: Sequence[Sequence[str]], *, optional: Collection[str] = ()) -> None:
        """Print a table; columns of figures but the first are aligned to the right.

        On a terminal that is too narrow, the columns whose headings are in ``optional`` are left
        out, then the last column is printed on lines of its own, and at last every cell is. No
        cell is ever cut.
        """
        rows = [[visible_line(cell) for cell in row] for row in rows]
        widths = _widths(rows)
        room = _columns() + 2 if self._terminal else math.inf
        narrow = sum(widths) > room
        if narrow:
            needed = [at for at, heading in enumerate(rows[0]) if heading not in optional]
            all_rows, rows = rows, [[row[at] for at in needed] for row in rows]
            widths = _widths(rows)
            if sum(widths[:-1]) > room:
                self._records(all_rows[0], all_rows[1:])
                return
            narrow = sum(widths) > room
        are_figures = [False, *figure_columns(rows[1:])[1:]] if rows[1:] else [False] * len(widths)
        for row in rows:
            *cells, last = row
            padded = [
                f"{cell:{'>' if is_figure else '<'}{width - 2}}"
                for cell, is_figure, width in zip(cells, are_figures, widths, strict=False)
            ]
            self._print("  ".join([*padded, *([] if narrow else [last])]).rstrip())
            if narrow and last:
                for piece in self._wrapped(last, len(_INDENT)):
                    self._print(f"{_INDENT}{piece}")

    def _records(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print each row as lines of a heading and a cell, below its first cell."""
        width = max(map(len, headings[1:]), default=0)
        for title, *cells in rows:
            self.line(f"{headings[0]} {title}".strip())
            for heading, cell in zip(headings[1:], cells, strict=True):
                pieces = self._wrapped(cell, len(_INDENT) + width + 2) if cell else []
                for at, piece in enumerate(pieces):
                    self._print(f"{_INDENT}{'' if at else heading:{width}}  {piece}")

    def body(self, text: str, *, wrapped: bool = False) -> None:
        """Print an indented text; with ``wrapped`` its lines are wrapped on a terminal."""
        for line in visible(text).split("\n"):
            first, *more = self._wrapped(line, 2 * len(_INDENT)) if wrapped else [line]
            self._print(f"{_INDENT}{first}".rstrip())
            for rest in more:
                self._print(f"{2 * _INDENT}{rest}")

    def parts(self, parts: Sequence[PartDiff]) -> None:
        """Print how parts differ: as unified diffs, or in words if no text changes."""
        for part in parts:
            self.line()
            if part.state is not None:
                self.line(f"{part.part} is not applied: {part.state}", color="yellow")
            elif not part.readable:
                self.line(f"{part.part}: {_change_in_words(part)}")
            if part.readable:
                self._diff(part)

    def changed_lines(self, part: PartDiff, *, most: int) -> int:
        """Print the first changed lines of a part, by word; return how many there are.

        Removed words are red and added words green; without colours they stand in ``[-...-]`` and
        ``{+...+}``.
        """
        from promptgraft.runs.report import word_diff

        kinds = word_diff.DiffKind
        marks = {kinds.REMOVED: ("red", "[-", "-]"), kinds.ADDED: ("green", "{+", "+}")}
        lines: list[list[_Piece]] = [[]]
        for piece in word_diff.word_diff(part.before or "", part.after or ""):
            color, before, after = marks.get(piece.kind, (None, "", ""))
            for at, text in enumerate(visible(piece.text).split("\n")):
                if at:
                    lines.append([])
                if text:
                    marked = f"{before}{text}{after}" if color and not self._color else text
                    lines[-1].append((marked, color))
        changed = [line for line in lines if any(color for _, color in line)]
        width = _columns() - len(_INDENT) if self._terminal else None
        for line in changed[:most]:
            for row in _wrapped(line, width):
                styled = (
                    click.style(text, fg=color) if self._color else text for text, color in row
                )
                self._print(f"{_INDENT}{''.join(styled)}")
        return len(changed)

    def _diff(self, part: PartDiff) -> None:
        for line in visible(part.readable).removesuffix("\n").split("\n"):
            for piece in self._pieces(line):
                self._print(piece, color=_DIFF_STYLES.get(line[:1]))

    def _pieces(self, line: str) -> list[str]:
        """Return a line of a diff, wrapped into pieces if the terminal is too narrow."""
        if not self._terminal or len(line) <= _columns():
            return [line]
        first, *more = self._wrapped(line[1:], len(_INDENT))
        return [line[:1] + first, *(f"{_INDENT}{piece}" for piece in more)]

    def _wrapped(self, text: str, indent: int) -> list[str]:
        return wrapped(text, sys.stdout, indent)

    def _print(self, text: str, *, color: str | None = None, bold: bool = False) -> None:
        styled = click.style(text, fg=color, bold=bold or None) if self._color else text
        echo(styled)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the widths of columns, with the two spaces after each."""
    return [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]


def _change_in_words(part: PartDiff) -> str:
    """Describe the change of a part whose text stays the same."""
    if part.before is None:
        return "added"
    if part.after is None:
        return "removed"
    if part.text:
        return "the same text, with other line breaks at its end"
    return "the same text, written for another source"


def _wrapped(pieces: Sequence[_Piece], width: int | None) -> Iterator[list[_Piece]]:
    """Yield a line as rows of at most ``width`` columns, broken between words and indented."""
    row: list[_Piece] = []
    used = 0
    for text, color in pieces:
        for word in _WORD_AND_SPACE.findall(text) if width else [text]:
            is_over = bool(width and row and used + len(word.rstrip()) > width)
            if is_over:
                yield row
                indent: _Piece = (_INDENT, None)
                row, used = [indent], len(_INDENT)
            word_shown = word.lstrip() if is_over else word
            row.append((word_shown, color))
            used += len(word_shown)
    if row:
        yield row
