"""The tests of a BAML project: their arguments as plain data, and their rules."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from promptgraft.bridges.baml.scanner import (
    SILENT,
    SPACING,
    STRINGS,
    Attribute,
    BamlFile,
    Declaration,
    Token,
    TokenKind,
    closing,
    read_literal,
)
from promptgraft.ground.serde import Json

_LONGEST_NUMBER = 1_000
_WORDS: dict[str, Json] = {"true": True, "false": False, "null": None}
# Characters that end an unquoted text.
_ENDS = frozenset("#@{([<}])>,';")


@attrs.frozen(kw_only=True)
class BamlRule:
    """An assert or a check of a test.

    Attributes:
        name: its name; empty for an assert without one.
        expression: the condition, in Jinja.
        is_assert: whether it is an assert; otherwise it is a check.
    """

    name: str
    expression: str
    is_assert: bool


@attrs.frozen(kw_only=True)
class BamlTest:
    """A test block.

    Attributes:
        functions: the functions that it tests.
        args: the arguments by name, as plain data.
        rules: its asserts and checks, in order.
        types: the source between the braces of its ``type_builder``; empty without one.
        file: the file that contains it; paths of images are relative to it.
        line: its first line.
    """

    name: str
    functions: tuple[str, ...]
    args: dict[str, Json] = attrs.field(hash=False)
    rules: tuple[BamlRule, ...]
    types: str
    file: Path
    line: int

    @property
    def origin(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"


def tests_in(file: BamlFile) -> Iterator[BamlTest]:
    """Yield the tests of a file, in order."""
    for declaration in file.declarations:
        if declaration.kind == "test":
            yield _test(declaration, file)


def _test(block: Declaration, file: BamlFile) -> BamlTest:
    functions = read_value(block.value("functions"))
    args = read_value(block.value("args"))
    builder = block.value("type_builder")
    return BamlTest(
        name=block.name,
        functions=tuple(map(str, functions)) if isinstance(functions, list) else (),
        args=args if isinstance(args, dict) else {},
        rules=tuple(
            _rule(attribute)
            for attribute in block.attributes
            if attribute.name in ("assert", "check")
        ),
        types=_between_braces(builder),
        file=file.path,
        line=block.line,
    )


def _rule(attribute: Attribute) -> BamlRule:
    name = attribute.literal.text if attribute.literal else ""
    return BamlRule(name=name, expression=attribute.rule, is_assert=attribute.name == "assert")


def _between_braces(tokens: Sequence[Token]) -> str:
    begin = next((place for place, token in enumerate(tokens) if token.text == "{"), len(tokens))
    return "".join(token.text for token in tokens[begin + 1 : closing(tokens, begin)])


def read_value(tokens: Sequence[Token]) -> Json:
    """Return the value at the beginning of ``tokens``; None if there is none."""
    reader = _TestReader(tokens)
    reader.skip(SPACING)
    return None if reader.is_over() else reader.value()


class _TestReader:
    """Reads values in sequence; every call consumes at least one token."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def is_over(self) -> bool:
        return self._at >= len(self._tokens)

    def skip(self, kinds: tuple[TokenKind, ...], *, marks: str = "") -> None:
        while not self.is_over() and (
            self._tokens[self._at].kind in kinds or self._tokens[self._at].text in tuple(marks)
        ):
            self._at += 1

    def value(self) -> Json:
        token = self._tokens[self._at]
        if token.text in ("{", "["):
            self._at += 1
            return self._map() if token.text == "{" else self._list()
        if token.kind in (*STRINGS, TokenKind.JINJA):
            self._at += 1
            return token.text if token.kind is TokenKind.JINJA else read_literal(token).text
        return self._bare()

    def _map(self) -> Json:
        members: dict[str, Json] = {}
        while self._has_more("}"):
            key = read_literal(self._tokens[self._at]).text
            self._at += 1
            self.skip(SPACING, marks=":")
            ended = self.is_over() or self._tokens[self._at].kind is TokenKind.BREAK
            members[key] = None if ended else self.value()
        return members

    def _list(self) -> Json:
        items: list[Json] = []
        while self._has_more("]"):
            items.append(self.value())
        return items

    def _has_more(self, end: str) -> bool:
        """Return whether another item follows; consume the closing bracket if none does."""
        self.skip(SILENT, marks=",")
        if self.is_over() or self._tokens[self._at].text == end:
            self._at += 1
            return False
        return True

    def _bare(self) -> Json:
        """Read an unquoted text, up to the end of the line or a character that ends it."""
        begin = self._at
        self._at += 1
        while not self.is_over():
            token = self._tokens[self._at]
            is_end = token.kind in (TokenKind.BREAK, TokenKind.COMMENT, *STRINGS)
            if is_end or token.text[0] in _ENDS:
                break
            self._at += 1
        tokens_taken = self._tokens[begin : self._at]
        text = "".join(token.text for token in tokens_taken).strip()
        words = [token for token in tokens_taken if token.kind is not TokenKind.SPACE]
        # Longer ones are left to BAML, which refuses them: Python reads no integer of any length.
        if len(words) == 1 and words[0].kind is TokenKind.NUMBER and len(text) <= _LONGEST_NUMBER:
            return float(text) if "." in text else int(text)
        if text.startswith("env."):
            return os.environ.get(text.removeprefix("env."), "")
        return _WORDS.get(text, text)
