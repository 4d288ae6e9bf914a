"""The faults of cases: all of them are found before a source is refused, and told briefly."""

from __future__ import annotations

import attrs

from promptgraft.errors import ConfigError, DataFormatError, joined_faults
from promptgraft.evals.types import Case

MOST_SHOWN = 20
_MOST_IN_ONE_LINE = 10
_TOLD_EACH = 3
_LONGEST_ID = 60


@attrs.define
class _Fault:
    """One fault of several cases, and where the first few of them stand."""

    text: str
    count: int = 0
    places: list[tuple[str, str]] = attrs.field(factory=list)

    def lines(self) -> list[str]:
        if self.count <= _TOLD_EACH:
            return [f"{where}{self.text}" for where, _ in self.places]
        (where, _), *others = self.places
        named = ", ".join(name for _, name in others)
        return [f"{where}{self.text}; the same in {self.count - 1:,} more: {named}, …"]


class CaseFaults:
    """Collects what is wrong with cases; what more than three share is said once.

    Messages call what the cases are read from ``source``. At most ``most`` lines are shown, the
    other faults counted.
    """

    def __init__(self, source: str = "", most: int = MOST_SHOWN) -> None:
        self._source = source
        self._most = most
        self._faults: dict[str, _Fault] = {}
        self._count = 0

    def add(self, line: int, text: str, case_id: str = "") -> None:
        """Note a fault in a line of the source, from 1; 0 stands for the whole source."""
        self._add(f"{self._source}:{line}" if line else self._source, text, case_id)

    def add_of(self, case: Case, text: str) -> None:
        """Note a fault of a case where it stands; the text may name both already."""
        text = text.removeprefix(f"{case.origin}: ").removeprefix(f"case `{case.id}`: ")
        self._add(case.origin, text, case.id)

    def _add(self, place: str, text: str, case_id: str) -> None:
        self._count += 1
        one_line = " ".join(text.splitlines())
        if one_line not in self._faults and len(self._faults) == self._most:
            return
        fault = self._faults.setdefault(one_line, _Fault(one_line))
        fault.count += 1
        if fault.count <= _TOLD_EACH:
            cut = "…" if len(case_id) > _LONGEST_ID else ""
            named = f"`{case_id[:_LONGEST_ID]}{cut}`" if case_id else ""
            where = f"{place}: " if place else ""
            fault.places.append((f"{where}case {named}: " if named else where, named or place))

    def __bool__(self) -> bool:
        return bool(self._faults)

    @property
    def lines(self) -> list[str]:
        return [line for fault in self._faults.values() for line in fault.lines()][: self._most]

    @property
    def more(self) -> int:
        """How many faults the lines leave out."""
        left, told = self._most, 0
        for fault in self._faults.values():
            lines = min(left, len(fault.lines()))
            told += fault.count if fault.count > _TOLD_EACH and lines else lines
            left -= lines
        return self._count - told

    def refuse(self) -> None:
        """Raise a ``ConfigError`` with the faults in one line, if there are any."""
        if self._faults:
            raise ConfigError(joined_faults(self.lines, self.more))

    def raise_all(self) -> None:
        """Raise a ``DataFormatError`` with one line each, if there are any."""
        if self._faults:
            tail = (f"{self._source}: and {self.more:,} more",) if self.more else ()
            raise DataFormatError.of((*self.lines, *tail))


def in_one_line() -> CaseFaults:
    """Return a collection for a message of one line."""
    return CaseFaults(most=_MOST_IN_ONE_LINE)
