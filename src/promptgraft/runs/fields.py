"""Reading the fields of plain objects that a file holds, with a name for what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NoReturn

from promptgraft.errors import DataFormatError
from promptgraft.serde import Json, shown

_MISSING = object()


class Fields:
    """The fields of one object.

    Args:
        plain: the object.
        where: the file and the line, for messages.
    """

    def __init__(self, plain: Mapping[str, Json], where: str) -> None:
        self._plain = plain
        self._where = where

    def is_null(self, name: str) -> bool:
        """Tell whether there is null, or nothing."""
        return self._plain.get(name) is None

    def text(self, name: str) -> str:
        """Return a text.

        Raises:
            DataFormatError: here and below: there is something else.
        """
        value = self._plain.get(name)
        return value if isinstance(value, str) else self._refuse(name, "a text")

    def text_or_none(self, name: str) -> str | None:
        """Return a text, or None for null."""
        return None if self.is_null(name) else self.text(name)

    def moment(self, name: str) -> datetime:
        """Return a time; one without a zone could not be compared with others."""
        try:
            found = datetime.fromisoformat(self.text(name))
        except ValueError:
            return self._refuse(name, "an ISO 8601 time")
        return found if found.tzinfo else self._refuse(name, "an ISO 8601 time with its zone")

    def inside(self, name: str) -> Fields:
        """Return the fields of an object in this one."""
        return Fields(self.plain(name), f"{self._where}: {name}")

    def plain(self, name: str) -> Mapping[str, Json]:
        """Return an object."""
        value = self._plain.get(name)
        return value if isinstance(value, dict) else self._refuse(name, "an object")

    def _refuse(self, name: str, expected: str) -> NoReturn:
        value: object = self._plain.get(name, _MISSING)
        found = "nothing" if value is _MISSING else shown(value)
        raise DataFormatError(f"{self._where}: {name}: expected {expected}, found {found}")
