"""Rows of CSV files, and the readers of all other formats but JSONL."""

from __future__ import annotations

import codecs
import contextlib
import csv
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.documents import json_rows, yaml_rows
from promptgraft.evals.parquet import parquet_rows
from promptgraft.evals.rows import PAGE, CaseFaults, Row, read_lines
from promptgraft.ground.frame_rows import rows_of_frame
from promptgraft.ground.serde import shown
from promptgraft.ground.text import counted, spelled

_DELIMITERS = ",;\t|"
# The limit of the csv module, 131,072, is less than documents in cells have.
_LONGEST_CELL = 16_777_216
_BAR = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"\s*(?::?-+:?)?\s*")
_C1 = re.compile("[\x80-\x9f]")
_TWICE = "write a quote inside of a cell twice, and the cell in quotes"
_ENCODING_HINT = ", or name its `encoding`, such as cp1252 or utf-16"


def check_encoding(encoding: object) -> None:
    """Raise a ``ConfigError`` unless Python knows an encoding of texts by this name."""
    try:
        # One byte, because for none Python would not look the name up.
        b"x".decode(str(encoding))
    except UnicodeError:
        return
    except (LookupError, ValueError):
        raise ConfigError(
            f"encoding: expected the name of one, such as utf-8, cp1252, utf-16 or shift_jis, "
            f"found {shown(encoding)}"
        ) from None


def csv_rows(
    path: Path, faults: CaseFaults, *, delimiter: str | None = None, encoding: str | None = None
) -> Iterator[Row]:
    """Yield the rows of a CSV file with a header; blank rows are left out.

    Unless it is given or the first line is ``sep=;``, the delimiter is the most frequent of
    ``, ; | tab`` in the header.
    """
    _check_delimiter(delimiter)
    encoding = encoding or _marked(path)
    if encoding is None:
        numbered = read_lines(path, faults, _ENCODING_HINT)
    else:
        numbered = _encoded_lines(path, encoding, faults)
    first = _next_filled(numbered)
    # `sep=;`, which Excel reads and writes.
    if first[1].lower().startswith("sep=") and len(first[1].strip()) == 5:
        delimiter = delimiter or first[1].strip()[4]
        first = _next_filled(numbered)
    if first[1].lstrip().lower().startswith(("<!doctype", "<html")):
        faults.add(first[0], PAGE)
        return
    separator = delimiter or _detected(first[1])
    if not separator:
        faults.add(0, f"two delimiters are equally frequent in {shown(first[1].strip())}")
        return
    top = [first, *itertools.islice(numbered, 1)]
    numbered = itertools.chain(top, numbered)
    is_markdown = separator == "|" and _is_rule(top[-1][1])
    read = _of_markdown(numbered) if is_markdown else None
    records = read or _records(_Lines(numbered), separator, faults)
    line, header = next(records, (0, []))
    columns = [cell.strip() for cell in header]
    for name, count in Counter(columns).items():
        if name and count > 1:
            faults.add(line, f"{count} columns are called {shown(name)}; rename all but one")
    named = len([name for name in columns if name])
    title = ", or take the title above the header out" if named == 1 else ""
    for line, record in records:
        # Spreadsheets pad rows with empty cells.
        cells = record[: len(columns)] if not any(record[len(columns) :]) else record
        if len(cells) != len(columns):
            expectation = f"expected {counted(len(columns), 'cell')} as in the header"
            mend = f"; put quotes around a cell that contains `{spelled(separator)}`{title}"
            mend = r"; write `\|` for a bar in a cell" if is_markdown else mend
            is_longer = len(cells) > len(columns)
            faults.add(line, f"{expectation}, found {len(cells)}{mend if is_longer else ''}")
        elif any(cell for name, cell in zip(columns, cells, strict=True) if not name):
            mend = "name it in the header, or leave it out, in pandas with `to_csv(index=False)`"
            what = f"a cell is in a column without a name, beside {named} with one"
            faults.add(line, f"{what}; {mend}{title}")
        elif [cell.strip() for cell in cells] == columns:
            # Files that were joined have one each.
            faults.add(line, "the header once more; take it out")
        else:
            yield Row(line, {n: c for n, c in zip(columns, cells, strict=True) if n})


