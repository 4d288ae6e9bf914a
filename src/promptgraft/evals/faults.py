"""Faults of cases, collected so that one message reports all of them briefly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

import attrs

from promptgraft.errors import ConfigError, DataFormatError, joined_faults
from promptgraft.evals.types import Case

MOST_SHOWN = 20
_MOST_IN_ONE_LINE = 10
_MOST_REPEATED = 3
_LONGEST_ID = 60

_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
# What was found, texts in quotes, numbers, and what was suggested for them; names are kept.
_VALUES = re.compile(
    rf"(?<=found )(?:{_QUOTED}|[^;]|;(?! ))*|{_QUOTED}|\d+(?:\.\d+)?"
    r"| \(did you mean `[^`]*`\?\)|(?P<name>`[^`]*`)"
)


def _without_values(text: str) -> str:
    return _VALUES.sub(lambda value: value["name"] or "", text)


@attrs.frozen
class _Fault:
    """A fault of a case: its text, the place and case before it, and its name in a list."""

    text: str
    where: str
    name: str


class CaseFaults:
    """Collects the faults of cases; a fault that more than three share takes one line.

    Faults of cases whose texts differ only in values count as shared; the line shows the first.
    Messages name ``source``, where the cases come from. They show at most ``most`` lines and count
    the other faults.
    """

    def __init__(self, source: str = "", most: int = MOST_SHOWN) -> None:
        self._source = source
        self._most = most
        self._faults: dict[str, list[_Fault]] = {}  # by their texts without values

    def add(self, line: int, text: str, case_id: str = "") -> None:
        """Add a fault in a line of the source, counted from 1; 0 means the whole source."""
        place = f"{self._source}:{line}" if line else self._source
        self._add(place, text, case_id, text)

    def add_of(self, case: Case, text: str) -> None:
        """Add a fault of a case; ``text`` may already begin with its origin and id."""
        text = text.removeprefix(f"{case.origin}: ").removeprefix(f"case `{case.id}`: ")
        self._add(case.origin, text, case.id, _without_values(text))

    def _add(self, place: str, text: str, case_id: str, kind: str) -> None:
        cut = "…" if len(case_id) > _LONGEST_ID else ""
        named = f"`{case_id[:_LONGEST_ID]}{cut}`" if case_id else ""
        where = f"{place}: " if place else ""
        text, kind = (" ".join(text_of_fault.splitlines()) for text_of_fault in (text, kind))
        fault = _Fault(text, f"{where}case {named}: " if named else where, named or place)
        self._faults.setdefault(kind, []).append(fault)

    def __bool__(self) -> bool:
        return bool(self._faults)

    def _report(self) -> Iterator[tuple[str, int]]:
        """Yield lines with the number of faults that each reports."""
        for faults in self._faults.values():
            if len(faults) <= _MOST_REPEATED:
                yield from ((f"{fault.where}{fault.text}", 1) for fault in faults)
                continue
            first, *later_faults = faults
            is_same = all(fault.text == first.text for fault in later_faults)
            named = ", ".join(fault.name for fault in later_faults[: _MOST_REPEATED - 1])
            more = (
                f"{'the same' if is_same else 'similar'} in {len(later_faults):,} more: {named}, …"
            )
            yield f"{first.where}{first.text}; {more}", len(faults)

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
