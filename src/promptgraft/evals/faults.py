"""The faults of cases: all of them are found before a source is refused, and told briefly."""

from __future__ import annotations

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.types import Case

MOST_SHOWN = 20
_MOST_IN_ONE_LINE = 10
_TOLD_EACH = 3
_LONGEST_ID = 60


@attrs.define
class _Fault:
    """What is wrong in the same words with several cases; where, for the first few of them."""

    text: str
    count: int = 0
    places: list[tuple[str, str]] = attrs.field(factory=list)

    def add(self, where: str, name: str) -> None:
        self.count += 1
        if self.count <= _TOLD_EACH:
            self.places.append((where, name))

    def lines(self) -> list[str]:
        if self.count <= _TOLD_EACH:
            return [f"{where}{self.text}" for where, _ in self.places]
        (where, _), *others = self.places
        named = ", ".join(name for _, name in others)
        return [f"{where}{self.text}; the same in {self.count - 1:,} more: {named}, …"]


class CaseFaults:
    """Collects what is wrong with cases. What more than three share is told once.

    Args:
        most: how many lines are told; what they do not tell is counted.
    """

    def __init__(self, most: int = MOST_SHOWN) -> None:
        self._most = most
        self._faults: dict[str, _Fault] = {}
        self._count = 0

    def add(self, text: str, *, place: str = "", case_id: str = "") -> None:
        """Note a fault of the case with this id, or of what stands at a place."""
        self._count += 1
        one_line = " ".join(text.splitlines())
        fault = self._faults.get(one_line)
        if fault is None:
            if len(self._faults) == self._most:
                return
            fault = self._faults[one_line] = _Fault(one_line)
        named = _named(case_id)
        fault.add(
            f"{f'{place}: ' if place else ''}{f'case {named}: ' if named else ''}", named or place
        )

    def add_error(self, case: Case, error: Exception) -> None:
        """Note what an error says of a case; the error may name the case itself."""
        text = str(error).removeprefix(f"{case.origin}: ").removeprefix(f"case `{case.id}`: ")
        self.add(text, place=case.origin, case_id=case.id)

    def __bool__(self) -> bool:
        return bool(self._faults)

    @property
    def lines(self) -> list[str]:
        """The lines, at most so many as are wanted."""
        return [line for fault in self._faults.values() for line in fault.lines()][: self._most]

    @property
    def more(self) -> int:
        """How many faults the lines do not tell."""
        left, told = self._most, 0
        for fault in self._faults.values():
            lines = min(left, len(fault.lines()))
            told += fault.count if fault.count > _TOLD_EACH and lines else lines
            left -= lines
        return self._count - told

    def refuse(self) -> None:
        """Raise a ``ConfigError`` with the faults in one line, if there are any."""
        if self._faults:
            tail = f"; and {self.more:,} more" if self.more else ""
            raise ConfigError("; ".join(self.lines) + tail)


def in_one_line() -> CaseFaults:
    """Return a collection for a message of one line."""
    return CaseFaults(_MOST_IN_ONE_LINE)


class Faults:
    """Collects what is wrong with one source of cases.

    The first 20 lines are told; the other faults are counted.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._found = CaseFaults()

    def add(self, line: int, text: str, case_id: str = "") -> None:
        """Note a fault; ``line`` counts from 1, and 0 stands for the whole file."""
        where = f"{self._source}:{line}" if line else self._source
        self._found.add(text, place=where, case_id=case_id)

    def add_of(self, case: Case, text: str) -> None:
        """Note a fault of a case, where the case stands."""
        self._found.add(text, place=case.origin, case_id=case.id)

    def __bool__(self) -> bool:
        return bool(self._found)

    def raise_all(self) -> None:
        """Raise a ``DataFormatError`` with the first 20 lines, if there are any faults."""
        if self._found:
            more = self._found.more
            tail = (f"{self._source}: and {more:,} more",) if more else ()
            raise DataFormatError.of((*self._found.lines, *tail))


def _named(case_id: str) -> str:
    if not case_id:
        return ""
    return f"`{case_id[:_LONGEST_ID]}{'…' if len(case_id) > _LONGEST_ID else ''}`"