def _is_rule(line: str) -> bool:
    """Return whether a line is the rule below the header of a Markdown table."""
    return "-" in line and all(map(_RULE.fullmatch, line.split("|")))


def _of_markdown(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    r"""Yield the records of a Markdown table, where quotes are literal and `\|` is a bar."""
    for line, text in numbered:
        if text.strip() and not _is_rule(text):
            yield line, [cell.strip().replace(r"\|", "|") for cell in _BAR.split(text.strip())]


def _check_delimiter(delimiter: str | None) -> None:
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ConfigError(f"delimiter: expected one character, found {shown(delimiter)}")


def _encoded_lines(path: Path, encoding: str, faults: CaseFaults) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file in another encoding than UTF-8; reading ends at a fault."""
    check_encoding(encoding)
    number = 0
    # Line breaks stay as they are: inside of quotes they belong to a cell.
    with path.open(encoding=encoding, newline="") as file:
        try:
            is_latin = codecs.lookup(encoding).name.startswith("iso8859")
            for number, text in enumerate(file, start=1):
                if is_latin and _C1.search(text):
                    what = f"expected {encoding}, found bytes of control characters"
                    faults.add(
                        number, f"{what}; `cp1252` reads them as quotes, dashes and euro signs"
                    )
                    return
                yield number, text.removeprefix("\ufeff") if number == 1 else text
        except UnicodeError as error:
            why = getattr(error, "reason", str(error))
            faults.add(number + 1, f"expected {encoding}, found other bytes here or later ({why})")


def _marked(path: Path) -> str | None:
    """Return the encoding that the mark at the beginning of a file names."""
    with path.open("rb") as file:
        is_wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return "utf-16" if is_wide else None


def _next_filled(numbered: Iterator[tuple[int, str]]) -> tuple[int, str]:
    return next(((number, text) for number, text in numbered if text.strip()), (0, ""))


@attrs.define
class _Lines:
    """The lines of a file for ``csv.reader``; ``last`` is the number of the last line read."""

    numbered: Iterator[tuple[int, str]]
    last: int = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.last, text = next(self.numbered)
        return text


def _detected(header: str) -> str:
    bare = "".join(header.split('"')[::2])  # delimiters between quotes do not count
    counts = Counter(char for char in bare if char in _DELIMITERS).most_common(2)
    if len(counts) == 2 and counts[0][1] == counts[1][1]:
        return ""
    return counts[0][0] if counts else ","


def _records(lines: _Lines, separator: str, faults: CaseFaults) -> Iterator[tuple[int, list[str]]]:
    """Yield each record that is not blank, with the number of its first line."""
    # `strict`, because otherwise a stray quote swallows rows without an error.
    reader = csv.reader(lines, delimiter=separator, strict=True)
    while True:
        before = lines.last
        try:
            # The limit is one of the process, so it is only raised for a moment.
            with _long_cells():
                record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            faults.add(before + 1, _explained(str(error)))
            return
        # Line breaks inside cells, so that a record has the number of its first line.
        start = lines.last - sum(cell.count("\n") for cell in record)
        if separator == "\t" and any("\t" in cell and "\n" in cell for cell in record):
            # Many files of tabs have bare quotes, and one at the start of a cell swallows rows.
            faults.add(start, f"a cell holds a tab and a line break; {_TWICE}, or use JSONL")
        elif any(cell.strip() for cell in record):
            yield start, record


@contextlib.contextmanager
def _long_cells() -> Iterator[None]:
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _explained(error: str) -> str:
    if error.startswith("field larger than field limit"):
        return f"a cell is longer than {_LONGEST_CELL:,} characters; use JSONL for such texts"
    if error == "unexpected end of data":
        return f"not CSV: a quote opens in this row and never closes; {_TWICE}"
    return f"not CSV: {error}; {_TWICE}"


READERS: Mapping[str, Callable[..., Iterator[Any]]] = {
    "csv": csv_rows,
    "json": json_rows,
    "yaml": yaml_rows,
    "parquet": parquet_rows,
    "frame": rows_of_frame,
}
"""What reads a file of each format but JSONL, or a table in memory."""
