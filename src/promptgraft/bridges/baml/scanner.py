"""A scanner for BAML files that finds declarations and their places, for edits.

It knows only as much of the grammar as is needed to find texts and tests. Syntax errors are left to
BAML, which compiles the project.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from pathlib import Path

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


_BREAK = re.compile("\r\n|\r|\n")
_OPEN, _CLOSE = ("{", "[", "("), ("}", "]", ")")
TEMPLATES = ("template_string", "string_template")
_BLOCKS = ("class", "enum", "function", "client", "retry_policy", "generator", "test")


@attrs.frozen(kw_only=True)
class Attribute:
    """An attribute, ``@alias("total")``.

    Attributes:
        name: without ``@``.
        literal: its first argument; None if that is not a text.
        rule: the expression of an assert or a check, without braces.
    """

    name: str
    literal: Literal | None = None
    rule: str = ""


@attrs.frozen(kw_only=True)
class Member:
    """A field of a class, or a value of an enum.

    Attributes:
        type: its type, as written.
        end: the offset at which another attribute can be inserted.
    """

    name: str
    type: str
    attributes: tuple[Attribute, ...]
    end: int


@attrs.frozen(kw_only=True)
class Declaration:
    """A block at the top level of a file.

    Attributes:
        kind: ``class``, ``enum``, ``function``, ``test``, ``template_string``, ``type``, ...
        start: its first character in the file.
        end: the character after it.
        line: the number of its first line.
        tokens: all its tokens, comments included.
        inputs: the types of its arguments by name.
        output: the type that a function returns.
        inside: the tokens between its braces; empty without braces.
    """

    kind: str
    name: str
    start: int
    end: int
    line: int
    tokens: Sequence[Token] = attrs.field(repr=False)
    inputs: dict[str, str] = attrs.field(factory=dict, hash=False)
    output: str = ""
    inside: Sequence[Token] = attrs.field(default=(), repr=False)

    @cached_property
    def words(self) -> frozenset[str]:
        """All words in it, any of which may name another declaration."""
        return frozenset(_words(self.tokens))

    @cached_property
    def prompt(self) -> Literal | None:
        """The prompt of a function, or the text of a template string; None without one."""
        if self.kind in TEMPLATES:
            raw = [token for token in self.tokens if token.kind is TokenKind.RAW]
            return read_literal(raw[-1]) if raw else None
        value = _without(self.value("prompt")[:2], SPACING)
        return read_literal(value[0]) if value and value[0].kind is TokenKind.RAW else None

    def value(self, name: str) -> Sequence[Token]:
        """Return the tokens from the value of ``name`` on; empty if it is not set."""
        for place, token in _outer(self.inside):
            # A word of the same name inside a value does not set it.
            if token.text == name and _begins_line(self.inside, place, in_block=True):
                return self.inside[place + 1 :]
        return ()

    def word(self, name: str) -> str:
        """Return the value of ``name``, a word or a string; empty if it is not set."""
        value = _without(self.value(name), SPACING)
        return read_literal(value[0]).text if value else ""

    def value_range(self, name: str) -> tuple[int, int]:
        """Return where the value of ``name``, a word or a string, stands in the file."""
        value = _without(self.value(name), SPACING)
        return (value[0].start, value[0].end) if value else (self.end, self.end)

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """The fields of a class or the values of an enum."""
        return tuple(_members(self.inside, typed=self.kind == "class"))

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """Its attributes that begin with ``@@``."""
        return tuple(
            _attribute(self.inside, place + 1)[0]
            for place, token in _outer(self.inside)
            if token.text == "@@"
        )


@attrs.frozen
class BamlFile:
    """A BAML file.

    Attributes:
        source: its text, with its original line breaks.
    """

    path: Path
    source: str = attrs.field(repr=False)
    declarations: tuple[Declaration, ...] = attrs.field(init=False, repr=False, eq=False)

    @declarations.default
    def _all_declarations(self) -> tuple[Declaration, ...]:
        return tuple(_declarations(self.source))


def _declarations(source: str) -> Iterator[Declaration]:
    tokens = tokens_of(source)
    at, line = 0, 1
    while at < len(tokens):
        declaration = _declaration(tokens, at, line) if _begins_line(tokens, at) else None
        if declaration is not None:
            yield declaration
        size = len(declaration.tokens) if declaration else 1
        # Counted while reading, so that a file of many declarations takes linear time.
        line += sum(len(_BREAK.findall(token.text)) for token in tokens[at : at + size])
        at += size


def _declaration(tokens: Sequence[Token], at: int, line: int) -> Declaration | None:
    kind = tokens[at].text
    if not _is_word(tokens[at]):
        return None
    if kind == "type":
        return _alias(tokens, at, line)
    if kind not in (*_BLOCKS, *TEMPLATES):
        return None
    words = (i for i in range(at + 1, len(tokens)) if _is_word(tokens[i]))
    # The first that is not in the brackets of `client<llm>`.
    name_at = next((i for i in words if tokens[i - 1].text != "<"), None)
    if name_at is None:
        return None
    inputs, after = _inputs(tokens, name_at + 1)
    end = _template_end(tokens, after) if kind in TEMPLATES else _block_end(tokens, after)
    if end is None:
        return None
    begin = next((i for i in range(after, end) if tokens[i].text == "{"), end)
    whole = tokens[at:end]
    return Declaration(
        kind="template_string" if kind in TEMPLATES else kind,
        name=tokens[name_at].text,
        start=tokens[at].start,
        end=whole[-1].end,
        line=line,
        tokens=whole,
        inputs=inputs,
        output=_text(tokens[after:begin]).removeprefix("->").strip() if kind == "function" else "",
        inside=tokens[begin + 1 : end - 1],
    )


def _alias(tokens: Sequence[Token], at: int, line: int) -> Declaration | None:
    """Return ``type NAME = TYPE``."""
    name = _next(tokens, at + 1)
    equals = _next(tokens, name + 1)
    if equals >= len(tokens) or not _is_word(tokens[name]) or tokens[equals].text != "=":
        return None
    end = _type_end(tokens, equals + 1)
    return Declaration(
        kind="type",
        name=tokens[name].text,
        start=tokens[at].start,
        end=tokens[end - 1].end,
        line=line,
        tokens=tokens[at:end],
        output=_text(tokens[equals + 1 : end]),
    )


def _inputs(tokens: Sequence[Token], at: int) -> tuple[dict[str, str], int]:
    """Return the types of the arguments by name, and where what follows them begins."""
    begin = _next(tokens, at)
    if begin >= len(tokens) or tokens[begin].text != "(":
        return {}, at
    end = closing(tokens, begin)
    inputs: dict[str, str] = {}
    for part in _parted(tokens[begin + 1 : end]):
        name, _, kind = _text(part).partition(":")
        if name.strip():
            inputs[name.strip()] = kind.strip()
    return inputs, min(end + 1, len(tokens))


def _parted(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    begin, depth = 0, 0
    for place, token in enumerate(tokens):
        # `map<string, int>` has a comma of its own.
        depth += (token.text in (*_OPEN, "<")) - (token.text in (*_CLOSE, ">"))
        if token.text == "," and depth == 0:
            yield tokens[begin:place]
            begin = place + 1
    yield tokens[begin:]


def _block_end(tokens: Sequence[Token], at: int) -> int | None:
    begin = next((i for i in range(at, len(tokens)) if tokens[i].text == "{"), len(tokens))
    end = closing(tokens, begin)
    return end + 1 if end < len(tokens) else None


def _template_end(tokens: Sequence[Token], at: int) -> int | None:
    place = _next(tokens, at)
    if place < len(tokens) and tokens[place].text == "=":
        place = _next(tokens, place + 1)
    is_text = place < len(tokens) and tokens[place].kind in STRINGS
    return place + 1 if is_text else None


def closing(tokens: Sequence[Token], begin: int, *, marks: str = "{[(}])") -> int:
    """Return where the bracket at ``begin`` is closed; the number of tokens where it is not."""
    opened, closed = tuple(marks[: len(marks) // 2]), tuple(marks[len(marks) // 2 :])
    depth = 0
    for place in range(begin, len(tokens)):
        depth += (tokens[place].text in opened) - (tokens[place].text in closed)
        if depth == 0:
            return place
    return len(tokens)


def _members(tokens: Sequence[Token], *, typed: bool) -> Iterator[Member]:
    at = 0
    while (at := _next(tokens, at)) < len(tokens):
        if tokens[at].text == "@@":
            at = _attribute(tokens, at + 1)[1]
            continue
        if not _is_word(tokens[at]):
            at += 1
            continue
        name = tokens[at]
        stop = _type_end(tokens, at + 1) if typed else at + 1
        kind = _text(tokens[at + 1 : stop]).strip()
        attributes: list[Attribute] = []
        end = tokens[stop - 1].end
        while (place := _next(tokens, stop)) < len(tokens) and tokens[place].text == "@":
            attribute, stop = _attribute(tokens, place + 1)
            attributes.append(attribute)
            end = tokens[stop - 1].end
        yield Member(name=name.text, type=kind, attributes=tuple(attributes), end=end)
        at = stop


def _type_end(tokens: Sequence[Token], at: int) -> int:
    """Return the end of the type that begins at ``at``; ``|`` may begin or end a line of it."""
    end, expects_more = at, True
    while (place := _next(tokens, end)) < len(tokens):
        text, kind = tokens[place].text, tokens[place].kind
        is_new_line = any(token.kind is TokenKind.BREAK for token in tokens[end:place])
        if is_new_line and not expects_more and text != "|":
            break
        if expects_more and (
            kind in (TokenKind.WORD, TokenKind.QUOTED, TokenKind.NUMBER) or text == "("
        ):
            end = closing(tokens, place) + 1 if text == "(" else place + 1
            if text == "map":
                end = closing(tokens, _next(tokens, end), marks="<>") + 1
            expects_more = False
        elif text in ("?", "[", "]", "|", "."):
            end, expects_more = place + 1, text in ("|", ".")
        else:
            break
    return min(end, len(tokens))


def _attribute(tokens: Sequence[Token], at: int) -> tuple[Attribute, int]:
    """Return the attribute whose name begins at ``at``, and the index after it."""
    end = at + 1
    while end + 1 < len(tokens) and tokens[end].text == "." and _is_word(tokens[end + 1]):
        end += 2
    name = _text(tokens[at:end])
    if end >= len(tokens) or tokens[end].text != "(":
        return Attribute(name=name), min(end, len(tokens))
    close = min(closing(tokens, end), len(tokens) - 1)
    tokens_inside = tokens[end + 1 : close]
    rule = next(
        (token.text[2:-2].strip() for token in tokens_inside if token.kind is TokenKind.JINJA), ""
    )
    return Attribute(name=name, literal=_argument(tokens_inside), rule=rule), close + 1


def _argument(tokens: Sequence[Token]) -> Literal | None:
    """Return the first argument as a text: a string, or bare words."""
    first = _without(next(iter(_parted(tokens))), SILENT)
    if not first or first[0].kind is TokenKind.JINJA:
        return None
    if first[0].kind in STRINGS:
        return read_literal(first[0])
    start, end = first[0].start, first[-1].end
    return Literal(
        start, end, "".join(token.text for token in tokens if start <= token.start < end)
    )


def _outer(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Yield the tokens outside nested brackets, with their indexes."""
    depth = 0
    for place, token in enumerate(tokens):
        depth -= token.text in _CLOSE
        if depth == 0:
            yield place, token
        depth += token.text in _OPEN


