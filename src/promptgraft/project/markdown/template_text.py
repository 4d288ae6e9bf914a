"""Override bodies as templates: what is text in a body is text in the template too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from promptgraft.errors import ConfigError
from promptgraft.parts.body import BodySyntax, Piece, Slot, write_body
from promptgraft.prompt.syntax import Source

_NAME_CHARACTER = re.compile(r"[_a-zA-Z0-9]")
# What begins a tag, or would begin one together with what follows the text.
_OPENING = re.compile(r"\{(?:[{%#])+|\{\Z")
_DEFINES = re.compile(r"\{%[-+]?\s*(?:set|macro)\b")


def template_text(pieces: Sequence[Piece], source: Source) -> str:
    """Return the template whose text and slots are ``pieces``.

    Args:
        pieces: an override body, split by ``source``.
        source: the section that it is a body of.

    Raises:
        ConfigError: no template says the same.
    """
    if source.syntax is BodySyntax.PLAIN:
        return write_body(pieces, BodySyntax.PLAIN, frozenset())
    if source.syntax is BodySyntax.DOLLAR:
        return "".join(_dollar(piece, following) for piece, following in pairwise([*pieces, ""]))
    return "".join(_jinja(pieces, source))


def _dollar(piece: Piece, following: Piece) -> str:
    if isinstance(piece, str):
        return piece.replace("$", "$$")
    glued = isinstance(following, str) and _NAME_CHARACTER.match(following)
    return f"${{{piece.name}}}" if glued else f"${piece.name}"


def _jinja(pieces: Sequence[Piece], source: Source) -> Iterator[str]:
    parts: list[Piece] = []
    definitions = _definitions(pieces, source)
    for piece in pieces:
        if isinstance(piece, Slot) and piece.name in source.opaque:
            parts.extend(Slot(text) for text in definitions.pop(piece.name, ()))
            parts.append(Slot(source.opaque[piece.name]))
        elif isinstance(piece, Slot):
            parts.append(Slot(f"{{{{ {piece.name} }}}}"))
        else:
            parts.append(piece)
    parts.extend(Slot(text) for texts in definitions.values() for text in texts)
    for before, part, after in zip(["", *parts], parts, [*parts[1:], ""], strict=False):
        if isinstance(part, Slot):
            yield _bare(part.name, before, after)
        else:
            yield _escaped(part, tag_follows=isinstance(after, Slot))


def _definitions(pieces: Sequence[Piece], source: Source) -> dict[str, list[str]]:
    """Return the definitions that stand before each opaque slot; behind the last, under ``""``.

    Raises:
        ConfigError: the body moves slots past definitions that they may depend on.
    """
    found: dict[str, list[str]] = {}
    waiting: list[str] = []
    for name, text in source.blocks:
        waiting.append(text)
        if name is not None:
            found[name], waiting = waiting[:-1], []
    moved = [piece.name for piece in pieces if isinstance(piece, Slot) and piece.name in found]
    if moved != list(found) and any(_DEFINES.search(text) for _, text in source.blocks):
        raise ConfigError(
            "the new text moves or repeats blocks of a template that sets names; write it by hand"
        )
    return {**found, "": waiting}


def _bare(tag: str, before: Piece, after: Piece) -> str:
    """Return a tag that takes no whitespace from the text around it."""
    if isinstance(before, str) and before[-1:].isspace():
        tag = re.sub(r"\A(\{[{%])-", r"\1", tag)
    if isinstance(after, str) and after[:1].isspace():
        tag = re.sub(r"-([}%]\})\Z", r"\1", tag)
    return tag


def _escaped(text: str, *, tag_follows: bool) -> str:
    def raw(match: re.Match[str]) -> str:
        if match[0] == "{" and not tag_follows:
            return "{"
        return f"{{% raw %}}{match[0]}{{% endraw %}}"

    return _OPENING.sub(raw, text)
