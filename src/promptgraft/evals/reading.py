"""Files as text: UTF-8, line by line or whole, with the place of every fault."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from promptgraft.evals.faults import Faults
from promptgraft.serde import Json, did_you_mean, shown
from promptgraft.strict.kinds import snake_case
from promptgraft.strict.nodes import decoded, wide

DEEPEST = 100
"""How many lists and objects may stand inside each other in one case."""


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
            if (text := decoded(raw, number, faults.add)) is not None:
                yield number, text
            elif number == 1 and wide(raw):
                return


def container_keys(members: dict[str, Json], line: int, faults: Faults) -> None:
    """Note the faults of an object that holds an EvalSet, its cases left out."""
    for key in members:
        if snake_case(key) not in _SET_KEYS:
            meant = did_you_mean(snake_case(key), list(_SET_KEYS))
            faults.add(line, f"unknown field {shown(key)} of an EvalSet{meant}")


def is_cases(key: str) -> bool:
    """Whether a member of an EvalSet holds its cases."""
    return snake_case(key) == "eval_cases"


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
