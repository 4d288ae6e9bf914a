"""``events.jsonl``: events as lines and lines as events, also while another process writes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import msgspec

from promptgraft.errors import DataFormatError
from promptgraft.frozenmap import FrozenMap
from promptgraft.search.events import RunEnded, RunEvent
from promptgraft.search.notices import Event, RunProgress, Unknown
from promptgraft.search.scores import Scores
from promptgraft.serde import Json, parse_json

_MEND = "`promptgraft resume` writes the file again"
_FIRST_TAIL_BYTES = 8_192
_LONGEST_TAIL_BYTES = 4_194_304


def _plain(value: object) -> object:
    if isinstance(value, Scores):
        return list(value)
    if isinstance(value, FrozenMap):
        return dict(value)
    raise NotImplementedError


_WRITER = msgspec.json.Encoder(enc_hook=_plain)
_READER = msgspec.json.Decoder(RunEvent)
_ASCII = json.JSONEncoder(separators=(",", ":"))
_KINDS = frozenset(kind.__struct_config__.tag for kind in get_args(RunEvent))
_FAULT = re.compile(r"(?s)(.*?)(?: - at `\$\.?(.*)`)?")


def encoded(event: Event) -> str:
    """Return an event as a line without its end; in ASCII, so that every locale can carry it."""
    try:
        text = _WRITER.encode(event)
    except UnicodeEncodeError:  # half characters, which ASCII can spell
        text = b"\xff"
    if text.isascii():
        return text.decode("ascii")
    return _ASCII.encode(msgspec.to_builtins(event, enc_hook=_plain))


def encoded_json(plain: Mapping[str, Json]) -> str:
    """Return an object as a line like those of events."""
    return _ASCII.encode(dict(plain))


def decoded(text: bytes, where: str) -> Event:
    """Return the event that a line is; :class:`Unknown` for one of a kind of a later version.

    Of a key that is there twice, which no run writes, the last one counts.

    Raises:
        DataFormatError: it is none; ``where`` and what was expected are named.
    """
    try:
        event: Event = _READER.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _looked_at(text, where)
    return event


def _looked_at(text: bytes, where: str) -> Event:
    """Return the event of a line that msgspec does not read, or say why it is none."""
    try:
        plain = parse_json(text, where=where)
    except DataFormatError as error:
        raise DataFormatError(f"{error}; {_MEND}") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("event"), str):
        raise DataFormatError(f"{where}: expected an object with `event`; {_MEND}")
    try:
        if plain["event"] in _KINDS:
            event: Event = msgspec.convert(plain, RunEvent)
            return event
        shared: dict[str, Json] = {key: plain[key] for key in ("n", "time") if key in plain}
        return msgspec.convert({"event": "Unknown", **shared}, Unknown)
    except msgspec.ValidationError as error:
        raise DataFormatError(f"{where}: {_fault(error)}; {_MEND}") from None


def _fault(error: msgspec.ValidationError) -> str:
    """Return the message of an error with the path to the fault in front."""
    found = _FAULT.fullmatch(str(error))
    said, path = (found[1], found[2]) if found else (str(error), "")
    said = f"{said[:1].lower()}{said[1:]}".replace(", got ", ", found ")
    return f"{path}: {said}" if path else said


def read_lines(path: Path) -> Iterator[tuple[int, Event]]:
    """Yield the number in the file, from 1, and the event of each whole line.

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
                yield number, decoded(text, f"{name}:{number}")


def tail_of(path: Path) -> list[Event]:
    """Return the last events of a file, the oldest first: back to one that says where a run stands.

    That is the end of the run, or its progress; but at most 4 MiB. Nothing when there is no file.

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
            events: list[Event] = []
            for text in reversed(texts if start == 0 else texts[1:]):
                events.append(decoded(text, str(path)))
                if isinstance(events[-1], (RunEnded, RunProgress)):
                    return events[::-1]
            if start == 0 or length >= _LONGEST_TAIL_BYTES:
                return events[::-1]
            length *= 2
