"""Reading ``events.jsonl``, also while another process writes to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from promptgraft.errors import DataFormatError
from promptgraft.runs.event_lines import Line
from promptgraft.serde import Json, parse_json

_READER = msgspec.json.Decoder()
_FIRST_TAIL_BYTES = 8_192
_LONGEST_TAIL_BYTES = 262_144


def read_lines(path: Path) -> Iterator[tuple[int, Line]]:
    """Yield the number in the file, from 1, and the content of each whole line.

    A last line without its end is being written, or never will be: it is left out. Nothing
    is yielded when there is no file.

    Raises:
        DataFormatError: a line is no event.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        name = str(path)
        for number, text in enumerate(file, 1):
            if text.endswith(b"\n"):
                yield number, parse_line(text, f"{name}:{number}")


def parse_line(text: bytes, where: str) -> Line:
    """Return a line as the object that it is.

    Raises:
        DataFormatError: it is none.
    """
    mend = "`promptgraft resume` writes the file again"
    line = _quickly_parsed(text)
    if line is None:
        try:
            line = parse_json(text, where=where)
        except DataFormatError as error:
            raise DataFormatError(f"{error}; {mend}") from None
    if isinstance(line, dict) and isinstance(line.get("event"), str):
        return line
    raise DataFormatError(f"{where}: expected an object with `event`; {mend}")


def _quickly_parsed(text: bytes) -> Json:
    """Return a line; None when it has to be looked at closely.

    A large run has thousands of lines with thousands of scores. Of a key that is there twice,
    which no run writes, the last one counts.
    """
    try:
        line: Json = _READER.decode(text)
    except (ValueError, RecursionError):
        return None
    return line


def tail_of(path: Path) -> list[Line]:
    """Return the last lines of a file, the oldest first: back to one that says where a run stands.

    That is a line ``ended`` or ``progress``; but at most 256 KiB. Nothing when there is no file.

    Raises:
        DataFormatError: a line is no event.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return []
    with file:
        size = file.seek(0, os.SEEK_END)
        length = _FIRST_TAIL_BYTES
        while True:
            start = max(0, size - length)
            file.seek(start)
            texts = file.read(size - start).split(b"\n")[:-1]
            lines = _back_to_where(texts if start == 0 else texts[1:], str(path))
            if start == 0 or length >= _LONGEST_TAIL_BYTES or _says_where(lines[:1]):
                return lines
            length *= 2


def _back_to_where(texts: list[bytes], where: str) -> list[Line]:
    lines: list[Line] = []
    for text in reversed(texts):
        lines.append(parse_line(text, where))
        if _says_where(lines[-1:]):
            break
    return lines[::-1]


def _says_where(lines: list[Line]) -> bool:
    return any(line["event"] in ("ended", "progress") for line in lines)


def has_ended(lines: list[Line]) -> bool:
    """Tell whether the last numbered line says that the run has ended."""
    numbered = [line for line in lines if "n" in line]
    return bool(numbered) and numbered[-1]["event"] == "ended"
