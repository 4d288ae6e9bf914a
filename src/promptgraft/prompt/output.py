"""What a prompt asks for, and how an answer's text becomes it.

Types that no answer can be parsed into, and words for options that they lack, raise
``PromptDefinitionError``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from promptgraft.errors import DataFormatError, OutputError, PromptDefinitionError
from promptgraft.prompt.fields import Described, options_of
from promptgraft.prompt.schema import check_carried, own_names
from promptgraft.serde import Json, field_names, is_unicode, parse_json, shown
from promptgraft.strict import structure

T = TypeVar("T")

_WRAPPING = " \t\r\n`*\"'.“”‘’"
_FENCED_JSON = re.compile(r"\A```(?:json)?[^\S\n]*\n(.*?)```\Z", re.DOTALL | re.IGNORECASE)
_OBJECT = re.compile(r'\{(?=[ \t\r\n]*+["}])')


def check_output_type(output_type: Any, where: str) -> None:
    """Refuse all but None, ``str``, a choice, and a class that JSON can carry and describe."""
    if output_type is None or output_type is str or options_of(output_type):
        return
    if isinstance(output_type, type) and field_names(output_type) is not None:
        check_carried(output_type, f"{where}: output_type")
        return
    raise PromptDefinitionError(
        f"{where}: output_type: expected str, an Enum or Literal of strings, an attrs class or a "
        f"dataclass, found {shown(output_type)}"
    )


def check_choice(said: Described, output_type: Any, where: str) -> None:
    """Refuse what is said of a choice where there is none, or of an option that it lacks."""
    if said == Described():
        return
    options = options_of(output_type)
    if not options or said.aliases:
        raise PromptDefinitionError(
            f"{where}: choice: only an answer that is a choice is described by it, and a choice "
            "has no aliases; describe the fields of a class with annotations"
        )
    for option in said.values:
        if option not in options:
            raise PromptDefinitionError(
                f"{where}: choice: there is no option {shown(option)}; options: "
                + ", ".join(options)
            )


def parse_output(
    output_type: type[T] | None, text: str, described: Mapping[str, Described] | None = None
) -> T | None:
    """Turn the text of an answer into ``output_type``; None for no type.

    A choice may be wrapped in quotes, Markdown or a sentence as long as it names exactly one
    of the options. A class is read from a JSON object, which may be fenced or stand in other
    text; its keys may be names or aliases of the fields, in any case and with any of ``_``,
    ``-`` and spaces; keys that no field has are passed over.

    Args:
        output_type: the type.
        text: the answer.
        described: what is said of fields instead of what their annotations say.

    Raises:
        OutputError: the text does not fit; the message says what would.
    """
    if output_type is None:
        return None
    options = options_of(output_type)
    try:
        if options:
            return structure(_parse_choice(options, text), output_type, where="answer")
        if output_type is str:
            return structure(text, output_type, where="answer")
        data = own_names(_parse_json(text), output_type, described or {})
        return structure(data, output_type, where="answer")
    except DataFormatError as error:
        raise OutputError(str(error)) from None


def _parse_json(text: str) -> Json:
    stripped = text.strip()
    fenced = _FENCED_JSON.match(stripped)
    candidate = fenced[1] if fenced else stripped
    try:
        data = parse_json(candidate, where="answer")
    except DataFormatError:
        inner = _first_object(candidate)
        if inner is None:
            raise
        data = parse_json(inner, where="answer")
    if not is_unicode(data):
        raise DataFormatError("answer: expected whole characters, found half of a surrogate pair")
    return data


def _first_object(text: str) -> str | None:
    # Not a later one if it is broken: what a truncated answer holds inside is no answer.
    begin = _OBJECT.search(text)
    if begin is None:
        return None
    try:
        _, end = json.JSONDecoder().raw_decode(text, begin.start())
    except (ValueError, RecursionError):
        return None
    return text[begin.start() : end]


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
