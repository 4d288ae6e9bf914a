"""Paths to members of rows, such as ``inputs.question``, which are read like columns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping

from promptgraft.ground.serde import Json, did_you_mean

_MOST_PATHS = 1_000
"""Different paths of rows that a missing one is compared with, which is slow."""
_MOST_KEYS = 10
"""Keys that a message lists."""


class RowPaths:
    """The paths among the ``names`` of columns, and which of them rows have.

    Attributes:
        roots: the first keys of the paths.
        nested: the paths that are no keys of rows, even if rows lack what is there.
        absent: the paths that no row has had so far.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._paths = tuple(sorted(name for name in names if "." in name))
        self.roots = frozenset(map(root_of, self._paths))
        self.absent = set(self._paths)
        self.nested = set(self._paths)
        self._there: dict[str, None] = {}

    def flattened(self, row: dict[str, Json], visible: Collection[str]) -> dict[str, Json]:
        """Return a row with a column for each path that it has.

        A column of that very name comes first. An object that is read by paths is no column any
        more, unless it is among the ``visible`` ones.
        """
        if not self._paths:
            return row
        names = (name for name in self._paths if name not in row)
        paths = {name: member for name in names for member in _members_at(row, name)}
        self.absent -= {*paths, *row}
        self.nested -= row.keys()
        if self.absent and len(self._there) < _MOST_PATHS:
            self._there |= dict.fromkeys(_paths_in(row))
        hidden = {root_of(name) for name in self._paths if name not in row}.difference(visible)
        return {key: row[key] for key in row if key not in hidden} | paths

    def described(self, path: str) -> str:
        """Return a path for messages, with the nearest and all of those that rows have."""
        return f"`{path}`{did_you_mean(path, self._there)}; paths: {listed_keys(self._there)}"


def path_hint(column: str, row: Mapping[str, Json]) -> str:
    """Return the path in a row that ends with the name of an absent column, for messages."""
    path = next((path for path in _paths_in(row) if path.endswith(f".{column}")), "")
    return f" (did you mean `{path}`?)" if path else ""


def listed_keys(value: Collection[str]) -> str:
    """Return the first ten keys for messages, and how many more there are."""
    names = [f"`{name}`" for name in itertools.islice(value, _MOST_KEYS)]
    more = len(value) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "") or "none"


def root_of(path: str) -> str:
    """Return the first key of a path."""
    return path.partition(".")[0]


def _members_at(value: Json, path: str) -> list[Json]:
    """Return what lies at a path of keys, and numbers of items from 0, in a list; else none.

    A key may have dots itself, as in the attributes of spans of OpenTelemetry.
    """
    if isinstance(value, list):
        members = {str(index): item for index, item in enumerate(value)}
    else:
        members = value if isinstance(value, dict) else {}
    ends = [match.start() for match in re.finditer(r"\.", path)]
    for end in ends:
        if path[:end] in members and (inner := _members_at(members[path[:end]], path[end + 1 :])):
            return inner
    return [members[path]] if path in members else []


def _paths_in(value: Mapping[str, Json], before: str = "") -> Iterator[str]:
    """Yield the paths to the members of an object that are no objects themselves.

    Of a list of objects or lists, which may be long, only the first item has paths.
    """
    for key, member in value.items():
        if isinstance(member, list) and member and isinstance(member[0], (dict, list)):
            yield from _paths_in({"0": member[0]}, f"{before}{key}.")
        elif isinstance(member, dict) and member:
            yield from _paths_in(member, f"{before}{key}.")
        else:
            yield f"{before}{key}"
