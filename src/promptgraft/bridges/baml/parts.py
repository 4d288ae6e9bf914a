"""The texts of a BAML function that may change, and how each is written back.

Proposals are literal text, except for the Jinja expressions and blocks of the source.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain, count
from pathlib import Path

import attrs

from promptgraft.bridges.baml.scanner import (
    Attribute,
    BamlFile,
    Declaration,
    Literal,
    Member,
    indentation,
)
from promptgraft.ground.text import listed


class PartKind(StrEnum):
    """The kind of a text."""

    PROMPT = "prompt"
    DESCRIPTION = "description"
    ALIAS = "alias"
    LABEL = "label"


# Atomic, because a quotation mark is a character too: a text of a model could be split in as many
# ways as it has quotations. What does not end is read to its end, which takes linear time.
_INSIDE = r"(?>\"(?:\\.|[^\"\\])*(?:\"|\Z)|'(?:\\.|[^'\\])*(?:'|\Z)|.)*?"
_TAGS = re.compile(
    r"\{%-?\s*raw\s*-?%\}.*?(?:\{%-?\s*endraw\s*-?%\}|(\Z))"
    rf"|\{{\{{{_INSIDE}(?:\}}\}}|(\Z))"
    rf"|\{{%{_INSIDE}(?:%\}}|(\Z))"
    r"|\{#.*?(?:#\}|(\Z))",
    re.DOTALL,
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_HASHES = 5
_INDENT = "  "


@attrs.frozen(kw_only=True)
class Part:
    """A text of a function or of a type that it returns.

    Attributes:
        key: its name among the texts.
        title: its description for the reflection model.
        file: the file that contains it.
        literal: its place and text; an empty range if it is not written yet.
        tags: the Jinja expressions and blocks of a prompt, in order.
        owner: the class or enum that it belongs to; empty for a prompt.
        own: the name that an alias replaces, which is the text if there is no alias.
        taken: the names of the other members of the type.
    """

    kind: PartKind
    key: str
    title: str
    file: Path
    literal: Literal
    tags: tuple[str, ...] = ()
    owner: str = ""
    own: str = ""
    taken: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The text in the source; for an alias that is not written, the name itself."""
        return self.literal.text or self.own

    def fault(self, text: str) -> str:
        """Return why a text is not allowed here, in one line; empty if it is."""
        if text == self.text:
            return ""
        if self.kind is PartKind.ALIAS and not _NAME.fullmatch(text):
            return f"expected a name of letters, digits and `_` as the alias, found {text[:80]!r}"
        if self.kind is PartKind.LABEL and (not text.strip() or re.search('[\r\n"\\\\]', text)):
            return f"expected one line without quotation marks as the alias, found {text[:80]!r}"
        # BAML accepts two members of one name without a word.
        if text in self.taken:
            return f"`{text}` is the name of another member; choose a different one"
        if _hashes(text) > _MOST_HASHES:
            return 'a BAML text cannot hold a quotation mark before five "#"; leave that out'
        return _tags_fault(self.tags, text) if self.kind is PartKind.PROMPT else ""

    def edited(self, text: str, line_break: str) -> str:
        """Return the source that replaces the literal to give it the text ``text``."""
        if text == self.text:
            return ""
        if self.kind is PartKind.PROMPT:
            written = _block(self._escaped(text), self.literal)
        elif self.kind is PartKind.DESCRIPTION:
            written = _quoted(text, is_block=self.literal.is_block)
        else:
            written = f'"{text}"'
        before, after = self.literal.around
        return f"{before}{written}{after}".replace("\n", line_break)

    def _escaped(self, text: str) -> str:
        """Return the text as Jinja source; everything but tags of the source is literal."""
        pieces = _split(self.tags, text)
        last = len(pieces) - 1
        return "".join(
            piece if place % 2 else _literal(piece, before_tag=place < last)
            for place, piece in enumerate(pieces)
        )


def _split(tags: tuple[str, ...], text: str) -> list[str]:
    """Split a text into literal pieces and, between them, tags that the source has."""
    # The longest first, because one tag may be the beginning of another.
    tag_pattern = "|".join(map(re.escape, sorted(set(tags), key=len, reverse=True)))
    return re.split(f"({tag_pattern})", text) if tag_pattern else [text]


def _literal(text: str, *, before_tag: bool) -> str:
    # A brace directly before a tag would join it.
    return re.sub(r"\{(?=[{%#]|\Z)" if before_tag else r"\{(?=[{%#])", '{{ "{" }}', text)


def _tags_fault(expected: tuple[str, ...], text: str) -> str:
    pieces = _split(expected, text)
    tags_present = tuple(pieces[1::2])
    added = [tag for piece in pieces[::2] for tag in _tags_in(piece)]
    added += (Counter(tags_present) - Counter(expected)).elements()
    if lost := Counter(expected) - Counter(tags_present):
        return f"the prompt lost {listed(lost)}; keep it"
    if added:
        return f"the prompt added {listed(added)}, which the source does not have; leave it out"
    # Expressions alone may move; a block that ends before it begins would not compile.
    if tags_present != expected and any(tag.startswith("{%") for tag in expected):
        return f"the expressions and blocks changed their order; keep it: {listed(expected)}"
    return ""


