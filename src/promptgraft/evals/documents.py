"""Rows of JSON and YAML documents, each with the number of its first line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from promptgraft.evals.rows import CaseFaults, Row, explained_json, unfit_in
from promptgraft.ground.serde import STRICT_JSON, Json, MismatchError, did_you_mean, shown
from promptgraft.ground.strict.kinds import snake_case
from promptgraft.ground.strict.nodes import read_text
from promptgraft.ground.text import listed
from promptgraft.ground.yaml_text import read_yaml

_LENIENT = json.JSONDecoder()
_MOST_UNKNOWN = 20
_OF_EVAL_SETS = {"conversation", "actualConversation", "actual_conversation"}
_OF_CASES = {"input", "expected"}
_ROLES = {"assistant", "developer", "function", "model", "system", "tool", "user"}
_SET_KEYS = ("eval_set_id", "name", "description", "eval_cases", "creation_timestamp", "app_name")


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
        faults.add(at_line, explained_json(error))


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
            if _is_cases(key) and self._next() == "[":
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
        elif not self._next():  # several documents are one fault
            yield from _eval_set_rows(members, start, self._faults)

    def _value(self, line: int) -> Iterator[Json]:
        self._next()
        start = self._at
        try:
            value, self._at = STRICT_JSON.raw_decode(self._text, start)
        except MismatchError as error:  # still valid JSON, so continue behind it
            self._faults.add(line, str(error))
            _, self._at = _LENIENT.raw_decode(self._text, start)
            return
        if reason := unfit_in(value, self._text[start : self._at]):
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


def _is_cases(key: str) -> bool:
    """Return whether a key of an EvalSet holds its cases."""
    return snake_case(key) == "eval_cases"


def _eval_set_rows(found: dict[str, Json], line: int, faults: CaseFaults) -> Iterator[Row]:
    """Check the object around the cases of an EvalSet, or yield it if it is a case itself."""
    if any(_is_cases(key) for key in found):
        for key, value in found.items():
            if _is_cases(key) and value is not None and not isinstance(value, list):
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
    is_other = any(map(_is_cases, members)) or _OF_EVAL_SETS & members.keys() or _is_case(members)
    lists = {} if is_other else _lists(members)
    return next(iter(lists)) if len(lists) == 1 else ""


def _is_case(members: Mapping[str, Json]) -> bool:
    """Return whether an object is a single case, perhaps with a list of messages or of calls."""
    named = [members[key] for key in _OF_CASES & members.keys()]
    return any(not isinstance(value, list) for value in named) or any(
        all(item.get("role") in _ROLES or {"from", "value"} <= item.keys() for item in items)
        for items in _lists(members).values()
    )


def _lists(members: Mapping[str, Json]) -> dict[str, list[dict[str, Json]]]:
    """Return the lists of several objects, by key."""
    lists = {key: value for key, value in members.items() if isinstance(value, list) and value[1:]}
    return {
        key: [item for item in items if isinstance(item, dict)]
        for key, items in lists.items()
        if all(isinstance(item, dict) for item in items)
    }


def _as_list(members: Mapping[str, Json]) -> str:
    """Return how the cases in an object become a list; empty if there are none in it."""
    lists = _lists(members)
    if lists and not _is_case(members):
        return f"; write one of the lists {listed(list(lists))} alone"
    is_table = all(isinstance(value, list | dict) for value in members.values())
    if len(members) > 1 and is_table and not lists:
        return "; write a list of rows, in pandas with `to_json(FILE, orient='records')`"
    return "; write a single case in a list: `[{…}]`" if _is_case(members) else ""


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
            if (key == only or _is_cases(key)) and isinstance(member, list):
                for at, case in enumerate(member):
                    yield Row(lines[key, at], case, in_eval_set=key != only)
        if not only:
            yield from _eval_set_rows(value, lines[()], faults)
    elif value is not None:
        faults.add(lines[()], "expected a list of cases or an EvalSet")
