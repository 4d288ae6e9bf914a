"""Lists of names as models write them: JSON, lines, bullets, or separated by commas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from promptgraft.errors import DataFormatError
from promptgraft.parts.examples import one_line
from promptgraft.serde import Json
from promptgraft.targets.loose_json import unquoted
from promptgraft.targets.loose_lines import Lines
from promptgraft.targets.loose_reply import text_of

_BULLET = re.compile(r"(?:[-*+•]|[0-9]{1,3}[.)])\s++(?P<item>.*)")
_ITEM = re.compile(
    r"""[ \t]*+(?:
        (?P<quoted>"(?:[^"\\]|\\.)*+"|'(?:[^']|'')*+'|“[^“”]*+”|‘[^‘’]*+’|`[^`]*+`)[ \t]*+(?=,|$)
        |(?P<plain>[^,]*+)
    ),?""",
    re.VERBOSE,
)
_NONE = frozenset({"", "none", "no aliases", "null", "nil", "n/a", "-", "–", "—"})


def read_names(value: Json, *, where: str) -> tuple[str, ...]:
    """Return the names in a list, or in a text that writes one in whatever way.

    That is JSON, one name a line, with bullets or without, or names separated by commas.
    Commas between quotes, or in the line of a bullet, belong to the name. ``none`` without
    quotes is no name.

    Raises:
        DataFormatError: it is no text and no list of texts.
        InvalidProposalError: a name holds characters that no prompt should.
    """
    if value is None:
        return ()
    if isinstance(value, str) and value.startswith("["):
        value = Lines(value).json_at(0, where=where)
    if isinstance(value, list):
        names = [text_of({where: item}, where) for item in value]
        return tuple(name for name in names if name.strip())
    return tuple(_written(text_of({where: value}, where)))


def write_names(names: Sequence[str]) -> str:
    """Return names in the plainest form that :func:`read_names` reads back as they are."""
    plain = ", ".join(names)
    try:
        is_clear = read_names(plain, where="names") == tuple(names)
    except DataFormatError:
        is_clear = False
    return plain if is_clear else one_line(list(names))


def _written(text: str) -> Iterator[str]:
    if text.strip(" \t\n.()`*_").casefold() in _NONE:
        return
    for row in filter(None, map(str.strip, text.split("\n"))):
        if bullet := _BULLET.fullmatch(row):
            item = bullet["item"].strip(" \t`")
            if item.casefold() not in _NONE:
                yield unquoted(item)
        else:
            yield from _separated(row)


def _separated(row: str) -> Iterator[str]:
    for found in _ITEM.finditer(row):
        name = found["quoted"] if found["plain"] is None else found["plain"]
        if name := unquoted(name.strip(" \t`")).strip():
            yield name
