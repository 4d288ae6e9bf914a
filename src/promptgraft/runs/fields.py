"""Fields of the plain objects that the files of a run hold; the first fault is raised."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

from promptgraft.errors import DataFormatError
from promptgraft.serde import Json
from promptgraft.strict.checks import MOMENT, STRING, Kind
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

    def text(self, name: str) -> str:
        """Return a text."""
        return self.read(name, STRING)

    def moment(self, name: str) -> datetime:
        """Return a time with its zone."""
        return self.read(name, MOMENT)
