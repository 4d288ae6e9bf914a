"""Text that is safe to show: no control characters, in any encoding."""

from __future__ import annotations

import codecs
import io
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime

import click

_ERRORS = "promptgraft.spelled"

# Control characters, marks that turn the direction of writing, line separators, surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_UNSAFE_OR_BREAK = re.compile(f"[\t\n]|{_UNSAFE.pattern}")

_SPELLED = {
    "…": "...",
    "–": "-",
    "—": "-",
    "·": "-",
    "→": "->",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
}


def echo(text: str, *, error: bool = False) -> None:
    """Print a line to standard output, or to standard error; a closed stream swallows it."""
    # Named, because click answers an ASCII stream with UTF-8 when it chooses the stream itself;
    # and `color=True` takes nothing away: callers decide what is coloured.
    click.echo(text, file=sys.stderr if error else sys.stdout, color=True)


def visible(text: str) -> str:
    """Return ``text`` with everything that a terminal would obey spelled out.

    Line breaks and tabs stay. What is spelled out cannot move the cursor, change colours or
    titles, overwrite a line, or turn the direction of writing.
    """
    return _UNSAFE.sub(lambda match: _escape(match[0]), text)


def visible_line(text: str) -> str:
    """Return ``text`` as one line: as :func:`visible`, line breaks and tabs spelled out too."""
    return _UNSAFE_OR_BREAK.sub(lambda match: _escape(match[0]), text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def spell_for_encoding(*streams: object) -> None:
    """Let ``streams`` spell what their encoding does not have instead of failing.

    Typographic characters become their plain relatives, all others escapes.
    """
    codecs.register_error(_ERRORS, _spelled)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def _spelled(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    unknown = error.object[error.start : error.end]
    spelled = (_SPELLED.get(character) or _escape(character) for character in unknown)
    return "".join(spelled), error.end


def counted(number: int, noun: str) -> str:
    """Return ``1 section`` or ``3 sections``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: Iterable[str]) -> str:
    """Return the names in back-ticks, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def moment(time: datetime) -> str:
    """Return a time in UTC, to the second."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def score(value: float | None) -> str:
    """Return a score as tables show it."""
    return "none" if value is None else f"{value:.3f}"


def difference(before: float | None, after: float | None) -> str:
    """Return how much a score rose or fell."""
    return "" if before is None or after is None else f"{after - before:+.3f}"
