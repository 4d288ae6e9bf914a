"""The values of a project file with their places, and the faults that are found there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import attrs

from promptgraft import yaml_text
from promptgraft.errors import DataFormatError
from promptgraft.evals.faults import MOST_SHOWN
from promptgraft.serde import Json, shown
from promptgraft.yaml_text import YamlDocument, YamlPath

# What a file with very many faults says at the end of them.
_MORE = re.compile(r": and ([0-9,]+) more$")


def spelled(path: YamlPath) -> str:
    """Return a path as messages write it: ``metrics[0].labels``."""
    return yaml_text.spelled(path).removeprefix(".")


def found(value: Json) -> str:
    """Return what was found, for a message; never what stands inside an object or a list."""
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        what = "object" if isinstance(value, dict) else "list"
        return f"{'a' if value and what == 'list' else 'an'} {'' if value else 'empty '}{what}"
    return shown(value)


@attrs.frozen
class SourceFile:
    """A file that was read, and what is wrong with it.

    Attributes:
        path: as the user named it.
        document: what it says.
    """

    path: Path
    document: YamlDocument
    _faults: list[tuple[YamlPath, int, str]] = attrs.field(factory=list, init=False, repr=False)
    _settled: set[YamlPath] = attrs.field(factory=set, init=False, repr=False)

    @property
    def root(self) -> Node:
        """The whole of it."""
        return Node(self.document.value, (), self)

    def line(self, path: YamlPath, text: str) -> str:
        """Return one line that says where ``path`` stands, and ``text``."""
        where = f"{spelled(path)}: " if path else ""
        return " ".join(f"{self.path}:{self.document.line_of(path)}: {where}{text}".split("\n"))

    def fault(self, path: YamlPath, text: str) -> None:
        """Note that something is wrong at ``path``."""
        if path not in self._settled:
            self._faults.append((path, self.document.line_of(path), self.line(path, text)))

    def settle(self, path: YamlPath, text: str) -> None:
        """Note what is wrong at ``path``; whatever else is noted there is left out."""
        self.fault(path, text)
        self._settled.add(path)

    def is_right(self, path: YamlPath) -> bool:
        """Tell whether nothing was noted at ``path`` or below it."""
        return not any(noted[: len(path)] == path for noted, _, _ in self._faults)

    def raise_all(self) -> None:
        """Refuse the file if there is a fault.

        Raises:
            DataFormatError: with the first 20 faults in the order of their lines, and how many
                more there are.
        """
        raise_lines(
            self.path, [text for _, _, text in sorted(self._faults, key=lambda one: one[1])]
        )


def count_faults(lines: Iterable[str]) -> int:
    """Return how many faults these lines tell of, with those that a last line only counts."""
    counted = [_MORE.search(line) for line in lines]
    return sum(1 if more is None else int(more[1].replace(",", "")) for more in counted)


def raise_lines(path: Path, lines: Iterable[str]) -> None:
    """Refuse a file for these faults, if there are any.

    Raises:
        DataFormatError: with the first 20, and how many more there are.
    """
    distinct = tuple(dict.fromkeys(lines))
    shown_lines = [line for line in distinct if _MORE.search(line) is None][:MOST_SHOWN]
    more = count_faults(distinct) - len(shown_lines)
    if shown_lines:
        told = (*shown_lines, *([f"{path}: and {more:,} more"] if more else []))
        raise DataFormatError.of(told)


@attrs.frozen
class Node:
    """A value with its place.

    Attributes:
        value: the plain data; None for nothing.
        path: what leads to it.
        file: where it stands.
    """

    value: Json
    path: YamlPath
    file: SourceFile = attrs.field(repr=False)

    def member(self, key: str) -> Node:
        """Return the member of an object; its value is None when it is not there."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return Node(value, (*self.path, key), self.file)

    def members(self) -> dict[str, Node]:
        """Return the members of an object that are there; those without a value are not."""
        value = self.value if isinstance(self.value, dict) else {}
        return {key: self.member(key) for key, member in value.items() if member is not None}

    def items(self) -> list[Node]:
        """Return the items of a list."""
        value = self.value if isinstance(self.value, list) else []
        return [Node(item, (*self.path, at), self.file) for at, item in enumerate(value)]

    def fault(self, text: str) -> None:
        """Note that something is wrong here."""
        self.file.fault(self.path, text)

    def expected(self, what: str) -> None:
        """Note that something else was expected here."""
        self.fault(f"expected {what}, found {found(self.value)}")
