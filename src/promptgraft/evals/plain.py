"""Cases of plain files: the meaning of columns and keys, and the kinds of their values.

Keys may be in snake_case or camelCase; a key whose value is null counts as absent.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from promptgraft.adapters.base import Usage
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.types import Answer, Case, Message, Speaker, ToolUse, Turn
from promptgraft.serde import Json, did_you_mean, parse_json, shown
from promptgraft.strict.checks import (
    ANYTHING,
    OBJECT,
    STRING,
    Check,
    Kind,
    check,
    money,
    number,
    one_of,
)
from promptgraft.strict.kinds import Key, Keys, either, keys_of, listed, named, record, record_of
from promptgraft.strict.nodes import Node

_SPEAKERS = {
    "assistant": Speaker.ASSISTANT,
    "model": Speaker.ASSISTANT,
    "system": Speaker.SYSTEM,
    "user": Speaker.USER,
}
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}


def _flag(value: object) -> bool | None:
    return _FLAGS.get(str(value).strip().lower()) if isinstance(value, (str, int)) else None


def _read_hints(node: Node) -> Mapping[str, str] | None:
    if isinstance(node.value, str):
        return {"": node.value} if node.value else {}
    return named(STRING).read(node)


FLAG: Check[bool] = check("true or false", _flag)
"""A boolean, also written as ``yes``, ``no``, ``1`` or ``0``."""
HINTS: Kind[Mapping[str, str]] = Kind(_read_hints)
"""Hints by metric; a bare text applies to all metrics."""


def _text_of_part(text: str | None = None, thought: object = None) -> str:
    if text is None and not thought:
        raise ConfigError("expected the key `text`, found none")
    # Recordings also hold what a model thought, which is no part of what it said.
    return "" if thought else text or ""


def _text_of(
    content: str | None = None,
    parts: tuple[str, ...] | None = None,
    role: str = "",  # noqa: ARG001 - its kind has checked it, and it is not kept
) -> str:
    if (content is None) == (parts is None):
        raise ConfigError("expected either `content` or `parts`")
    return "\n".join(text for text in parts or () if text) if content is None else content


def _message(*, role: str, **said: Any) -> Message:
    return Message(_SPEAKERS[role], _text_of(**said))


def _said(roles: tuple[str, ...], *, required: bool) -> Keys:
    part = record(_text_of_part, {"text": Key(STRING), "thought": Key(ANYTHING)}, aliases={})
    return {
        "role": Key(one_of(*roles), required=required),
        "content": Key(STRING),
        "parts": Key(listed(part)),
    }


def error_text(*roles: str) -> Kind[str]:
    """Return the kind of values that are a text or a message of one of these roles."""
    kind = record(_text_of, _said(roles, required=False), aliases={})
    return either("a text or a message", (str, STRING), (dict, kind))


MESSAGES: Kind[tuple[Message, ...]] = listed(
    record(_message, _said(tuple(_SPEAKERS), required=True), aliases={})
)
USE_KEYS = keys_of(ToolUse, special={"arguments": OBJECT, "result": ANYTHING})
USE_ALIASES = {"args": "arguments"}


TOOL_USES: Kind[tuple[ToolUse, ...]] = listed(
    record(ToolUse, USE_KEYS, aliases=USE_ALIASES, left_out=("id",))
)
TURNS: Kind[tuple[Turn, ...]] = listed(record_of(Turn, special={"tools": TOOL_USES}, aliases={}))
ANSWER: Kind[Answer] = either(
    "a text or an object with `text`",
    (str, Kind(lambda node: Answer(text=str(node.value)))),
    (
        dict,
        record_of(
            Answer,
            special={
                "output": ANYTHING,
                "tools": TOOL_USES,
                "usage": record_of(Usage),
                "cost": money(0, texts=True),
                "seconds": number(0, what="seconds"),
            },
            skip=("steps", "turns"),
            aliases={},
        ),
    ),
)
"""A recorded answer: a text, or an object with the fields of an answer."""


_KINDS: Mapping[str, Kind[object]] = {
    "expected": ANYTHING,
    "critical": FLAG,
    "hints": HINTS,
    "tools": TOOL_USES,
    "turns": TURNS,
    "context": MESSAGES,
    "state": OBJECT,
    "recorded": ANSWER,
    "fields": OBJECT,
}
FIELDS = ("id", "input", *_KINDS)
_INPUT: Check[str | dict[str, Json]] = check(
    "a text or an object", lambda value: value if isinstance(value, (str, dict)) else None
)
_NO_TURN = Turn(user="")
# The cells of these columns hold JSON.
_STRUCTURED = {"tools", "turns", "context", "state", "recorded", "fields"}
# Parameters may have any name, but one this similar to the name of a field is a typing mistake.
_TYPING_MISTAKE = 0.87

Names = Mapping[str, str | Sequence[str]]


class PlainReader:
    """Reads the cases of one plain file.

    Args:
        names: the column or key of each field that has another name in the file; for ``input``
            also a list of columns, which become an object of parameters.
        keep: columns that are hidden from the agent and kept in ``Case.fields``.
        cells: whether every value is the text of a CSV cell.
    """

    def __init__(self, names: Names, keep: Collection[str], *, cells: bool) -> None:
        self._columns, self._parameters = _columns(names, keep)
        self._keep = frozenset(keep)
        by_field = {field: column for column, field in self._columns.items()}
        self._id, self._input_column = by_field.get("id", ""), by_field.get("input", "input")
        self._cells = cells
        self._takes_rest: bool | None = False if "input" in names else None

    def id_of(self, value: Mapping[str, Json]) -> Json:
        """Return the id of the case in the file, if it has one."""
        found = value.get(self._id)
        return None if self._cells and found == "" else found

    def read(self, node: Node, *, case_id: str, origin: str) -> Case | None:
        """Return a case, or note its faults and return None."""
        value = node.value if isinstance(node.value, dict) else {}
        found, rest = self._named(node)
        turns = TURNS.read(found["turns"]) if "turns" in found else ()
        last = turns[-1] if turns else _NO_TURN
        given = self._input(node, found, rest) if turns == () else last.user
        said: dict[str, Any] = {"expected": last.expected, "tools": last.tools}
        for name, kind in _KINDS.items():
            if name in found and name != "turns":
                said[name] = kind.read(found[name])
        kept = {key: value[key] for key in value if key in self._keep}
        kept |= said.pop("fields", None) or {}
        if not node.is_right():
            return None
        return Case(
            id=case_id,
            input=given,
            turns=turns if turns and len(turns) > 1 else (),
            fields=kept,
            origin=origin,
            **said,
        )

    def _named(self, node: Node) -> tuple[dict[str, Node], list[str]]:
        """Return the nodes of the fields, and the keys of all other members."""
        found: dict[str, Node] = {}
        rest: list[str] = []
        for column, item in node.value.items() if isinstance(node.value, dict) else ():
            field = self._columns.get(column)
            if field is None:
                if column not in self._keep:
                    rest.append(column)
            elif item is not None and not (self._cells and item == ""):
                is_json = self._cells and field in _STRUCTURED and isinstance(item, str)
                there = Node(item, (column,), node.source)
                there = _from_cell(there) if is_json else there
                if there.value is not None:
                    found[field] = there
        return found, rest

    def _meant(self, key: str) -> str:
        for column in difflib.get_close_matches(key, self._columns, n=1):
            field = self._columns[column]
            if field != column:
                return f" (`fields` has `{field}: {column}`; did you mean `{field}: {key}`?)"
            return did_you_mean(key, [column])
        return "; name it in `keep` or take it out"

    def _input(self, node: Node, found: Mapping[str, Node], rest: list[str]) -> Json:
        # The first case decides for its file, so that one missing `input` is a fault.
        if self._takes_rest is None:
            self._takes_rest = "input" not in found and "turns" not in found
        if self._takes_rest:
            return _all_of(node, found, rest)
        for key in rest:
            if key not in self._parameters:
                node.member(key).fault(f"unknown key{self._meant(key)}")
        value = node.value if isinstance(node.value, dict) else {}
        if self._parameters:
            for key in self._parameters:
                if key not in value:
                    node.fault(f"expected the key `{key}`, found none")
            return {key: value[key] for key in self._parameters if key in value}
        if "input" not in found:
            node.fault(f"expected the key `{self._input_column}`, found none")
            return None
        return _INPUT.read(found["input"])


def _are_texts(names: object) -> bool:
    if isinstance(names, str) or not isinstance(names, Collection):
        return False
    return all(isinstance(name, str) for name in names)


def _columns(names: Names, keep: Collection[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the field of each column, and the columns that hold parameters."""
    for field in names:
        if field not in FIELDS:
            meant = did_you_mean(field, list(FIELDS))
            raise ConfigError(f"fields: unknown field {shown(field)}{meant}; cases have {FIELDS}")
        if not isinstance(names[field], str) and (field != "input" or not _are_texts(names[field])):
            raise ConfigError(
                f"fields: expected the name of a column for `{field}`, found {shown(names[field])}"
            )
    if not _are_texts(keep):
        raise ConfigError(f"keep: expected a list of columns, found {shown(keep)}")
    given = names.get("input", "input")
    parameters = () if isinstance(given, str) else tuple(given)
    singles = {field: names.get(field, field) for field in FIELDS}
    pairs = [(name, field) for field, name in singles.items() if isinstance(name, str)]
    taken = [*(name for name, field in pairs if field in names), *parameters, *keep]
    for name in taken:
        if taken.count(name) > 1:
            raise ConfigError(f"fields: the column {shown(name)} has two meanings")
    explicit = set(taken)
    columns = {n: f for n, f in pairs if f in names or n not in explicit}
    return columns, parameters


def _from_cell(node: Node) -> Node:
    try:
        value = parse_json(str(node.value), where="")
    except DataFormatError:
        node.expected("JSON in the cell")
        value = None
    return Node(value, node.path, node.source)


def _all_of(node: Node, found: Mapping[str, Node], rest: Sequence[str]) -> dict[str, Json]:
    if "input" in found:
        node.fault("`input` here, but the first case has parameters instead; use one of both")
        return {}
    for key in rest:
        near = difflib.get_close_matches(key, FIELDS, n=1, cutoff=_TYPING_MISTAKE)
        if near:
            node.member(key).fault(f"unknown key (did you mean `{near[0]}`?)")
    if not rest:
        node.fault("expected the key `input`, found none")
    return {key: node.member(key).value for key in rest}
