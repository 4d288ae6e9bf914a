"""Cases in CSV: one row each, every cell a text under the name of its column."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from promptgraft.evals.faults import CaseFaults
from promptgraft.evals.rows import Row, read_lines
from promptgraft.serde import Json, shown

DELIMITERS = ",;\t|"
_LONG_CELL = "field larger than field limit"


def csv_rows(path: Path, faults: CaseFaults, *, delimiter: str | None = None) -> Iterator[Row]:
    """Yield the rows of a CSV file with a header; rows without any text are left out.

    The delimiter is the one of ``, ; | tab`` that is most frequent in the header, unless it
    is given or the first line says ``sep=;``.

    Raises:
        OSError: the system refuses.
    """
    lines = _Lines(path, faults)
    first = lines.peek()
    if first.lower().startswith("sep=") and len(first.strip()) == 5:
        delimiter = delimiter or first.strip()[4]
        lines.skip()
        first = lines.peek()
    separator = delimiter or _detected(first)
    if not separator:
        faults.add(lines.last, f"two delimiters are equally frequent in {shown(first.strip())}")
        return
    records = _records(csv.reader(lines, delimiter=separator, strict=True), lines, faults)
    header = next(records, None)
    if header is not None:
        columns = _columns(header[1], header[0], faults)
        yield from _rows(records, columns, faults)


class _Lines:
    """The lines of a file for ``csv.reader``; ``last`` is the number of the newest one."""

    def __init__(self, path: Path, faults: CaseFaults) -> None:
        self._lines = read_lines(path, faults)
        self._ahead: list[tuple[int, str]] = []
        self.last = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.last, text = self._ahead.pop() if self._ahead else next(self._lines)
        return text

    def peek(self) -> str:
        """Return the next line that is not blank, without taking it; empty at the end."""
        while not self._ahead:
            found = next(self._lines, None)
            if found is None:
                return ""
            if found[1].strip():
                self._ahead.append(found)
        return self._ahead[0][1]

    def skip(self) -> None:
        """Forget the line that was peeked at."""
        self._ahead.clear()


def _detected(header: str) -> str:
    bare = "".join(header.split('"')[::2])
    counts = Counter(char for char in bare if char in DELIMITERS).most_common(2)
    if len(counts) == 2 and counts[0][1] == counts[1][1]:
        return ""
    return counts[0][0] if counts else ","


def _records(
    reader: Iterator[list[str]], lines: _Lines, faults: CaseFaults
) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with the line that it begins in."""
    while True:
        before = lines.last
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            faults.add(before + 1, _explained(str(error)))
            return
        # A record of several lines begins where the line of its first cell is.
        start = lines.last - sum(cell.count("\n") for cell in record)
        if any(cell.strip() for cell in record):
            yield start, record


def _explained(error: str) -> str:
    if error.startswith(_LONG_CELL):
        limit = csv.field_size_limit()
        return f"a cell is longer than {limit:,} characters; use JSONL for such texts"
    if error == "unexpected end of data":
        return "not CSV: a quote opens in this row and never closes"
    return f"not CSV: {error}"


def _columns(header: list[str], line: int, faults: CaseFaults) -> list[str]:
    names = [cell.strip() for cell in header]
    for name, count in Counter(names).items():
        if name and count > 1:
            faults.add(line, f"{count} columns are called {shown(name)}")
    return names


def _rows(
    records: Iterator[tuple[int, list[str]]], columns: list[str], faults: CaseFaults
) -> Iterator[Row]:
    named = len([name for name in columns if name])
    for line, record in records:
        # Spreadsheets pad rows with empty cells.
        cells = record[: len(columns)] if not any(record[len(columns) :]) else record
        if len(cells) != len(columns):
            faults.add(line, f"expected {len(columns)} cells as in the header, found {len(cells)}")
            continue
        if any(cell for name, cell in zip(columns, cells, strict=True) if not name):
            faults.add(line, f"a cell stands in a column without a name, beside {named} with one")
            continue
        value: dict[str, Json] = {n: c for n, c in zip(columns, cells, strict=True) if n}
        yield Row(line, value)
