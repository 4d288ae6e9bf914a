"""New section bodies in the text of a Markdown file: what is text in a body stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import attrs

from promptgraft.errors import ConfigError
from promptgraft.overrides.types import PromptOverride
from promptgraft.parts.body import BodySyntax, Piece, Slot, write_body
from promptgraft.parts.descriptors import SectionPath, section_part
from promptgraft.project.markdown.loading import Loaded
from promptgraft.project.markdown.outline import (
    BREAK,
    INTRO,
    escaped,
    slug_of,
    stays_open,
    with_breaks,
)
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.syntax import Source

_NAME_CHARACTER = re.compile(r"[_a-zA-Z0-9]")
# What begins a tag, or would begin one together with what follows the text.
_OPENING = re.compile(r"\{(?:[{%#])+|\{\Z")
_DEFINES = re.compile(r"\{%[-+]?\s*(?:set|macro)\b")


def with_sections(loaded: Loaded, fresh: PromptOverride, front: str | None) -> str:
    """Return the Markdown file with the section bodies of an override, and a front matter.

    Raises:
        ConfigError: a body cannot stand in the file.
    """
    new = dict(_new_texts(loaded, fresh))
    blocks = loaded.outline.blocks
    written = {block.path for block in blocks}
    missing = [section for section in loaded.template.sections if (section.key,) not in written]
    if not any((section.key,) in new for section in missing):
        missing = []
    rewritten = list(blocks)
    for at, block in enumerate(blocks):
        if block.path in new:
            is_last = at == len(blocks) - 1 and not missing
            raw = _raw(loaded, at, new[block.path], is_last=is_last)
            rewritten[at] = attrs.evolve(block, raw=raw)
    text = attrs.evolve(loaded.outline, front=front, blocks=tuple(rewritten)).text
    for section in missing:
        text = _appended(text, section, new.get((section.key,), ""))
    return text


def _new_texts(loaded: Loaded, fresh: PromptOverride) -> Iterator[tuple[SectionPath, str]]:
    """Yield the bodies that differ from their source, as the file has to hold them."""
    for path, entry in fresh.sections.items():
        source = loaded.template.section(path).source
        pieces = within(source.parse(entry.body))
        if pieces == within(source.pieces):
            continue
        where = f"{loaded.path}: {section_part(path)}"
        if any(isinstance(piece, str) and "\r" in piece for piece in pieces):
            raise ConfigError(
                f"{where}: the new text has a carriage return, which a Markdown file does not "
                "keep; write it by hand"
            )
        try:
            yield path, escaped(_template_text(pieces, source))
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None


def within(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return a text without the line feeds at its ends, which are not rendered."""
    kept = list(pieces)
    if kept and isinstance(kept[0], str):
        kept[0] = kept[0].lstrip("\n")
    if kept and isinstance(kept[-1], str):
        kept[-1] = kept[-1].rstrip("\n")
    return tuple(piece for piece in kept if piece != "")


def _raw(loaded: Loaded, at: int, text: str, *, is_last: bool) -> str:
    """Return what stands below a heading for a new text; the empty lines around it are kept."""
    block = loaded.outline.blocks[at]
    if not is_last and stays_open(text):
        raise ConfigError(
            f"{loaded.path}:{block.line}: {section_part(block.path)}: the new text leaves code or "
            "HTML open, which would swallow the section below it; close it, or write it by hand"
        )
    if block.level == 0 and not text.strip():
        # Blank text before the first heading is no section: it gets a heading of its own.
        following = loaded.outline.blocks[at + 1 :]
        level = following[0].level if following else 1
        text = f"{'#' * level} {{#{INTRO}}}\n\n{text}".rstrip("\n")
    file = loaded.outline.text
    old = block.raw.strip("\r\n")
    if not old:
        gap = "\n\n" if not is_last else "\n" if block.raw else ""
        return with_breaks(f"\n\n{text}{gap}", file)
    lead, _, tail = block.raw.partition(old)
    gap = "" if is_last else "\n" * (2 - len(BREAK.findall(tail)))
    return lead + with_breaks(text + gap, file) + tail


def _appended(text: str, section: MarkdownSection, body: str) -> str:
    """Return the file with a heading for a section that only a file beside it made."""
    key = "" if section.title and slug_of(section.title) == section.key else f"#{section.key}"
    attributes = " ".join(filter(None, (key, "" if section.overridable else ".frozen")))
    title = " ".join(filter(None, ("#", section.title, f"{{{attributes}}}" if attributes else "")))
    content = text.rstrip("\r\n")
    gap = "\n\n" if content.removeprefix("\ufeff") else ""
    end = f"{gap}{title}\n" + (f"\n{body}\n" if body else "")
    return content + with_breaks(end, text)


def _template_text(pieces: Sequence[Piece], source: Source) -> str:
    """Return the template whose text and slots are ``pieces``: a body, split by its section."""
    if source.syntax is BodySyntax.PLAIN:
        return write_body(pieces, BodySyntax.PLAIN, frozenset())
    if source.syntax is BodySyntax.DOLLAR:
        return "".join(_dollar(piece, following) for piece, following in pairwise([*pieces, ""]))
    parts = ["", *_tagged(pieces, source), ""]
    return "".join(
        _bare(part.name, before, after)
        if isinstance(part, Slot)
        else _as_text(part, tag_follows=isinstance(after, Slot))
        for before, part, after in zip(parts, parts[1:], parts[2:], strict=False)
    )


def _dollar(piece: Piece, following: Piece) -> str:
    if isinstance(piece, str):
        return piece.replace("$", "$$")
    glued = isinstance(following, str) and _NAME_CHARACTER.match(following)
    return f"${{{piece.name}}}" if glued else f"${piece.name}"


def _tagged(pieces: Sequence[Piece], source: Source) -> Iterator[Piece]:
    """Yield text, and slots as they are spelled in Jinja, with the definitions before them."""
    slots = [piece.name for piece in pieces if isinstance(piece, Slot)]
    is_moved = [name for name in slots if name in source.opaque] != list(source.opaque)
    if is_moved and any(_DEFINES.search(text) for _, text in source.blocks):
        raise ConfigError(
            "the new text moves or repeats blocks of a template that sets names; write it by hand"
        )
    blocks = iter(() if is_moved else source.blocks)
    for piece in pieces:
        if isinstance(piece, str):
            yield piece
        elif piece.name not in source.opaque:
            yield Slot(f"{{{{ {piece.name} }}}}")
        elif is_moved:
            yield Slot(source.opaque[piece.name])
        else:
            for name, text in blocks:
                yield Slot(text)
                if name is not None:
                    break
    yield from (Slot(text) for _, text in blocks)


def _bare(tag: str, before: Piece, after: Piece) -> str:
    """Return a tag that takes no whitespace from the text around it."""
    if isinstance(before, str) and before[-1:].isspace():
        tag = re.sub(r"\A(\{[{%])-", r"\1", tag)
    if isinstance(after, str) and after[:1].isspace():
        tag = re.sub(r"-([}%]\})\Z", r"\1", tag)
    return tag


def _as_text(text: str, *, tag_follows: bool) -> str:
    def raw(match: re.Match[str]) -> str:
        if match[0] == "{" and not tag_follows:
            return "{"
        return f"{{% raw %}}{match[0]}{{% endraw %}}"

    return _OPENING.sub(raw, text)
