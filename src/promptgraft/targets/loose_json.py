"""JSON as models write it: commented, quoted otherwise, or not quoted at all."""

from __future__ import annotations

import json
import re

from promptgraft.errors import DataFormatError
from promptgraft.serde import Json, parse_json, shown

MAX_DEPTH = 100
JSON_STARTS = frozenset('{["')

_CONSTANT = re.compile(
    r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null|NaN|-?Infinity"
)
_TOKEN = re.compile(
    r"""(?P<gap>(?:\s|(?:\#|//)[^\n]*+)++)
    |(?P<mark>[{}\[\],:])
    |"(?P<straight>(?:[^"\\]|\\.)*+)"
    |'(?P<single>(?:[^'\\]|\\.)*+)'
    |[“”„‟](?P<curly>(?:[^"\\“”„‟]|\\.|["“”„‟](?!\s*[]},:]|\s+\#|\s+//))*+)["“”‟]
    |[‘’‚‛](?P<thin>(?:[^'\\‘’‚‛]|\\.|['‘’‚‛](?!\s*[]},:]|\s+\#|\s+//))*+)['‘’‛]
    |(?P<word>[^\s"'“”„‟‘’‚‛](?:(?!\s(?:\#|//)\s|:\s)[^\n,{}\[\]"])*+)""",
    re.VERBOSE | re.DOTALL,
)
_KEY_WORD = re.compile(r"(?P<key>[^\n:,{}\[\]\"']++)")
_POSITION = re.compile(r":\d+:\d+: ")
_CLOSING = {"{": "}", "[": "]"}
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_ESCAPE = re.compile(r'\\(.)|["\x00-\x1f]', re.DOTALL)
_JSON_ESCAPES = frozenset("\"'\\/bfnrtu")
_AMBIGUOUS_ESCAPES = frozenset("bfnrtuxUN0")

_QUOTED = re.compile(
    r"(?P<straight>\"(?:[^\"\\]|\\.)*+\")|'(?P<single>(?:[^']|'')*+)'"
    r"|“(?P<curly>[^“”]*+)”|‘(?P<thin>[^‘’]*+)’",
    re.DOTALL,
)


def read_json(text: str, start: int, *, where: str) -> tuple[Json, int]:
    """Return the value that begins at ``start`` with a bracket or a quote, and its end.

    What is JSON is taken as it stands. Otherwise comments and trailing commas are left out,
    other quotes and Python's constants are replaced, and bare words are read as texts.

    Raises:
        DataFormatError: it does not end, or is no JSON all the same.
    """
    mender = _Mender(text, where)
    end = mender.run(start)
    try:
        return parse_json(text[start:end], where=where), end
    except DataFormatError as error:
        fault = error
    try:
        return parse_json(mender.mended(), where=where), end
    except DataFormatError as error:
        # A position in the mended text would mislead.
        told = fault if _POSITION.search(str(error)) else error
        raise DataFormatError(f"{told}; expected one JSON value") from None


def read_constant(text: str, *, where: str) -> tuple[Json] | None:
    """Return the number, true, false or null that ``text`` is, or None for anything else.

    Raises:
        DataFormatError: it is a number that JSON does not have.
    """
    word, _, comments = text.partition("\n")
    word, *comment = word.split(maxsplit=1) or [""]
    after = (*comment, *(line.strip() for line in comments.split("\n")))
    if not _CONSTANT.fullmatch(word) or not all(map(is_silent, after)):
        return None
    return (parse_json(word, where=where),)


def is_silent(text: str) -> bool:
    """Tell whether nothing is said there: it is empty, or a comment."""
    return not text or text.startswith(("#", "//"))


class _Mender:
    """One pass over a value: finds its end, and the JSON that it amounts to."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._out: list[str] = []
        self._open: list[str] = []
        self._constants: dict[int, str] = {}
        self._has_words = False

    def run(self, at: int) -> int:
        while self._open or not self._out:
            token = _TOKEN.match(self._text, at)
            if token and token.lastgroup == "word" and self._at_key():
                token = _KEY_WORD.match(self._text, at)
            if token is None:
                raise self._fault(f"does not end; found {self._shown_from(at)}")
            self._take(token.lastgroup or "", token[token.lastgroup or 0])
            at = token.end()
        return at

    def _shown_from(self, at: int) -> str:
        return shown(self._text[at : at + 40]) if at < len(self._text) else "the end of the text"

    def mended(self) -> str:
        """Return the JSON; Python's constants are texts where other bare words are."""
        for index, word in self._constants.items():
            self._out[index] = _quoted(word) if self._has_words else _PYTHON[word]
        return "".join(self._out)

    def _at_key(self) -> bool:
        return bool(self._open) and self._open[-1] == "}" and self._out[-1] in {"{", ","}

    def _take(self, kind: str, body: str) -> None:
        if kind == "mark":
            self._mark(body)
        elif kind in {"word", "key"}:
            self._word(body.rstrip(), is_key=kind == "key")
        elif kind != "gap":
            self._out.append(_requoted(body))

    def _mark(self, mark: str) -> None:
        if mark in _CLOSING:
            if len(self._open) == MAX_DEPTH:
                raise self._fault(f"is nested deeper than {MAX_DEPTH} levels")
            self._open.append(_CLOSING[mark])
        elif mark in "}]":
            if self._open.pop() != mark:
                raise self._fault(f"closes with `{mark}` what another bracket opened")
            if self._out[-1] == "," and self._out[-2] not in _CLOSING:
                self._out.pop()
        self._out.append(mark)

    def _word(self, word: str, *, is_key: bool) -> None:
        if word.strip(".…") == "":
            raise self._fault(f"leaves something out with `{word}`; write the whole value")
        if word in _PYTHON and not is_key:
            self._constants[len(self._out)] = word
        elif is_key or not _CONSTANT.fullmatch(word):
            self._has_words = True
            word = _quoted(word)
        self._out.append(word)

    def _fault(self, problem: str) -> DataFormatError:
        return DataFormatError(f"{self._where}: the JSON {problem}")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _requoted(body: str) -> str:
    """Return what stood between quotes as a JSON string.

    Backslashes that escape nothing in JSON, as regular expressions have them, stand for
    themselves, unless one beside them may be meant either way.
    """
    escapes = {found for found in _ESCAPE.findall(body) if found}
    as_written = bool(escapes - _JSON_ESCAPES) and not escapes & _AMBIGUOUS_ESCAPES

    def mend(found: re.Match[str]) -> str:
        if found[1] is None:
            return _quoted(found[0])[1:-1]
        if found[1] == "'":
            return "'"
        return f"\\{found[0]}" if as_written and found[1] not in _JSON_ESCAPES else found[0]

    return f'"{_ESCAPE.sub(mend, body)}"'


def unquoted(text: str) -> str:
    """Return what stands between the quotes around ``text``, if there are any around all of it.

    Comments may follow the quotes.
    """
    quoted = _QUOTED.match(text)
    after = text[quoted.end() :].split("\n") if quoted else []
    if quoted is None or not all(is_silent(line.strip(" \t,")) for line in after):
        return text
    if quoted["straight"] is None:
        return str(quoted[quoted.lastgroup or 0]).replace("''", "'")
    try:
        return str(read_json(text, 0, where="text")[0])
    except DataFormatError:
        return quoted[0][1:-1]