def _is_word(token: Token) -> bool:
    return token.kind is TokenKind.WORD


def _begins_line(tokens: Sequence[Token], at: int, *, in_block: bool = False) -> bool:
    """Return whether a token is the first of its line, or follows the end of a block.

    In a block it may also follow a list or a string.
    """
    for place in range(at - 1, -1, -1):
        token = tokens[place]
        if token.kind is TokenKind.BREAK or token.text == "}":
            return True
        if in_block and (token.kind in STRINGS or token.text == "]"):
            return True
        if token.kind not in SPACING:
            return False
    return True


def _next(tokens: Sequence[Token], at: int) -> int:
    while at < len(tokens) and tokens[at].kind in SILENT:
        at += 1
    return at


def _without(tokens: Sequence[Token], kinds: tuple[TokenKind, ...]) -> list[Token]:
    return [token for token in tokens if token.kind not in kinds]


def _text(tokens: Sequence[Token]) -> str:
    return "".join(
        " " if token.kind is TokenKind.COMMENT else token.text for token in tokens
    ).strip()


def words_of(written: str) -> frozenset[str]:
    """Return the words in a type."""
    return frozenset(_words(tokens_of(written)))


def _words(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.kind is TokenKind.WORD:
            yield token.text
        # The Jinja of a prompt calls template strings by name.
        elif token.kind in (*STRINGS, TokenKind.JINJA):
            yield from (
                inner_token.text
                for inner_token in tokens_of(token.text.strip('#"'))
                if _is_word(inner_token)
            )
