"""What a prompt asks for, and how an answer's text becomes it."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Literal, TypeVar, get_args, get_origin

from promptgraft.errors import DataFormatError, OutputError, PromptDefinitionError
from promptgraft.serde import Json, check_readable, field_names, parse_json, shown, structure

T = TypeVar("T")

_WRAPPING = " \t\r\n`*\"'.“”‘’"
_FENCED_JSON = re.compile(r"\A```(?:json)?[^\S\n]*\n(.*?)```\Z", re.DOTALL | re.IGNORECASE)


def check_output_type(output_type: Any, where: str) -> None:
    """Refuse a type that no answer can be parsed into.

    Raises:
        PromptDefinitionError: unless it is None, ``str``, a choice (an ``Enum`` of strings
            or a ``Literal`` of strings), an attrs class or a dataclass.
    """
    if output_type is None or output_type is str or choices_of(output_type) is not None:
        return
    if isinstance(output_type, type) and field_names(output_type) is not None:
        try:
            check_readable(output_type, where=f"{where}: output_type")
        except DataFormatError as error:
            raise PromptDefinitionError(str(error)) from None
        return
    raise PromptDefinitionError(
        f"{where}: output_type: expected str, an Enum or Literal of strings, an attrs class or a "
        f"dataclass, found {shown(output_type)}"
    )


def choices_of(output_type: Any) -> tuple[str, ...] | None:
    """Return the answers that a choice allows, in order; None for other types."""
    if isinstance(output_type, type) and issubclass(output_type, Enum):
        values = tuple(member.value for member in output_type)
    elif get_origin(output_type) is Literal:
        values = get_args(output_type)
    else:
        return None
    return values if values and all(isinstance(value, str) for value in values) else None


def parse_output(output_type: type[T] | None, text: str) -> T | None:
    """Turn the text of an answer into ``output_type``; None for no type.

    A choice may be wrapped in quotes, Markdown or a sentence as long as it names exactly one
    of the options; a class is read from a JSON object, fenced or not.

    Raises:
        OutputError: the text does not fit; the message says what would.
    """
    if output_type is None:
        return None
    options = choices_of(output_type)
    try:
        if options is not None:
            return structure(_parse_choice(options, text), output_type, where="answer")
        if output_type is str:
            return structure(text, output_type, where="answer")
        return structure(_parse_json(text), output_type, where="answer")
    except DataFormatError as error:
        raise OutputError(str(error)) from None


def _parse_json(text: str) -> Json:
    stripped = text.strip()
    fenced = _FENCED_JSON.match(stripped)
    return parse_json(fenced[1] if fenced else stripped, where="answer")


def _parse_choice(options: tuple[str, ...], text: str) -> str:
    bare = text.strip(_WRAPPING)
    for fold in (str, str.casefold):
        matches = [option for option in options if fold(option) == fold(bare)]
        if len(matches) == 1:
            return matches[0]
    named = _named(options, text)
    if len(named) == 1:
        return named.pop()
    problem = "names none of them" if not named else f"names {len(named)} of them"
    raise OutputError(
        f"answer: expected one of {', '.join(options)}; found {shown(text)}, which {problem}"
    )


def _named(options: tuple[str, ...], text: str) -> set[str]:
    """Return the options that occur in ``text`` as words, but not inside a longer option."""
    found = [
        (match.start(), -match.end(), option)
        for option in options
        if option
        for match in re.finditer(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text, re.IGNORECASE)
    ]
    named: set[str] = set()
    widest = (0, 0)
    for start, minus_end, option in sorted(found):
        if -minus_end > widest[1] or (start, -minus_end) == widest:
            widest = (start, -minus_end)
            named.add(option)
    return named
