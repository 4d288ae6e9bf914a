"""Reading the fields of plain objects that a file holds, with a name for what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import NoReturn, TypeGuard

from promptgraft.errors import DataFormatError
from promptgraft.frozenmap import FrozenMap
from promptgraft.search.scores import Scores
from promptgraft.serde import Json, shown

_MISSING = object()
_SCORES = frozenset((int, float, type(None)))


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

    def integer(self, name: str) -> int:
        """Return an integer."""
        value = self._plain.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        return self._refuse(name, "an integer")

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self._plain.get(name)
        return value if isinstance(value, bool) else self._refuse(name, "true or false")

    def number(self, name: str) -> float | None:
        """Return a number, or None for null."""
        value = self._plain.get(name)
        if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            return value
        return self._refuse(name, "a number")

    def money(self, name: str) -> Decimal | None:
        """Return US dollars, or None for null."""
        if (text := self.text_or_none(name)) is None:
            return None
        try:
            amount = Decimal(text)
        except InvalidOperation:
            amount = Decimal("NaN")
        return amount if amount.is_finite() else self._refuse(name, "a decimal number as text")

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

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self._plain.get(name)
        if isinstance(value, list):
            found = tuple(item for item in value if isinstance(item, str))
            if len(found) == len(value):
                return found
        return self._refuse(name, "a list of texts")

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of integers."""
        value = self._plain.get(name)
        if isinstance(value, list):
            found = tuple(
                item for item in value if isinstance(item, int) and not isinstance(item, bool)
            )
            if len(found) == len(value):
                return found
        return self._refuse(name, "a list of integers")

    def scores(self, name: str) -> Scores:
        """Return a list of numbers and nulls."""
        value = self._plain.get(name)
        if isinstance(value, list) and _are_scores(value):
            with suppress(OverflowError):  # an integer that no float can hold
                return Scores(value)
        return self._refuse(name, "a list of numbers")

    def texts(self, name: str) -> Mapping[str, str]:
        """Return texts by name."""
        found = FrozenMap(
            (key, value) for key, value in self.plain(name).items() if isinstance(value, str)
        )
        return found if len(found) == len(self.plain(name)) else self._refuse(name, "texts")

    def numbers(self, name: str) -> Mapping[str, float]:
        """Return numbers by name."""
        found = FrozenMap(
            (key, value)
            for key, value in self.plain(name).items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        )
        return found if len(found) == len(self.plain(name)) else self._refuse(name, "numbers")

    def _refuse(self, name: str, expected: str) -> NoReturn:
        value: object = self._plain.get(name, _MISSING)
        found = "nothing" if value is _MISSING else shown(value)
        raise DataFormatError(f"{self._where}: {name}: expected {expected}, found {found}")


def _are_scores(value: list[Json]) -> TypeGuard[list[float | None]]:
    # By their types, which are few: a large run has millions of scores.
    return _SCORES.issuperset(map(type, value))
