"""Printing lines, in any encoding."""

from __future__ import annotations

import codecs
import io
import sys

import click

from promptgraft.text import spelled

_ERRORS = "promptgraft.spelled"

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
    known = (_SPELLED.get(character) or spelled(character) for character in unknown)
    return "".join(known), error.end
