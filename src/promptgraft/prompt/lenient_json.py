"""JSON as models write it: in other text, with comments, other quotes, or trailing commas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import UnionType
from typing import Any, Union, get_args, get_origin

from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import Json, is_unicode, parse_json, shown
from promptgraft.journal.records import MAX_DEPTH
from promptgraft.prompt.fields import BOOL_WORDS, fields_of, options_of

# Possessive throughout, so that no input makes the patterns backtrack.
_GAP = re.compile(r"(?:\s++|(?://|\#)[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+")
# A curly-quoted text ends at the next quote of any kind; a later one would be a guess.
_STRING = re.compile(
    r"""
    "(?P<straight>(?:[^"\\]|\\.)*+)"
    |'(?P<single>(?:[^'\\]|\\.)*+)'
    |[“”„‟](?P<curly>(?:[^"“”„‟\\]|\\.)*+)[“”‟]
    |[‘’‚‛](?P<thin>(?:[^'‘’‚‛\\]|\\.)*+)[‘’‛]
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTES = "\"'“”„‟‘’‚‛"
_BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+(?=\s*+:)")
_WORD = re.compile(r"[\w.+-]++")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|NaN|-?Infinity")
_CONSTANTS = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
    "none": None,
}
_ESCAPE = re.compile(r'\\(.)|"', re.DOTALL)
_JSON_ESCAPES = frozenset('"\\/bfnrtu')
# Escapes in JSON or Python that may also be plain text, as in `C:\new`.
_AMBIGUOUS_ESCAPES = frozenset("bfnrtuavxUN0\n")
_LAX = json.JSONDecoder(strict=False)


def parse_lenient(text: str) -> Json:
    """Parse JSON, tolerating unambiguous deviations, in linear time.

    Comments and trailing commas are ignored. Texts may have other quotes and span several lines,
    keys that are names need no quotes, and Python's constants and ``none`` are accepted.
    Backslashes that escape nothing, as in regular expressions, stand for themselves. Anything
    else is refused: nothing is guessed, left out, or read as another type.

    Raises:
        DataFormatError: naming the first place that cannot be read, in one line.
    """
    try:
        return parse_json(text, where="text")
    except DataFormatError:
        return _Reader(text).whole()


def _end_of(text: str, start: int) -> int | None:
    """Return where the object or list that begins at ``start`` ends; None if it cannot be read."""
    reader = _Reader(text, start)
    try:
        reader.value(1)
    except DataFormatError:
        return None
    return reader.at


class _Reader:
    def __init__(self, text: str, start: int = 0) -> None:
        self._text = text
        self._start = start
        self.at = start

    def whole(self) -> Json:
        value = self.value(1)
        if self._next():
            raise self._expected("nothing after the JSON")
        return value

    def _next(self) -> str:
        """Skip blanks and comments; return the next character, or "" at the end."""
        if gap := _GAP.match(self._text, self.at):
            self.at = gap.end()
        return self._text[self.at : self.at + 1]

    def value(self, depth: int) -> Json:
        if depth > MAX_DEPTH:
            raise self._fault(f"the JSON is nested deeper than {MAX_DEPTH} levels")
        match self._next():
            case "{":
                return self._object(depth)
            case "[":
                return [self.value(depth + 1) for _ in self._items("]")]
        text = self._string()
        return self._word() if text is None else text

    def _object(self, depth: int) -> Json:
        members: dict[str, Json] = {}
        for _ in self._items("}"):
            start, key = self.at, self._key()
            if key in members:
                self.at = start
                raise self._fault(f"the key {shown(key)} occurs twice in one object")
            if self._next() != ":":
                raise self._expected("`:` after a key")
            self.at += 1
            members[key] = self.value(depth + 1)
        return members

    def _items(self, closing: str) -> Iterator[None]:
        """Yield before each item, up to the closing bracket."""
        self.at += 1
        while self._next() != closing:
            yield
            if self._next() == ",":
                self.at += 1
            elif self._next() != closing:
                before = self._text[: self.at].rstrip()
                hint = ' (quotes inside a text are written as `\\"`)'
                raise self._expected(
                    f"`,` or `{closing}`{hint if before.endswith(tuple(_QUOTES)) else ''}"
                )
        self.at += 1

    def _key(self) -> str:
        if bare := _BARE_KEY.match(self._text, self.at):
            self.at = bare.end()
            return bare[0]
        text = self._string()
        if text is None:
            raise self._expected("a key in double quotes")
        return text

    def _string(self) -> str | None:
        match = _STRING.match(self._text, self.at)
        if match is None:
            return None
        text = _decoded(match[match.lastgroup or 0])
        if text is None:
            raise self._fault(
                f"{shown(match[0])} holds escapes that JSON does not have; write a backslash as two"
            )
        self.at = match.end()
        return text

    def _word(self) -> Json:
        word = _WORD.match(self._text, self.at)
        if word and word[0] in _CONSTANTS:
            self.at = word.end()
            return _CONSTANTS[word[0]]
        # Including NaN and Infinity, so that `parse_json` refuses them with its own message.
        if word and _NUMBER.fullmatch(word[0]):
            number = parse_json(word[0], where=f"line {self._line}")
            self.at = word.end()
            return number
        quoted = self._text[self.at : self.at + 1] in tuple(_QUOTES)
        raise self._expected("a closing quote" if quoted else "a JSON value")

    @property
    def _line(self) -> int:
        return self._text.count("\n", self._start, self.at) + 1

    def _expected(self, what: str) -> DataFormatError:
        rest = self._text[self.at : self.at + 40]
        return self._fault(f"expected {what}, found {shown(rest) if rest else 'the end'}")

    def _fault(self, problem: str) -> DataFormatError:
        return DataFormatError(f"line {self._line}: {problem}")


def _decoded(body: str) -> str | None:
    """Return the text between quotes; None if its backslashes are ambiguous."""
    escapes = set(_ESCAPE.findall(body))
    # Beside `\d`, a `\n` may be a line break or a part of a regular expression.
    if escapes & _AMBIGUOUS_ESCAPES and not escapes <= _JSON_ESCAPES | {"", "'"}:
        return None
    try:
        return str(_LAX.decode(f'"{_ESCAPE.sub(_as_json, body)}"'))
    except ValueError:
        return None


def _as_json(match: re.Match[str]) -> str:
    """Return an escape, or a quote without one, as JSON spells it."""
    char = match[1]
    if char is None:
        return '\\"'
    if char == "'":
        return "'"
    return match[0] if char in _JSON_ESCAPES else f"\\{match[0]}"


_FENCED_JSON = re.compile(r"\A```(?:json)?[^\S\n]*\n(.*?)```\Z", re.DOTALL | re.IGNORECASE)
# Prose may hold other braces; a quote, the closing brace or a key follows that of an object.
_DATA = re.compile(
    r"(?P<object>\{(?=\s*+(?:[\"'“‘}]|//|/\*|\#|[A-Za-z_][A-Za-z0-9_]*+\s*+:)))"
    r"|\[(?=\s*+[\"'“‘{\[\]\dtfTFnN-])"
)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{\[\]}]', re.DOTALL)
IN_A_TEXT = "the JSON was inside a JSON text"
REPAIRED = "it is not strict JSON (quotes, commas, comments or constants)"


def data_in(
    text: str, *, repair: bool = True, wants_list: bool = False
) -> tuple[Json, tuple[str, ...]]:
    """Return the JSON object, or the list, in an answer, and how it was repaired, line by line.

    It may be fenced or embedded in other text. Of several the last complete one counts, with a
    note; one inside another that is cut off does not. With ``repair``, trailing commas, comments,
    other quotes and Python's constants are read, with a note; without it, JSON must be strict and
    there must be one only.

    Raises:
        DataFormatError: there is none, or it cannot be read.
    """
    text = text.strip(" \t\r\n\ufeff")
    fenced = _FENCED_JSON.match(text)
    whole = fenced[1] if fenced else text
    try:
        value = parse_json(whole, where="answer")
        if repair and isinstance(value, str) and _DATA.search(value):
            inner, repairs = data_in(value, wants_list=wants_list)
            return inner, (IN_A_TEXT, *repairs)
        return _whole_characters(value), ()
    except DataFormatError as error:
        candidates = dict.fromkeys(_passages(whole, wants_list=wants_list))
        # Empty brackets in prose are an answer only if there is no other.
        passages = [each for each in candidates if each[1:-1].strip()] or [*candidates]
        if not passages:
            raise DataFormatError(f"{error}; found {shown(text)}") from None
    notes = []
    if len(passages) > 1:
        note = f"the reply holds {len(passages)} JSON {'lists' if wants_list else 'objects'}"
        if not repair:
            raise DataFormatError(f"answer: expected one, but {note}")
        notes.append(f"{note}; the last one counts")
    try:
        value = parse_json(passages[-1], where="answer")
    except DataFormatError as error:
        try:
            value = parse_lenient(passages[-1]) if repair else None
        except DataFormatError:
            value = None
        if value is None:
            raise DataFormatError(f"{error}; found {shown(passages[-1])}") from None
        notes.append(REPAIRED)
    return _whole_characters(value), tuple(notes)


def _whole_characters(value: Json) -> Json:
    # JSON escapes can spell lone surrogates, which UTF-8 cannot encode.
    if not is_unicode(value):
        raise DataFormatError("answer: expected whole characters, found half of a surrogate pair")
    return value


def _passages(text: str, *, wants_list: bool) -> Iterator[str]:
    """Yield the outermost objects, or lists, of a text in order; none that is cut off."""
    at = 0
    while begin := _DATA.search(text, at):
        end = _end_of(text, begin.start())
        # One that is complete and yet unreadable is passed over as a whole.
        end = _closing(text, begin.start()) if end is None else end
        if end is None:
            # The text that follows is inside of it.
            return
        if (begin["object"] is None) is wants_list:
            yield text[begin.start() : end]
        at = end


def _closing(text: str, start: int) -> int | None:
    """Return where the bracket at ``start`` is closed; None if it is not."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if depth == 0:
            return token.end()
    return None


_TYPES = {int: "an integer", float: "a number", bool: "true or false"}


def fitted(value: Json, kind: Any, notes: list[str], place: str = "$") -> Json:
    """Return data with numbers and truth values for the texts that spell them, with notes.

    Only texts where ``kind`` has a number, an integer or a truth value are replaced; and truth
    values where it has the options yes and no.
    """
    if isinstance(value, bool):
        words = [option for option in options_of(kind) if BOOL_WORDS.get(option.lower()) is value]
        if len(words) == 1:
            notes.append(f"{shown(value)} was read as {shown(words[0])} @ {place}")
            return words[0]
    if kind in _TYPES:
        fit = _scalar(value, kind)
        if fit is not value:
            notes.append(f"{shown(value)} was read as {_TYPES[kind]} @ {place}")
        return fit
    if fields := fields_of(kind):
        kinds = {field.name: field.kind for field in fields}
        if isinstance(value, list) and len(kinds) == 1 and place == "$":
            [name] = kinds
            notes.append(f"a list was read as the only field `{name}`")
            value = {name: value}
        if not isinstance(value, dict):
            return value
        return {
            key: fitted(item, kinds.get(key), notes, f"{place}.{key}")
            for key, item in value.items()
        }
    arguments = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        # A union of several types may have meant the text.
        members = [each for each in arguments if each is not type(None)]
        return fitted(value, members[0], notes, place) if len(members) == 1 else value
    if isinstance(value, list) and arguments:
        is_fixed = get_origin(kind) is tuple and arguments[1:] != (...,)
        each = [*arguments, *[None] * len(value)] if is_fixed else [arguments[0]] * len(value)
        places = (f"{place}[{at}]" for at in range(len(value)))
        return [fitted(item, each[at], notes, next(places)) for at, item in enumerate(value)]
    if isinstance(value, dict) and len(arguments) == 2:
        return {
            key: fitted(item, arguments[1], notes, f"{place}.{key}") for key, item in value.items()
        }
    return value


def _scalar(value: Json, kind: Any) -> Json:
    if kind is bool:
        word = value.strip().casefold() if isinstance(value, str) else ""
        return BOOL_WORDS.get(word, value)
    number = value
    if isinstance(value, str):
        try:
            number = parse_json(value.strip(), where="")
        except DataFormatError:
            return value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return value
    if kind is int and isinstance(number, float):
        return int(number) if number.is_integer() else value
    return number if isinstance(value, str) else value
