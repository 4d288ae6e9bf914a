r"""Outlines of Markdown files: front matter, headings, and the text between them.

Concatenated, the pieces of an outline are the file to the last byte, so that each can be replaced
without touching the others. In a line ``\# text``, ``\===`` or ``\---`` one backslash is removed
when a file is read, as Markdown does.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import attrs

from promptgraft.errors import InvalidIdentifierError
from promptgraft.ground.serde import did_you_mean, digest_text, shown
from promptgraft.ground.yaml_edits import BREAK
from promptgraft.ground.yaml_text import Note
from promptgraft.overrides.parts.descriptors import SectionPath, show_path
from promptgraft.overrides.parts.validation import check_section_key, in_key

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

INTRO = "intro"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_RULE = re.compile(r"---[ \t]*")
_ATTRIBUTES = re.compile(r"(?P<title>.*?)[ \t]*\{[ \t]*(?P<attributes>[#.][^{}]*)\}")
_FROZEN = ".frozen"
_HIDDEN = ".hidden"
_IN_BRACES = re.compile(r"[ \t]*\{[ \t]*[#.][^{}]*\}(?=[ \t]*(?:#*[ \t]*)(?:\n|\Z))")
# A line that would be a heading, or underline one, without the backslashes before it.
_ESCAPED = re.compile(
    r"^(?P<indent> {0,3})\\(?P<rest>\\*(?:#{1,6}(?:[ \t].*)?|=+[ \t]*|-+[ \t]*))$", re.MULTILINE
)
_INDENT = re.compile(r"\A *")
# The end of a heading, before the `#`s that may close it.
_CLOSING = re.compile(r"(?:(?<=[^#])[ \t]+#+)?[ \t]*\Z")
_PROBE = "\n\n# probe"


@attrs.frozen(kw_only=True)
class OutlineBlock:
    """A section of the file.

    Attributes:
        path: the keys of the headings above it, and its own.
        level: 1 for ``#``, and so on; 0 for the text before the first heading.
        frozen: whether overrides of its text are forbidden.
        hidden: whether it is not shown unless an override shows it.
        line: the line of the heading; ``body_line`` without one.
        body_line: the line in which the text begins.
        heading: the heading as written, without the last line break.
        raw: everything up to the next heading, line breaks included.
    """

    path: SectionPath
    title: str = ""
    level: int = 0
    frozen: bool = False
    hidden: bool = False
    line: int
    body_line: int
    heading: str = ""
    raw: str

    @property
    def body(self) -> str:
        """The text with line feeds as line breaks, and with backslash escapes removed."""
        return unescaped(self._lines.strip("\n"))

    @property
    def before(self) -> str:
        """The heading as written, without attributes, and the empty lines below it."""
        lines, written = self._lines, BREAK.sub("\n", self.heading)
        heading = _IN_BRACES.sub("", written, count=1)
        if heading != written and not self.title:
            return ""  # only the key of a section, which has no heading
        return heading + (lines[: len(lines) - len(lines.lstrip("\n"))] if self.body else "")

    @property
    def after(self) -> str:
        """The line breaks behind the text, before the next heading."""
        lines = self._lines
        return lines[len(lines.rstrip("\n")) :] if self.body else lines

    @property
    def _lines(self) -> str:
        return BREAK.sub("\n", self.raw)


@attrs.frozen(kw_only=True)
class Outline:
    """The pieces of a Markdown file, in order.

    ``front`` is the YAML between the two ``---``; None without front matter.
    """

    opening: str
    front: str | None
    closing: str
    blocks: tuple[OutlineBlock, ...]

    @property
    def text(self) -> str:
        """The whole file."""
        sections = (piece for block in self.blocks for piece in (block.heading, block.raw))
        return "".join((self.opening, self.front or "", self.closing, *sections))


def read_outline(text: str, note: Note) -> Outline:
    """Split a file into front matter and sections; faults are noted, not raised."""
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    lines = _LINE.findall(text.removeprefix(mark))
    end = _front_matter_end(lines)
    opening, front, closing = mark, None, ""
    if end is None:
        note(1, "the front matter has no end; write `---` alone on a line below it")
        opening, end = text, len(lines)
    elif end:
        opening, front, closing = mark + lines[0], "".join(lines[1 : end - 1]), lines[end - 1]
    intro, *blocks = _blocks(lines, end, note)
    if intro.raw.strip():
        blocks = [intro, *blocks]
    else:
        # Blank lines after the front matter are no section, but belong to the file.
        closing += intro.raw
    return Outline(
        opening=opening, front=front, closing=closing, blocks=tuple(_deduplicated(blocks, note))
    )


def _front_matter_end(lines: Sequence[str]) -> int | None:
    """Return the number of lines of the front matter with its rules; None if it has no end."""
    rules = (at for at, line in enumerate(lines) if _RULE.fullmatch(line.rstrip("\r\n")))
    if next(rules, None) != 0 or not BREAK.search(lines[0]):
        return 0
    closing = next(rules, None)
    return None if closing is None else closing + 1


def _blocks(lines: Sequence[str], start: int, note: Note) -> Iterator[OutlineBlock]:
    """Yield the text before the first heading, which may be blank, and each section."""
    headings = list(find_headings("".join(lines[start:])))
    begins = [*(start + heading.start for heading in headings), len(lines)]
    raw = "".join(lines[start : begins[0]])
    line = start + 1 + _breaks_before(raw)
    yield OutlineBlock(path=(INTRO,), line=line, body_line=line, raw=raw)
    open_keys: list[tuple[int, str]] = []
    for number, heading in enumerate(headings, start=1):
        begin, following = begins[number - 1 : number + 1]
        title, key, marks = _titled(heading.title, number, begin + 1, note)
        while open_keys and open_keys[-1][0] >= heading.level:
            open_keys.pop()
        open_keys.append((heading.level, key))
        end = start + heading.end
        written = "".join(lines[begin:end]).rstrip("\r\n")
        # Cut as text, so that heading and rest together are the lines to the last byte.
        raw = "".join(lines[begin:following]).removeprefix(written)
        yield OutlineBlock(
            path=tuple(key for _, key in open_keys),
            title=title,
            level=heading.level,
            frozen=_FROZEN in marks,
            hidden=_HIDDEN in marks,
            line=begin + 1,
            body_line=end + _breaks_before(raw),
            heading=written,
            raw=raw,
        )


def _breaks_before(raw: str) -> int:
    return len(BREAK.findall(raw[: len(raw) - len(raw.lstrip("\r\n"))]))


def _titled(written: str, number: int, line: int, note: Note) -> tuple[str, str, set[str]]:
    """Return the title, the key, and the marks, such as ``.frozen``.

    ``number`` is that of the heading; it makes the key of a title without letters and digits.
    """
    if "\n" in written:
        count = written.count("\n") + 1
        mend = "put an empty line above the underline if it is a rule, or use `#`"
        note(line, f"a heading of {count} lines; {mend}")
    attributes = _ATTRIBUTES.fullmatch(written)
    title = attributes["title"].rstrip() if attributes else written.strip()
    key, marks = "", set[str]()
    for attribute in attributes["attributes"].split() if attributes else ():
        if attribute.startswith("#"):
            key = attribute[1:]
        elif attribute in (_FROZEN, _HIDDEN):
            marks.add(attribute)
        else:
            meant = did_you_mean(attribute, [_FROZEN, _HIDDEN]) or "; expected `{#key .frozen}`"
            note(line, f"unknown attribute {shown(attribute)}{meant}")
    key = key or slug_of(title) or f"section-{number}"
    try:
        return title, check_section_key(key), marks
    except InvalidIdentifierError as error:
        note(line, str(error))
    # A stand-in, unique in the file, so that further faults can be found.
    return title, f"line-{line}", marks


def with_hidden(heading: str, *, hidden: bool) -> str:
    """Return a heading as written, with the mark of hidden sections, or without it."""
    first = BREAK.split(heading)[0]
    braces = _IN_BRACES.search(first)
    marks = braces[0].strip(" \t{}").split() if braces else []
    marks = [mark for mark in marks if mark != _HIDDEN] + [_HIDDEN] * hidden
    written = f" {{{' '.join(marks)}}}" if marks else ""
    if braces is None:
        return _CLOSING.sub(rf"{written}\g<0>", first, count=1) + heading[len(first) :]
    return first[: braces.start()] + written + heading[braces.end() :]


def slug_of(title: str) -> str:
    """Derive a key from a title: ``Édit rules!`` gives ``edit-rules``, ``Задача 1`` ``задача-1``.

    It is empty for a title without letters and digits.
    """
    is_latin = all(_is_latin(letter) for letter in title if letter.isalpha())
    plain = ascii_slug(title) if is_latin else unicodedata.normalize("NFKC", title).lower()
    # Composed again: lower case may decompose a letter.
    spaced = "".join(letter if in_key(letter) and letter != "_" else " " for letter in plain)
    key = "-".join(unicodedata.normalize("NFC", spaced).replace("-", " ").split())
    # A mark belongs to the letter before it, and there may be none.
    first = next((at for at, letter in enumerate(key) if letter.isalnum()), len(key))
    return key[first : first + 64].rstrip("-")


def ascii_slug(title: str) -> str:
    """Derive a key of ASCII letters, as names of prompts are; it may be empty."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:64].rstrip("-")


