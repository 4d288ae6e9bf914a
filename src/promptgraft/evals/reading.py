"""Files as text: UTF-8, line by line or whole, with the place of every fault."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from promptgraft.evals.faults import Faults
from promptgraft.serde import Json, did_you_mean, shown

DEEPEST = 100
"""How many lists and objects may stand inside each other in one case."""

_BOM = b"\xef\xbb\xbf"
_WIDE = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_MEND = "save the file as UTF-8"


def too_long() -> str:
    """Return what is said of the one number that is JSON but that Python does not read."""
    return f"expected integers of at most {sys.get_int_max_str_digits():,} digits"


class Row(NamedTuple):
    """One case as it stands in a file.

    Attributes:
        line: where it begins, counted from 1.
        value: its plain data.
        in_eval_set: whether it stands in the list of an EvalSet.
    """

    line: int
    value: Json
    in_eval_set: bool = False


def read_lines(path: Path, faults: Faults) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers; lines that are not UTF-8 are faults.

    Raises:
        OSError: the system refuses.
    """
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            line = raw.removeprefix(_BOM) if number == 1 else raw
            if number == 1 and (wide := _wide(raw)):
                faults.add(0, f"expected UTF-8, found {wide}; {_MEND}")
                return
            if (text := _decoded(line, number, faults)) is not None:
                yield number, text


def read_text(path: Path, faults: Faults) -> str | None:
    """Return the text of a file; None when it is not UTF-8, which is a fault.

    Raises:
        OSError: the system refuses.
    """
    raw = path.read_bytes()
    if wide := _wide(raw):
        faults.add(0, f"expected UTF-8, found {wide}; {_MEND}")
        return None
    return _decoded(raw.removeprefix(_BOM), 1, faults)


def container_keys(members: dict[str, Json], line: int, faults: Faults) -> None:
    """Note the faults of an object that holds an EvalSet, its cases left out."""
    for key in members:
        if snake(key) not in _SET_KEYS:
            meant = did_you_mean(snake(key), list(_SET_KEYS))
            faults.add(line, f"unknown field {shown(key)} of an EvalSet{meant}")


def snake(key: str) -> str:
    """Return a key in snake_case, whichever way it is written."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in key)


def is_cases(key: str) -> bool:
    """Whether a member of an EvalSet holds its cases."""
    return snake(key) == "eval_cases"


def unfit(value: Json) -> str:
    """Return why a value cannot be kept or sent, or nothing."""
    todo: list[tuple[Json, int]] = [(value, 0)]
    while todo:
        item, depth = todo.pop()
        if isinstance(item, str):
            if not _sendable(item):
                return f"half of a surrogate pair in {shown(item)}; expected whole characters"
        elif isinstance(item, (list, dict)):
            if depth >= DEEPEST:
                return f"nested deeper than {DEEPEST} levels"
            inner = [*item.keys(), *item.values()] if isinstance(item, dict) else item
            todo.extend((below, depth + 1) for below in inner)
    return ""


_SET_KEYS = ("eval_set_id", "name", "description", "eval_cases", "creation_timestamp", "app_name")


def _sendable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _wide(raw: bytes) -> str:
    if raw[:2] in _WIDE:
        return _WIDE[raw[:2]]
    # Every second byte of ASCII text in UTF-16 is zero.
    return "UTF-16 without a mark" if raw[:4].count(0) == 2 else ""


def _decoded(raw: bytes, line: int, faults: Faults) -> str | None:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8")) + 1
        faults.add(
            line + before.count(b"\n"),
            f"expected UTF-8, found byte {raw[error.start]:#04x} in column {column}; {_MEND}",
        )
        return None
    if (at := text.find("\0")) >= 0:
        faults.add(line + text.count("\n", 0, at), "expected text, found a zero byte")
        return None
    return text
