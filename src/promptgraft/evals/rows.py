"""Rows of JSONL files, each with the number of its first line, and faults of cases."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import attrs

from promptgraft.errors import ConfigError, DataFormatError, joined_faults
from promptgraft.evals.types import Case
from promptgraft.ground.serde import STRICT_JSON, Json, MismatchError, is_deeper, shown
from promptgraft.ground.strict.nodes import decoded, unreadable

if TYPE_CHECKING:
    from promptgraft.evals.column_advice import ColumnAdvice

ENDINGS = {f".{kind}": kind for kind in ("jsonl", "json", "csv", "yaml", "parquet")}
"""The formats of files of cases, by ending."""
ENDINGS |= {".ndjson": "jsonl", ".tsv": "csv", ".yml": "yaml"}
SETS = {"train": "train", "training": "train", "validation": "validation", "valid": "validation"}
"""What the sets of a split are called in files, and here."""
SETS |= {"val": "validation", "dev": "validation", "test": "test"}
MOST_SHOWN = 20
_MOST_IN_ONE_LINE = 10
_MOST_REPEATED = 3
_LONGEST_ID = 60

_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
# Values, texts in quotes, numbers and suggestions; names are kept.
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

    Texts that differ only in values count as shared in faults of cases, and in others where there
    are too many; the line shows the first. Messages name ``source``, where the cases come from.
    They show at most ``most`` lines and count the other faults.
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

    def _shared(self) -> Mapping[str, list[_Fault]]:
        lengths = map(len, self._faults.values())
        if sum(1 if length > _MOST_REPEATED else length for length in lengths) <= self._most:
            return self._faults
        shared: dict[str, list[_Fault]] = {}
        for kind, faults in self._faults.items():
            shared.setdefault(_without_values(kind), []).extend(faults)
        return shared

    def _report(self) -> Iterator[tuple[str, int]]:
        """Yield lines with the number of faults that each reports."""
        for faults in self._shared().values():
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


def advice_for(origin: str | None) -> ColumnAdvice:
    """Return what to write in Python for a case of this origin; None for the file of a project."""
    from promptgraft.evals import column_advice  # a mistake

    return column_advice.ColumnAdvice.of(origin)


DEEPEST = 100
"""The maximum nesting of lists and objects in one case."""

_HALF = re.compile(r"[\ud800-\udfff]")
_TOO_DEEP = f"nested deeper than {DEEPEST} levels"

PAGE = "expected cases, found a web page; download the file itself"


class Row(NamedTuple):
    """The plain data of one case, and its first line, counted from 1."""

    line: int
    value: Json
    in_eval_set: bool = False


def read_lines(path: Path, faults: CaseFaults, hint: str = "") -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers; the first line that is not UTF-8 is a fault.

    ``hint`` is added to the message for such a line.
    """
    is_encoded_otherwise = False

    def note(line: int, fault: str) -> None:
        nonlocal is_encoded_otherwise
        is_encoding = fault.startswith("expected UTF-8")
        # In a file of another encoding most lines have this fault; it is reported once.
        if not (is_encoding and is_encoded_otherwise):
            faults.add(line, f"{fault}{hint if is_encoding else ''}")
        is_encoded_otherwise |= is_encoding

    with path.open("rb") as file:
        for number, raw in enumerate(_raw_lines(file), start=1):
            if (text := decoded(raw, number, note)) is not None:
                yield number, text
            elif number == 1 and unreadable(raw):  # every line would be a fault
                return


def _raw_lines(file: BufferedReader) -> Iterator[bytes]:
    r"""Yield the lines of a file; they end in ``\r`` if the file has nothing else to end them."""
    first = file.readline()
    if b"\r" in first.rstrip(b"\r\n") and not file.peek(1):
        yield from first.splitlines(keepends=True)
    elif first:
        yield first
        yield from file


def unfit(value: Json) -> str:
    """Return why a value cannot be stored or sent; empty if it can."""
    if is_deeper(value, DEEPEST):
        return _TOO_DEEP
    text = json.dumps(value, ensure_ascii=False)
    if (half := _HALF.search(text)) is None:
        return ""
    near = shown(text[max(0, half.start() - 20) : half.end() + 20])
    return f"half of a surrogate pair in {near}; expected whole characters"


def jsonl_rows(path: Path, faults: CaseFaults) -> Iterator[Row]:
    """Yield the objects of a JSONL file, one for each line that is not blank."""
    is_first = True
    for number, line in read_lines(path, faults):
        if not (text := line.strip()):
            continue
        is_document = is_first and text[0] in "[{" and _is_document(path, text)
        is_first = False
        if is_document:
            faults.add(number, "one JSON document, not an object per line; set `format: json`")
            return
        try:
            value: Json = STRICT_JSON.decode(text)
        except (RecursionError, ValueError) as error:
            mend = "; write one whole object per line"
            if number == 1 and text.startswith("<"):
                faults.add(1, PAGE)
                return
            is_json = not isinstance(error, json.JSONDecodeError)
            faults.add(number, f"{explained_json(error)}{'' if is_json else mend}")
        else:
            if reason := unfit_in(value, text):
                faults.add(number, reason)
            else:
                yield Row(number, value)


def _is_document(path: Path, first: str) -> bool:
    """Return whether a file is one list, or one object that its first line only begins."""
    if first[0] == "{" and first[-1] == "}":  # a whole object, as far as one can tell
        return False
    try:
        json.loads(path.read_bytes())
    except (OSError, RecursionError, ValueError):
        return False
    return True


def explained_json(error: RecursionError | ValueError) -> str:
    """Return what is wrong with a text that is not JSON, or not strict JSON."""
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} in column {error.colno}"
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    if isinstance(error, MismatchError):
        return str(error)
    # The only JSON number that Python refuses.
    return f"expected integers of at most {sys.get_int_max_str_digits():,} digits"


def unfit_in(value: Json, text: str) -> str:
    """Return the same as :func:`unfit`, which is slow and is skipped for harmless texts."""
    # Decoded UTF-8 holds no surrogate, so that only an escape can make one.
    if text.count("[") + text.count("{") > DEEPEST or "\\ud" in text or "\\uD" in text:
        return unfit(value)
    return ""
