"""JSON as models write it: with comments, other quotes, or trailing commas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from promptgraft.errors import DataFormatError
from promptgraft.serde import Json, parse_json, shown

MAX_DEPTH = 100

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


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> Json:
        value = self._value(1)
        if self._next():
            raise self._expected("nothing after the JSON")
        return value

    def _next(self) -> str:
        """Skip blanks and comments; return the next character, or "" at the end."""
        if gap := _GAP.match(self._text, self._at):
            self._at = gap.end()
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> Json:
        if depth > MAX_DEPTH:
            raise self._fault(f"the JSON is nested deeper than {MAX_DEPTH} levels")
        match self._next():
            case "{":
                return self._object(depth)
            case "[":
                return [self._value(depth + 1) for _ in self._items("]")]
        text = self._string()
        return self._word() if text is None else text

    def _object(self, depth: int) -> Json:
        found: dict[str, Json] = {}
        for _ in self._items("}"):
            start, key = self._at, self._key()
            if key in found:
                self._at = start
                raise self._fault(f"the key {shown(key)} occurs twice in one object")
            if self._next() != ":":
                raise self._expected("`:` after a key")
            self._at += 1
            found[key] = self._value(depth + 1)
        return found

    def _items(self, closing: str) -> Iterator[None]:
        """Yield before each item, up to the closing bracket."""
        self._at += 1
        while self._next() != closing:
            yield
            if self._next() == ",":
                self._at += 1
            elif self._next() != closing:
                before = self._text[: self._at].rstrip()
                hint = ' (quotes inside a text are written as `\\"`)'
                raise self._expected(
                    f"`,` or `{closing}`{hint if before.endswith(tuple(_QUOTES)) else ''}"
                )
        self._at += 1

    def _key(self) -> str:
        if bare := _BARE_KEY.match(self._text, self._at):
            self._at = bare.end()
            return bare[0]
        text = self._string()
        if text is None:
            raise self._expected("a key in double quotes")
        return text

    def _string(self) -> str | None:
        found = _STRING.match(self._text, self._at)
        if found is None:
            return None
        text = _decoded(found[found.lastgroup or 0])
        if text is None:
            raise self._fault(
                f"{shown(found[0])} holds escapes that JSON does not have; write a backslash as two"
            )
        self._at = found.end()
        return text

    def _word(self) -> Json:
        word = _WORD.match(self._text, self._at)
        if word and word[0] in _CONSTANTS:
            self._at = word.end()
            return _CONSTANTS[word[0]]
        # Including NaN and Infinity, so that `parse_json` refuses them with its own message.
        if word and _NUMBER.fullmatch(word[0]):
            number = parse_json(word[0], where=f"line {self._line}")
            self._at = word.end()
            return number
        quoted = self._text[self._at : self._at + 1] in tuple(_QUOTES)
        raise self._expected("a closing quote" if quoted else "a JSON value")

    @property
    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _expected(self, what: str) -> DataFormatError:
        rest = self._text[self._at : self._at + 40]
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


def _as_json(found: re.Match[str]) -> str:
    """Return an escape, or a quote without one, as JSON spells it."""
    char = found[1]
    if char is None:
        return '\\"'
    if char == "'":
        return "'"
    return found[0] if char in _JSON_ESCAPES else f"\\{found[0]}"
