"""JSON that a model wrote: read leniently, then checked field by field."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection

from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import Json, did_you_mean, shown
from promptgraft.ground.text import clip
from promptgraft.journal.records import MAX_DEPTH
from promptgraft.targets.base import (
    InvalidProposalError,
    RejectionReason,
    check_usable,
    unreadable,
)

_FENCED = re.compile(r"(?P<run>`{3,}+|~{3,}+)[^`\n]*+\n(?P<body>.*)\n(?P=run)", re.DOTALL)
_SHOWN_CHARS = 80
_SHOWN_NAMES = 40


def read_value(text: str) -> Json:
    """Return the JSON that a model wrote, with or without a fence around it.

    Raises:
        InvalidProposalError: it cannot be read.
    """
    body = text.strip("\ufeff \t\r\n")
    if fenced := _FENCED.fullmatch(body):
        body = fenced["body"].strip()
    if not body:
        raise InvalidProposalError(RejectionReason.EMPTY, "the text is empty")
    from promptgraft.prompt.lenient_json import parse_lenient  # few replies are in JSON

    try:
        return parse_lenient(body)
    except DataFormatError as error:
        raise unreadable(str(error)) from None


def fields_in(
    value: Json, required: Collection[str], *, optional: Collection[str] = (), where: str = ""
) -> dict[str, Json]:
    """Return an object that has all required fields, and no others except optional ones.

    Raises:
        InvalidProposalError: it does not fit; the message begins with ``where``.
    """
    names = (*optional, *required)
    if not isinstance(value, dict):
        raise unfit(f"{where}expected one JSON object", value)
    for name in value:
        if name not in names:
            hint = did_you_mean(name[:_SHOWN_CHARS], list(names))
            raise unreadable(
                f"{where}unknown field {shown(name)}{hint}; expected {listed_names(names)}"
            )
    for name in required:
        if name not in value:
            raise unreadable(
                f"{where}the field `{name}` is missing; expected {listed_names(names)}"
            )
    for name, inner in value.items():
        _check_value(inner, f"{where}{name}")
    return value


def _check_value(value: Json, where: str) -> None:
    levels: list[tuple[Json, int]] = [(value, 1)]
    while levels:
        part, depth = levels.pop()
        if isinstance(part, str):
            check_usable(part, where)
        elif isinstance(part, (list, dict)):
            if depth > MAX_DEPTH:
                raise unreadable(f"{where}: nested deeper than {MAX_DEPTH} levels")
            inner = part if isinstance(part, list) else [*part, *part.values()]
            levels.extend((each, depth + 1) for each in inner)


def text_in(value: Json, where: str) -> str:
    """Return a value that is a text.

    Raises:
        InvalidProposalError: it is not; the message begins with ``where``.
    """
    if not isinstance(value, str):
        raise unfit(f"{where}: expected a text", value)
    return value


def listed_names(names: Collection[str]) -> str:
    """Return the beginning of a list of names, in back-ticks."""
    listed = [f"`{name}`" for name in itertools.islice(names, _SHOWN_NAMES)]
    return ", ".join(listed if len(listed) == len(names) else [*listed, "…"])


def unfit(expected: str, value: Json) -> InvalidProposalError:
    """Return the refusal of a value in a reply, with the beginning of what was found."""
    value_shown = clip(json.dumps(value), _SHOWN_CHARS, around=" ")
    return unreadable(f"{expected}, found {value_shown}")
