"""The fields of a reply, on lines or in one JSON object, and what they may hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from promptgraft.errors import DataFormatError
from promptgraft.parts.examples import one_line
from promptgraft.serde import Json, shown
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.loose_fields import FieldNames, Fields
from promptgraft.targets.loose_json import MAX_DEPTH, read_json
from promptgraft.targets.loose_lines import Lines

_UNUSABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_FENCED = re.compile(r"(?P<run>`{3,}+|~{3,}+)[^`\n]*+\n(?P<body>.*)\n(?P=run)", re.DOTALL)


@contextmanager
def refusing() -> Iterator[None]:
    """Turn faults of the data into reasons to refuse a proposal."""
    try:
        yield
    except DataFormatError as error:
        raise InvalidProposalError(RejectionReason.UNPARSABLE, str(error)) from None


def empty_fault(detail: str) -> InvalidProposalError:
    """Return the fault that nothing stands where something should."""
    return InvalidProposalError(RejectionReason.EMPTY, detail)


def reply_body(text: str) -> str:
    """Return the text that holds the fields: with one kind of line end, and without a fence.

    Raises:
        InvalidProposalError: it is empty, or holds characters that no prompt should.
    """
    body = text.replace("\r\n", "\n").replace("\r", "\n").strip("\ufeff \t\n")
    if not body:
        raise empty_fault("the text is empty")
    _usable(body, "the text")
    fenced = _FENCED.fullmatch(body)
    return fenced["body"].strip() if fenced else body


def _usable(text: str, where: str) -> str:
    if bad := _UNUSABLE.search(text):
        raise InvalidProposalError(
            RejectionReason.UNUSABLE_TEXT,
            f"{where} holds the character U+{ord(bad[0]):04X}; leave it out",
        )
    return text


def whole_reply(text: str, names: FieldNames) -> dict[str, Json] | None:
    """Return the fields of a text that is one JSON object, with or without its brackets.

    Returns:
        None for a text that is written in another way.

    Raises:
        DataFormatError: it begins like an object and is none, or a field is unknown.
    """
    if text.startswith('"'):
        try:
            value, end = read_json(f"{{{text}}}", 0, where="the text")
        except DataFormatError:
            return None
        return by_name(value, names) if end == len(text) + 2 else None
    if not text.startswith("{"):
        return None
    lines = Lines(text)
    value = lines.json_at(0, where="the text")
    if lines.more():
        raise DataFormatError(
            f"line {lines.row + 1}: expected nothing after the JSON, found {shown(lines.line)}"
        )
    return by_name(value, names)


def by_name(value: Json, names: FieldNames, where: str = "") -> dict[str, Json]:
    """Return the fields of an object, by the names that were meant.

    Raises:
        DataFormatError: it is no object, or a field is unknown or occurs twice.
    """
    if not isinstance(value, dict):
        raise DataFormatError(f"{where}expected an object, found {shown(value)}")
    found: dict[str, Json] = {}
    for written, inner in value.items():
        name = names.get(written)
        if name is None:
            raise DataFormatError(f"{where}unknown field {names.unknown(written)}")
        put(found, name, inner, where)
    return found


def put(found: dict[str, Json], name: str, value: Json, where: str = "") -> None:
    """Add a field.

    Raises:
        DataFormatError: it is there already.
    """
    name = "tool" if name == "tool_name" else name
    if name in found:
        raise DataFormatError(f"{where}the field `{name}` occurs twice; expected it once")
    found[name] = value


def read_fields(fields: Fields) -> dict[str, Json]:
    """Return all the fields of a text.

    Raises:
        InvalidProposalError: something else stands there, or a value is missing.
        DataFormatError: a value cannot be read, or a field occurs twice.
    """
    found: dict[str, Json] = {}
    while head := fields.head():
        put(found, head.name, fields.value(head))
    return found


def required(found: Mapping[str, Json], name: str, where: str = "") -> Json:
    """Return the value of a field.

    Raises:
        DataFormatError: there is no such field.
    """
    if name not in found:
        raise DataFormatError(f"{where}the field `{name}` is missing; expected `{name}: …`")
    return found[name]


def text_of(found: Mapping[str, Json], name: str, where: str = "") -> str:
    """Return the text that a field holds.

    Raises:
        DataFormatError: there is no such field, or it holds something else.
        InvalidProposalError: it holds nothing, or characters that no prompt should.
    """
    value = required(found, name, where)
    if value is None:
        raise empty_fault(f"{where}{name}: expected a text, found none")
    if not isinstance(value, str):
        raise DataFormatError(f"{where}{name}: expected a text, found {shown(value)}")
    return _usable(value, f"{where}{name}")


def text_json(found: Mapping[str, Json], name: str, where: str = "") -> str:
    """Return the text that a field holds, as one line of JSON; see :func:`text_of`."""
    return one_line(text_of(found, name, where))


def json_of(found: Mapping[str, Json], name: str, where: str = "") -> str:
    """Return what a field holds as one line of JSON.

    Raises:
        DataFormatError: there is no such field, or its value is nested too deeply.
        InvalidProposalError: a text in it holds characters that no prompt should.
    """
    value = required(found, name, where)
    levels: list[tuple[Json, int]] = [(value, 1)]
    while levels:
        part, depth = levels.pop()
        if isinstance(part, str):
            _usable(part, f"{where}{name}")
        elif isinstance(part, (list, dict)):
            if depth > MAX_DEPTH:
                raise DataFormatError(f"{where}{name}: nested deeper than {MAX_DEPTH} levels")
            inner = part if isinstance(part, list) else [*part, *part.values()]
            levels.extend((each, depth + 1) for each in inner)
    return one_line(value)
