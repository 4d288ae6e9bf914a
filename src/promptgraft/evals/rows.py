"""Rows of JSON and YAML files, each with the number of its first line, and their faults."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import attrs

from promptgraft.errors import ConfigError, DataFormatError, joined_faults
from promptgraft.evals.types import Case
from promptgraft.ground.serde import (
    STRICT_JSON,
    Json,
    MismatchError,
    did_you_mean,
    is_deeper,
    shown,
)
from promptgraft.ground.strict.kinds import snake_case
from promptgraft.ground.strict.nodes import decoded, read_text, unreadable
from promptgraft.ground.text import listed
from promptgraft.ground.yaml_text import read_yaml

ENDINGS = {f".{kind}": kind for kind in ("jsonl", "json", "csv", "yaml", "parquet")}
"""The formats of files of cases, by ending."""
ENDINGS |= {".ndjson": "jsonl", ".tsv": "csv", ".yml": "yaml"}
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
        """Return the faults by what they share."""
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


DEEPEST = 100
"""The maximum nesting of lists and objects in one case."""

_LENIENT = json.JSONDecoder()
_HALF = re.compile(r"[\ud800-\udfff]")
_TOO_DEEP = f"nested deeper than {DEEPEST} levels"
_MOST_UNKNOWN = 20
_OF_EVAL_SETS = {"conversation", "actualConversation", "actual_conversation"}
_SET_KEYS = ("eval_set_id", "name", "description", "eval_cases", "creation_timestamp", "app_name")

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
        # Of a file in another encoding most lines are wrong, for one reason.
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


def check_encoding(encoding: object) -> None:
    """Raise a ``ConfigError`` unless Python knows an encoding of texts by this name."""
    try:
        # Of no bytes, the name would not be looked up.
        b"x".decode(str(encoding))
    except UnicodeError:
        return
    except (LookupError, ValueError):
        raise ConfigError(
            f"encoding: expected the name of one, such as utf-8, cp1252, utf-16 or shift_jis, "
            f"found {shown(encoding)}"
        ) from None


def is_cases(key: str) -> bool:
    """Return whether a key of an EvalSet holds its cases."""
    return snake_case(key) == "eval_cases"


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
            faults.add(number, f"{_explained_json(error)}{'' if is_json else mend}")
        else:
            if reason := _unfit(value, text):
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


def json_rows(path: Path, faults: CaseFaults) -> Iterator[Row]:
    """Yield the cases of a JSON file: a list, an EvalSet, or one case of an EvalSet."""
    text = read_text(path, faults.add)
    if text is None or not text.strip():
        return
    scanner = _Scanner(text, faults)
    try:
        yield from scanner.document()
    except (RecursionError, ValueError) as error:
        at_line = error.lineno if isinstance(error, json.JSONDecodeError) else scanner.line()
        faults.add(at_line, _explained_json(error))


def _explained_json(error: RecursionError | ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} in column {error.colno}"
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    if isinstance(error, MismatchError):
        return str(error)
    # The only JSON number that Python refuses.
    return f"expected integers of at most {sys.get_int_max_str_digits():,} digits"


def _unfit(value: Json, text: str) -> str:
    """Return the same as :func:`unfit`, which is slow and is skipped for harmless texts."""
    # Decoded UTF-8 holds no surrogate, so that only an escape can make one.
    if text.count("[") + text.count("{") > DEEPEST or "\\ud" in text or "\\uD" in text:
        return unfit(value)
    return ""


class _Scanner:
    """Reads a JSON document case by case, and knows the line of each.

    Unlike a parser of whole documents, it continues after an element that is at fault, so that
    all faults are found at once.
    """

    def __init__(self, text: str, faults: CaseFaults) -> None:
        self._text = text
        self._faults = faults
        self._at = 0
        self._counted = 0
        self._line = 1

    def document(self) -> Iterator[Row]:
        if self._next() == "[":
            yield from self._items(in_eval_set=False)
        elif self._next() == "{":
            yield from self._members()
        else:
            self._faults.add(self.line(), "expected a list of cases or an EvalSet")
            return
        if self._next():
            self._faults.add(
                self.line(), "more than one JSON document; set `format: jsonl` if each is a line"
            )

    def line(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _items(self, *, in_eval_set: bool) -> Iterator[Row]:
        self._take("[")
        ended = self._next() == "]" and bool(self._take("]"))
        while not ended:
            self._next()
            line = self.line()
            for value in self._value(line):
                yield Row(line, value, in_eval_set)
            ended = self._take(",]") == "]"

    def _members(self) -> Iterator[Row]:
        start = self.line()
        members: dict[str, Json] = {}
        places: dict[str, int] = {}
        self._take("{")
        ended = self._next() == "}" and bool(self._take("}"))
        while not ended:
            self._next()
            line = self.line()
            if self._next() != '"':
                raise json.JSONDecodeError("Expecting a key", self._text, self._at)
            key, self._at = STRICT_JSON.raw_decode(self._text, self._at)
            self._take(":")
            if key in members:
                self._faults.add(line, f"the key {key!r} occurs twice in one object")
            if is_cases(key) and self._next() == "[":
                yield from self._items(in_eval_set=True)
                members[key] = None
            else:
                places[key] = self._at
                members[key] = next(self._value(line), None)
            ended = self._take(",}") == "}"
        if key := _only_list(members):
            # Once more, because each of its cases has a line.
            end, self._at, self._counted, self._line = self._at, places[key], 0, 1
            yield from self._items(in_eval_set=False)
            self._at = end
        else:
            yield from eval_set_rows(members, start, self._faults)

    def _value(self, line: int) -> Iterator[Json]:
        self._next()
        start = self._at
        try:
            value, self._at = STRICT_JSON.raw_decode(self._text, start)
        except MismatchError as error:  # still valid JSON, so continue behind it
            self._faults.add(line, str(error))
            _, self._at = _LENIENT.raw_decode(self._text, start)
            return
        if reason := _unfit(value, self._text[start : self._at]):
            self._faults.add(line, reason)
        else:
            yield value

    def _next(self) -> str:
        while self._text[self._at : self._at + 1] in {" ", "\t", "\r", "\n"}:
            self._at += 1
        return self._text[self._at : self._at + 1]

    def _take(self, chars: str) -> str:
        char = self._next()
        if not char or char not in chars:
            expected = " or ".join(f"'{char}'" for char in chars)
            raise json.JSONDecodeError(f"Expecting {expected}", self._text, self._at)
        self._at += 1
        return char


def eval_set_rows(found: dict[str, Json], line: int, faults: CaseFaults) -> Iterator[Row]:
    """Check the object around the cases of an EvalSet, or yield it if it is a case itself."""
    if any(is_cases(key) for key in found):
        for key, value in found.items():
            if is_cases(key) and value is not None and not isinstance(value, list):
                faults.add(line, f"{key}: expected a list of cases, found {shown(value)}")
        unknown = [key for key in found if snake_case(key) not in _SET_KEYS]
        for key in unknown[:_MOST_UNKNOWN]:
            meant = did_you_mean(snake_case(key), _SET_KEYS)
            faults.add(line, f"unknown field {shown(key)} of an EvalSet{meant}")
        if len(unknown) > _MOST_UNKNOWN:
            more = len(unknown) - _MOST_UNKNOWN
            faults.add(line, f"{more:,} more unknown fields of an EvalSet")
    elif _OF_EVAL_SETS & found.keys():
        yield Row(line, found, in_eval_set=True)
    else:
        keys = f"the keys {listed(list(found)[:_MOST_UNKNOWN])}" if found else "no keys"
        what = f"expected a list of cases or an EvalSet, found an object with {keys}"
        faults.add(line, f"{what}{_as_list(found)}")


def _only_list(members: Mapping[str, Json]) -> str:
    """Return the key of the only list of objects in an object that is nothing of an EvalSet."""
    lists = [] if any(map(is_cases, members)) or _OF_EVAL_SETS & members.keys() else _lists(members)
    return lists[0] if len(lists) == 1 else ""


def _lists(members: Mapping[str, Json]) -> list[str]:
    """Return the keys of lists of objects."""
    lists = {key: value for key, value in members.items() if isinstance(value, list) and value[1:]}
    return [key for key in lists if all(isinstance(item, dict) for item in lists[key])]


def _as_list(members: Mapping[str, Json]) -> str:
    """Return how the cases in an object become a list; empty if there are none in it."""
    if lists := _lists(members):
        return f"; write one of the lists {listed(lists)} alone"
    if len(members) > 1 and all(isinstance(value, list | dict) for value in members.values()):
        return "; write a list of rows, in pandas with `to_json(FILE, orient='records')`"
    return ""


def yaml_rows(path: Path, faults: CaseFaults) -> Iterator[Row]:
    """Yield the cases of a YAML file: a list, an EvalSet, or one case of an EvalSet."""
    text = read_text(path, faults.add)
    if text is None or (document := read_yaml(text, faults.add)) is None:
        return
    value, lines = document.value, document.lines
    if isinstance(value, list):
        for at, case in enumerate(value):
            yield Row(lines[at,], case)
    elif isinstance(value, dict):
        only = _only_list(value)
        for key, member in value.items():
            if (key == only or is_cases(key)) and isinstance(member, list):
                for at, case in enumerate(member):
                    yield Row(lines[key, at], case, in_eval_set=key != only)
        if not only:
            yield from eval_set_rows(value, lines[()], faults)
    elif value is not None:
        faults.add(lines[()], "expected a list of cases or an EvalSet")
