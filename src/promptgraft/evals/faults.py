"""The faults of one file: all of them are found before the file is refused."""

from __future__ import annotations

from promptgraft.errors import DataFormatError

MOST_SHOWN = 20
_LONGEST_ID = 60


class Faults:
    """Collects what is wrong with one source of cases.

    Only the first 20 faults are kept; the others are counted.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._lines: list[str] = []
        self._more = 0

    def add(self, line: int, text: str, case_id: str = "") -> None:
        """Note a fault; ``line`` counts from 1, and 0 stands for the whole file."""
        where = f"{self._source}:{line}" if line else self._source
        self.add_line(f"{where}: {_named(case_id)}{text}")

    def add_line(self, fault: str) -> None:
        """Note a fault that says where it stands."""
        if len(self._lines) < MOST_SHOWN:
            self._lines.append(" ".join(fault.splitlines()))
        else:
            self._more += 1

    def __bool__(self) -> bool:
        return bool(self._lines)

    def raise_all(self) -> None:
        """Refuse the source if there is a fault.

        Raises:
            DataFormatError: with the first 20 faults, and how many more there are.
        """
        if self._lines:
            more = (f"{self._source}: and {self._more:,} more",) if self._more else ()
            lines = (*self._lines, *more)
            raise DataFormatError.of(lines)


def _named(case_id: str) -> str:
    if not case_id:
        return ""
    return f"case `{case_id[:_LONGEST_ID]}{'…' if len(case_id) > _LONGEST_ID else ''}`: "
