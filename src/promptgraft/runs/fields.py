"""Fields of the plain objects that the files of a run hold; the first fault is raised."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

from promptgraft.errors import DataFormatError
from promptgraft.serde import Json
from promptgraft.strict.checks import MOMENT, OBJECT, STRING, Kind
from promptgraft.strict.nodes import Node, Source

T = TypeVar("T")


class Fields:
    """The fields of one object.

    Args:
        plain: the object.
        where: the file and the line, for messages.
    """

    def __init__(self, plain: Mapping[str, Json], where: str) -> None:
        self._plain = plain
        self._where = where

    def read(self, name: str, kind: Kind[T]) -> T:
        """Return a field.

        Raises:
            DataFormatError: it is not of this kind; this holds for all methods.
        """
        source = Source(self._where)
        value = kind.read(Node(self._plain.get(name), (name,), source))
        if value is None:
            raise DataFormatError(source.faults[0])
        return value

    def read_or_none(self, name: str, kind: Kind[T]) -> T | None:
        """Return a field, or None for null."""
        return None if self.is_null(name) else self.read(name, kind)

    def is_null(self, name: str) -> bool:
        """Tell whether there is null, or nothing."""
        return self._plain.get(name) is None

    def text(self, name: str) -> str:
        """Return a text."""
        return self.read(name, STRING)

    def text_or_none(self, name: str) -> str | None:
        """Return a text, or None for null."""
        return self.read_or_none(name, STRING)

    def moment(self, name: str) -> datetime:
        """Return a time with its zone."""
        return self.read(name, MOMENT)

    def inside(self, name: str) -> Fields:
        """Return the fields of an object in this one."""
        return Fields(self.plain(name), f"{self._where}: {name}")

    def plain(self, name: str) -> Mapping[str, Json]:
        """Return an object."""
        return self.read(name, OBJECT)