def _tags_in(text: str) -> tuple[str, ...]:
    """Return the expressions, blocks and comments of Jinja in a text, without unended ones."""
    return tuple(tag[0] for tag in _TAGS.finditer(text) if tag.lastindex is None)


def _hashes(text: str) -> int:
    """Return the number of ``#`` needed to quote a text."""
    return 1 + max((len(hashes) for hashes in re.findall('"(#+)', text)), default=0)


def between(text: str) -> str:
    """Return a text as a BAML block string."""
    hashes = "#" * _hashes(text)
    return f'{hashes}"{text}"{hashes}'


def _quoted(text: str, *, is_block: bool) -> str:
    is_plain = not is_block and not re.search('[\r\n"\\\\]', text)
    return f'"{text}"' if is_plain else between(text)


def _block(text: str, source: Literal) -> str:
    """Return a prompt as a block string with the layout of its source."""
    lines = text.split("\n")
    before, margin, after = source.layout
    if "\n" not in before and len(lines) == 1:
        return between(f"{before}{text}{after}")
    if "\n" not in before:
        before, after = "\n", f"\n{_INDENT}"
        margin = _INDENT * 2
    body = "\n".join(f"{margin}{line}" if line.strip() else "" for line in lines)
    return between(f"{before}{body}{after}")


def parts_of(
    functions: Sequence[tuple[BamlFile, Declaration]],
    templates: Iterable[tuple[BamlFile, Declaration]],
    types: Iterable[tuple[BamlFile, Declaration]],
) -> Iterator[Part]:
    """Yield the texts of functions, their template strings and the types that they return."""
    keys: set[str] = set()
    for file, block in (*functions, *templates):
        if block.prompt is None:
            continue
        is_own = block.kind == "function"
        prompt_words = ("prompt", *([block.name] if len(functions) > 1 else []))
        yield Part(
            kind=PartKind.PROMPT,
            key=_key(keys, *(prompt_words if is_own else ("text", block.name))),
            title=f"Prompt of {block.name}" if is_own else f"Template string {block.name}",
            file=file.path,
            literal=block.prompt,
            tags=_tags_in(block.prompt.text),
        )
    for file, block in types:
        yield from _of_type(file, block, keys)


def _of_type(file: BamlFile, block: Declaration, keys: set[str]) -> Iterator[Part]:
    is_class = block.kind == "class"
    if is_class:  # the description of an enum is in no request
        yield Part(
            kind=PartKind.DESCRIPTION,
            key=_key(keys, "about", block.name),
            title=f"Description of the class {block.name}",
            file=file.path,
            literal=_said(block.attributes, "description", block.end - 1, _new_line(file, block)),
        )
    # The name of a member with an alias may be used by others.
    named = {
        member.name: _of_member(member, "alias").text or member.name for member in block.members
    }
    for member in block.members:
        if any(attribute.name == "skip" for attribute in member.attributes):  # it is in no request
            continue
        what = f"{'field' if is_class else 'value'} {member.name} of {block.name}"
        kind = f" ({member.type})" if member.type else ""
        yield Part(
            kind=PartKind.DESCRIPTION,
            key=_key(keys, "about", block.name, member.name),
            title=f"Description of the {what}{kind}",
            file=file.path,
            literal=_of_member(member, "description"),
        )
        yield Part(
            kind=PartKind.ALIAS if is_class else PartKind.LABEL,
            key=_key(keys, "alias", block.name, member.name),
            title=f"Alias of the {what}: what the answer calls it",
            file=file.path,
            literal=_of_member(member, "alias"),
            owner=block.name,
            own=member.name,
            taken=frozenset(text for name, text in named.items() if name != member.name),
        )


def _of_member(member: Member, name: str) -> Literal:
    return _said(member.attributes, name, member.end, (f" @{name}(", ")"))


def _said(attributes: Iterable[Attribute], name: str, at: int, around: tuple[str, str]) -> Literal:
    """Return the literal of an attribute, or else the place and syntax to write it."""
    literals = (
        attribute.literal
        for attribute in attributes
        if attribute.name == name and attribute.literal
    )
    return next(literals, Literal(at, at, "", around=around))


def _new_line(file: BamlFile, block: Declaration) -> tuple[str, str]:
    """Return the source around an attribute on its own line before the closing brace."""
    before = file.source[: block.end - 1]
    blank = before[len(before.rstrip(" \t")) :]
    is_free = before.rstrip(" \t").endswith(("\n", "\r"))
    margin = indentation(file.source[block.start : block.end - 1].partition("\n")[2]) or _INDENT
    lead = margin.removeprefix(blank) if is_free else f"\n{margin}"
    return f"{lead}@@description(", f")\n{blank if is_free else ''}"


def _key(used_keys: set[str], *words: str) -> str:
    """Return an unused key; numbered, because declarations may differ only in case."""
    plain = "-".join(re.sub("[^a-z0-9_]", "-", word.lower()) for word in words)[:56]
    numbered = (f"{plain}-{number}" for number in count(2))
    key = next(key for key in chain([plain], numbered) if key not in used_keys)
    used_keys.add(key)
    return key
