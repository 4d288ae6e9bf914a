"""Faults of cases, collected so that one message reports all of them briefly."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from promptgraft.errors import ConfigError, DataFormatError, joined_faults
from promptgraft.evals.types import Case

MOST_SHOWN = 20
_MOST_IN_ONE_LINE = 10
_MOST_REPEATED = 3
_LONGEST_ID = 60


class CaseFaults:
    """Collects the faults of cases; a fault that more than three share takes one line.

    Messages name ``source``, where the cases come from. They show at most ``most`` lines and count
    the other faults.
    """

    def __init__(self, source: str = "", most: int = MOST_SHOWN) -> None:
        self._source = source
        self._most = most
        self._faults: dict[str, list[tuple[str, str]]] = {}  # the places of each text

    def add(self, line: int, text: str, case_id: str = "") -> None:
        """Add a fault in a line of the source, counted from 1; 0 means the whole source."""
        self._add(f"{self._source}:{line}" if line else self._source, text, case_id)

    def add_of(self, case: Case, text: str) -> None:
        """Add a fault of a case; ``text`` may already begin with its origin and id."""
        text = text.removeprefix(f"{case.origin}: ").removeprefix(f"case `{case.id}`: ")
        self._add(case.origin, text, case.id)

    def _add(self, place: str, text: str, case_id: str) -> None:
        cut = "…" if len(case_id) > _LONGEST_ID else ""
        named = f"`{case_id[:_LONGEST_ID]}{cut}`" if case_id else ""
        where = f"{place}: " if place else ""
        found = (f"{where}case {named}: " if named else where, named or place)
        self._faults.setdefault(" ".join(text.splitlines()), []).append(found)

    def __bool__(self) -> bool:
        return bool(self._faults)

    def _report(self) -> Iterator[tuple[str, int]]:
        """Yield lines with the number of faults that each reports."""
        for text, places in self._faults.items():
            if len(places) <= _MOST_REPEATED:
                yield from ((f"{where}{text}", 1) for where, _ in places)
            else:
                (where, _), *others = places[:_MOST_REPEATED]
                named = ", ".join(name for _, name in others)
                more = f"the same in {len(places) - 1:,} more: {named}, …"
                yield f"{where}{text}; {more}", len(places)

    @property
    def lines(self) -> list[str]:
        return [line for line, _ in islice(self._report(), self._most)]

    @property
    def more(self) -> int:
        """The number of faults that ``lines`` leaves out."""
        return sum(count for _, count in islice(self._report(), self._most, None))

    def refuse(self) -> None:
        """Raise a ``ConfigError`` with all faults on one line, if there are any."""
        if self._faults:
            raise ConfigError(joined_faults(self.lines, self.more))

    def raise_all(self) -> None:
        """Raise a ``DataFormatError`` with one line per fault, if there are any."""
        if self._faults:
            tail = (f"{self._source}: and {self.more:,} more",) if self.more else ()
            raise DataFormatError.of((*self.lines, *tail))


def in_one_line() -> CaseFaults:
    """Return a collection for a one-line message."""
    return CaseFaults(most=_MOST_IN_ONE_LINE)