def key_of(path: Path) -> str:
    """Return the key of the prompt in a file without one: of ASCII letters, as names of files."""
    stem = unicodedata.normalize("NFC", path.stem)
    return ascii_slug(stem) or f"prompt-{digest_text(stem)[:8]}"


def _is_latin(letter: str) -> bool:
    return "LATIN" in unicodedata.name(letter, "")


def _deduplicated(blocks: Sequence[OutlineBlock], note: Note) -> Iterator[OutlineBlock]:
    """Yield the blocks with unique paths; a path that is taken is noted as a fault."""
    first: dict[SectionPath, OutlineBlock] = {}
    for block in blocks:
        twin = first.setdefault(block.path, block)
        if twin is block:
            yield block
            continue
        name, title = block.path[-1], f"{block.title} " if block.title else ""
        fault = (
            f"section `{show_path(block.path)}`: the key `{name}` is that of line {twin.line}; "
            f"give this heading one of its own: `{'#' * block.level} {title}{{#{name}-2}}`"
        )
        note(block.line, fault)
        yield attrs.evolve(block, path=(*block.path[:-1], f"line-{block.line}"))


class Heading(NamedTuple):
    """A heading in a text, from line ``start`` (counted from 0) to before line ``end``."""

    title: str
    level: int
    start: int
    end: int
    underlined: bool


