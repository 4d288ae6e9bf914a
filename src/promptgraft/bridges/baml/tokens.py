"""A lossless tokenizer for BAML source, and the literals in it.

Joined, the tokens are the source. An unclosed string becomes a lone quotation mark, so that any
text can be tokenized, even if BAML refuses it.
"""

from __future__ import annotations

import re
import textwrap
from enum import StrEnum

import attrs


class TokenKind(StrEnum):
    """The kind of a token."""

    SPACE = "space"
    BREAK = "break"
    COMMENT = "comment"
    RAW = "raw"
    QUOTED = "quoted"
    JINJA = "jinja"
    WORD = "word"
    NUMBER = "number"
    MARK = "mark"


SPACING = (TokenKind.SPACE, TokenKind.COMMENT)
SILENT = (*SPACING, TokenKind.BREAK)
STRINGS = (TokenKind.RAW, TokenKind.QUOTED)


@attrs.frozen
class Token:
    """A token and its offset in the source."""

    kind: TokenKind
    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset after its last character."""
        return self.start + len(self.text)


_BEFORE_RULES = ("(", ",")
# The `//` of an address is not a comment: BAML allows it in unquoted text.
_TOKENS = re.compile(
    r"""
    (?P<space>[ \t]+)
    | (?P<break>\r\n|\r|\n)
    | (?P<comment>(?<!:)//[^\r\n]*|\{//(?:.|[\r\n])*?//\})
    | (?P<raw>(?P<hashes>\#{1,5})"(?:.|[\r\n])*?"(?P=hashes))
    | (?P<quoted>"(?:\\[^\r\n]|[^"\\\r\n])*")
    | (?P<word>[A-Za-z_](?:[A-Za-z0-9_]|-(?!>))*(?:::[A-Za-z][A-Za-z0-9_-]*)*)
    | (?P<number>-?[0-9]+(?:\.[0-9]+)?)
    | (?P<mark>->|@@|(?:.|[\r\n]))
    """,
    re.VERBOSE,
)
_JINJA = re.compile(r"\{\{(?:(?!\{\{)(?:.|[\r\n]))*?\}\}")


def tokens_of(source: str) -> tuple[Token, ...]:
    """Return the tokens of a BAML file."""
    tokens: list[Token] = []
    before, at = "", 0
    while at < len(source):
        # Only there: elsewhere, two braces open two maps.
        rule = _JINJA.match(source, at) if before in _BEFORE_RULES else None
        match = rule or _TOKENS.match(source, at)
        assert match is not None  # noqa: S101 - a mark is any character
        kind = TokenKind.JINJA if rule else TokenKind(match.lastgroup or TokenKind.MARK)
        tokens.append(Token(kind, match[0], at))
        if kind not in SILENT:
            before = match[0]
        at = match.end()
    return tuple(tokens)


@attrs.frozen
class Literal:
    """A text in the source, with its place.

    Attributes:
        start: the offset of its opening quotation mark.
        end: the offset after it; equal to ``start`` if it is not written yet.
        text: its value.
        is_block: whether it is written between ``#"`` and ``"#``.
        layout: the whitespace before the text of a block, before each line, and after the text.
        around: the source to insert before and after a text that is not written yet.
    """

    start: int
    end: int
    text: str
    is_block: bool = False
    layout: tuple[str, str, str] = ("", "", "")
    around: tuple[str, str] = ("", "")


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def read_literal(token: Token) -> Literal:
    """Return the literal of a string, number or word."""
    if token.kind is TokenKind.RAW:
        hashes = token.text.index('"') + 1
        inner = token.text[hashes:-hashes].replace("\r\n", "\n")
        margin = indentation(inner) if inner[:1].isspace() and _is_open(inner) else ""
        before, after = inner[: len(inner) - len(inner.lstrip())], inner[len(inner.rstrip()) :]
        layout = before.removesuffix(margin), margin, after
        return Literal(token.start, token.end, _block_text(inner), is_block=True, layout=layout)
    if token.kind is TokenKind.QUOTED:
        inner = re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), token.text[1:-1])
        return Literal(token.start, token.end, inner)
    return Literal(token.start, token.end, token.text)


def _block_text(inner: str) -> str:
    """Return the value that BAML gives the text between ``#"`` and ``"#``, stripped."""
    if not _is_open(inner):
        return inner.strip()
    margin = len(indentation(inner))
    lines = inner.split("\n")
    return "\n".join(line[margin:] if line.strip() else "" for line in lines).strip()


def _is_open(inner: str) -> bool:
    """Return whether the text begins on a new line; BAML only dedents such texts."""
    return not inner.partition("\n")[0].strip()


def indentation(text: str) -> str:
    """Return the common indentation of the lines of a text that are not blank."""
    lines = [line for line in text.splitlines() if line.strip()]
    marked = textwrap.dedent("\n".join(lines)).splitlines()
    return lines[0][: len(lines[0]) - len(marked[0])] if lines else ""
