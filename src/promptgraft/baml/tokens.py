"""BAML source as tokens that keep every character, and the literals in it.

Joined, the texts of the tokens are the source. A string that is not closed is a lone quotation
mark, so that every text has tokens, also one that BAML refuses.
"""

from __future__ import annotations

import re
import textwrap
from enum import StrEnum

import attrs


class Kind(StrEnum):
    """What a token is."""

    SPACE = "space"
    BREAK = "break"
    COMMENT = "comment"
    RAW = "raw"
    QUOTED = "quoted"
    JINJA = "jinja"
    WORD = "word"
    NUMBER = "number"
    MARK = "mark"


SPACING = (Kind.SPACE, Kind.COMMENT)
SILENT = (*SPACING, Kind.BREAK)
STRINGS = (Kind.RAW, Kind.QUOTED)


@attrs.frozen
class Token:
    """A token and where it begins in the source."""

    kind: Kind
    text: str
    start: int

    @property
    def end(self) -> int:
        """Where the next token begins."""
        return self.start + len(self.text)


_BEFORE_RULES = ("(", ",")
# An address is no comment: BAML takes `//` in a bare text unless a space stands before it.
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
    found: list[Token] = []
    before, at = "", 0
    while at < len(source):
        rule = _JINJA.match(source, at) if before in _BEFORE_RULES else None
        match = rule or _TOKENS.match(source, at)
        assert match is not None  # noqa: S101 - a mark is any character
        kind = Kind.JINJA if rule else Kind(match.lastgroup or Kind.MARK)
        found.append(Token(kind, match[0], at))
        if kind not in SILENT:
            before = match[0]
        at = match.end()
    return tuple(found)


@attrs.frozen
class Literal:
    """A text in the source: where it stands with its quotation marks, and what it says.

    Attributes:
        start: its first character in the file.
        end: the character after it; equal to ``start`` where there is none yet.
        text: what it says.
        is_block: whether it is between ``#"`` and ``"#``.
        layout: what stands before the text of a block, before each of its lines, and after it.
        around: what has to be written before and after a text where there is none yet.
    """

    start: int
    end: int
    text: str
    is_block: bool = False
    layout: tuple[str, str, str] = ("", "", "")
    around: tuple[str, str] = ("", "")


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def read_literal(token: Token) -> Literal:
    """Return what a string, a number or a word says."""
    if token.kind is Kind.RAW:
        hashes = token.text.index('"') + 1
        inner = token.text[hashes:-hashes].replace("\r\n", "\n")
        margin = indentation(inner) if inner[:1].isspace() and _is_open(inner) else ""
        before, after = inner[: len(inner) - len(inner.lstrip())], inner[len(inner.rstrip()) :]
        layout = before.removesuffix(margin), margin, after
        return Literal(token.start, token.end, _block_text(inner), is_block=True, layout=layout)
    if token.kind is Kind.QUOTED:
        inner = re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), token.text[1:-1])
        return Literal(token.start, token.end, inner)
    return Literal(token.start, token.end, token.text)


def _block_text(inner: str) -> str:
    """Return what BAML makes of the text between ``#"`` and ``"#``, without blanks around it."""
    if not _is_open(inner):
        return inner.strip()
    margin = len(indentation(inner))
    lines = inner.split("\n")
    return "\n".join(line[margin:] if line.strip() else "" for line in lines).strip()


def _is_open(inner: str) -> bool:
    """Tell whether the text begins on a line of its own; BAML takes no indentation off others."""
    return not inner.partition("\n")[0].strip()


def indentation(text: str) -> str:
    """Return what every line of a text that is not blank begins with."""
    lines = [line for line in text.splitlines() if line.strip()]
    marked = textwrap.dedent("\n".join(lines)).splitlines()
    return lines[0][: len(lines[0]) - len(marked[0])] if lines else ""