def find_headings(text: str) -> Iterator[Heading]:
    """Yield the top-level headings of a text: not those in lists, quotations, code or HTML."""
    tokens = _parser().parse(text)
    for token, inline in itertools.pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map:
            start, end = token.map
            level = int(token.tag.removeprefix("h"))
            yield Heading(inline.content, level, start, end, token.markup in {"=", "-"})


def unescaped(text: str) -> str:
    """Return a text of a file without escapes; its lines must end with line feeds."""
    return _ESCAPED.sub(r"\g<indent>\g<rest>", text)


def escaped(text: str) -> str:
    """Return ``text`` with escapes, so that no line of it reads as a heading."""
    written = _ESCAPED.sub(r"\g<indent>\\\\\g<rest>", text)
    if _RULE.fullmatch(written.partition("\n")[0]):  # it would open front matter
        written = f"\\{written}"
    # Again, because an escaped line may turn the one below it into a heading.
    while headings := list(find_headings(written)):
        lines = written.split("\n")
        for heading in headings:
            at = heading.end - 1 if heading.underlined else heading.start
            lines[at] = _INDENT.sub(r"\g<0>\\", lines[at], count=1)
        written = "\n".join(lines)
    return written


def stays_open(text: str) -> bool:
    """Return whether code or HTML left open in a text would swallow the next heading."""
    last = text.count("\n") + 2
    return not any(heading.start == last for heading in find_headings(text + _PROBE))


@functools.lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark")
    parser.disable("inline")  # headings are blocks, so inline markup need not be parsed
    return parser
