r"""A Markdown file as sections: its front matter, its headings, and the text between them.

The places of all of them are kept, so that a file can be written back piece by piece. Of a line
``\# text``, ``\===`` or ``\---`` one backslash is left out when a file is read, so that it means
in a prompt what it means in Markdown.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import attrs

from promptgraft.errors import InvalidIdentifierError
from promptgraft.parts.descriptors import SectionPath, show_path
from promptgraft.parts.validation import check_key
from promptgraft.serde import did_you_mean, shown

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

INTRO = "intro"
BREAK = re.compile(r"\r\n|\r|\n")
"""What ends a line, in Markdown and in YAML."""

_FENCE = r"---[ \t]*"
_FRONT = re.compile(rf"{_FENCE}(?:\r\n|\r|\n)")
_END = re.compile(rf"^{_FENCE}$", re.MULTILINE)
_ATTRIBUTES = re.compile(r"(?P<title>.*?)[ \t]*\{[ \t]*(?P<attributes>[#.][^{}]*)\}")
_FROZEN = ".frozen"
# A line that would be, or underline, a heading but for the backslashes before it.
_ESCAPED = re.compile(
    r"^(?P<indent> {0,3})\\(?P<rest>\\*(?:#{1,6}(?:[ \t].*)?|=+[ \t]*|-+[ \t]*))$", re.MULTILINE
)
_RULE = re.compile(r"---[ \t]*$", re.MULTILINE)
_INDENT = re.compile(r"\A *")
_PROBE = "\n\n# probe"


class Span(NamedTuple):
    """A stretch of a text: where it begins, and where what follows it begins."""

    start: int
    end: int


class Line(NamedTuple):
    """What is wrong in a line of the file; lines count from 1."""

    number: int
    fault: str


@attrs.frozen(kw_only=True)
class Block:
    """A section as the file has it.

    Attributes:
        path: the keys of the headings above it, and its own.
        title: the heading's text; empty for the text before the first heading.
        level: 1 for ``#``, and so on; 0 for the text before the first heading.
        frozen: whether its text may not be overridden.
        line: line of the heading; ``body_line`` without one.
        body_line: line in which the text begins.
        region: all between the heading's line and the next heading, line breaks included.
        body: the text, its lines ended by line feeds, and without escapes of this format.
    """

    path: SectionPath
    title: str = ""
    level: int = 0
    frozen: bool = False
    line: int
    body_line: int
    region: Span
    body: str


@attrs.frozen(kw_only=True)
class Outline:
    """What a Markdown file is made of.

    Attributes:
        text: the whole file.
        front: the YAML between the two ``---``; None without front matter.
        blocks: the sections in reading order.
        faults: what is wrong with headings and front matter.
    """

    text: str
    front: Span | None
    blocks: tuple[Block, ...]
    faults: tuple[Line, ...]


def read_outline(text: str) -> Outline:
    """Split a file into front matter and sections; faults are collected, nothing is raised."""
    faults: list[Line] = []
    front, start = _front_matter(text, faults)
    blocks = tuple(_told_apart(list(_blocks(text, start, faults)), faults))
    return Outline(text=text, front=front, blocks=blocks, faults=tuple(faults))


def _front_matter(text: str, faults: list[Line]) -> tuple[Span | None, int]:
    """Return where the front matter stands, and where the Markdown begins."""
    begin = 1 if text.startswith("\ufeff") else 0
    opening = _FRONT.match(text, begin)
    if opening is None:
        return None, begin
    # Only "\n" ends a line for `$`; what YAML is shown keeps its own line breaks.
    closing = _END.search(text.replace("\r", "\n"), opening.end())
    if closing is None:
        faults.append(Line(1, "the front matter has no end; write `---` alone on a line below it"))
        return None, len(text)
    after = BREAK.match(text, closing.end())
    return Span(opening.end(), closing.start()), after.end() if after else closing.end()


class _Lines:
    """The lines of a text."""

    def __init__(self, text: str) -> None:
        breaks = [found.span() for found in BREAK.finditer(text)]
        self.starts = [0, *(end for _, end in breaks)]
        self.ends = [*(start for start, _ in breaks), len(text)]

    def at(self, place: int) -> int:
        """Return the line of a place, counted from 1."""
        return bisect.bisect_right(self.starts, place)


def _blocks(text: str, start: int, faults: list[Line]) -> Iterator[Block]:
    lines = _Lines(text)
    above = lines.at(start) - 1
    headings = [
        found._replace(start=above + found.start, end=above + found.end)
        for found in find_headings(text[start:])
    ]
    begins = [*(max(start, lines.starts[heading.start]) for heading in headings), len(text)]
    if text[start : begins[0]].strip():
        yield _block(text, Span(start, begins[0]), lines, (INTRO,))
    open_keys: list[tuple[int, str]] = []
    for heading, following in zip(headings, begins[1:], strict=True):
        title, key, frozen = _titled(heading, faults)
        while open_keys and open_keys[-1][0] >= heading.level:
            open_keys.pop()
        open_keys.append((heading.level, key))
        region = Span(lines.ends[heading.end - 1], following)
        yield attrs.evolve(
            _block(text, region, lines, tuple(key for _, key in open_keys)),
            title=title,
            level=heading.level,
            frozen=frozen,
            line=heading.start + 1,
        )


def _block(text: str, region: Span, lines: _Lines, path: SectionPath) -> Block:
    """Return a section without a heading."""
    raw = text[region.start : region.end]
    line = lines.at(region.start + len(raw) - len(raw.lstrip("\r\n")))
    body = unescaped(BREAK.sub("\n", raw).strip("\n"))
    return Block(path=path, line=line, body_line=line, region=region, body=body)


def _titled(heading: Heading, faults: list[Line]) -> tuple[str, str, bool]:
    """Return title, key and whether the section is frozen."""
    line = heading.start + 1
    if "\n" in heading.title:
        lines = heading.title.count("\n") + 1
        mend = "put an empty line above the underline if it is a rule, or use `#`"
        faults.append(Line(line, f"a heading of {lines} lines; {mend}"))
    found = _ATTRIBUTES.fullmatch(heading.title)
    title = found["title"].rstrip() if found else heading.title.strip()
    key, frozen = "", False
    for attribute in found["attributes"].split() if found else ():
        if attribute.startswith("#"):
            key = attribute[1:]
        elif attribute == _FROZEN:
            frozen = True
        else:
            meant = did_you_mean(attribute, [_FROZEN]) or "; expected `{#key .frozen}`"
            faults.append(Line(line, f"unknown attribute {shown(attribute)}{meant}"))
    key = key or slug_of(title)
    fault = f"the heading {shown(title)} makes no key; write one behind it: `{{#key}}`"
    try:
        if key:
            check_key(key, "section key")
            return title, key, frozen
    except InvalidIdentifierError as error:
        fault = str(error)
    faults.append(Line(line, fault))
    return title, f"line-{line}", frozen


def slug_of(title: str) -> str:
    """Return the key that a title makes: ``Édit rules!`` is ``edit-rules``; it may be empty."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:64].rstrip("-")


def _told_apart(blocks: Sequence[Block], faults: list[Line]) -> Iterator[Block]:
    """Yield the blocks; one whose path is taken is a fault, and gets a path of its own."""
    first: dict[SectionPath, Block] = {}
    for block in blocks:
        known = first.setdefault(block.path, block)
        if known is block:
            yield block
            continue
        name, title = block.path[-1], f"{block.title} " if block.title else ""
        fault = (
            f"section `{show_path(block.path)}`: the key `{name}` is that of line {known.line}; "
            f"give this heading one of its own: `{'#' * block.level} {title}{{#{name}-2}}`"
        )
        faults.append(Line(block.line, fault))
        yield attrs.evolve(block, path=(*block.path[:-1], f"line-{block.line}"))


class Heading(NamedTuple):
    """A heading in a text.

    Attributes:
        title: what it says, as it is written.
        level: 1 to 6.
        start: its first line, counted from 0.
        end: the line behind it.
        underlined: whether a line below the title makes it one.
    """

    title: str
    level: int
    start: int
    end: int
    underlined: bool


def find_headings(text: str) -> Iterator[Heading]:
    """Yield the headings of a text that stand in no list, quotation, code or HTML."""
    tokens = _parser().parse(text)
    for token, inline in itertools.pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map:
            start, end = token.map
            level = int(token.tag.removeprefix("h"))
            yield Heading(inline.content, level, start, end, token.markup in {"=", "-"})


def unescaped(text: str) -> str:
    """Return the text that a text of a file stands for; its lines end with a line feed."""
    return _ESCAPED.sub(r"\g<indent>\g<rest>", text)


def escaped(text: str) -> str:
    """Return the text that a file holds for ``text``: the same, with no heading in it."""
    written = _ESCAPED.sub(r"\g<indent>\\\\\g<rest>", text)
    if _RULE.match(written):  # at the beginning of a file it would begin the front matter
        written = f"\\{written}"
    while found := list(find_headings(written)):
        lines = written.split("\n")
        for heading in found:
            at = heading.end - 1 if heading.underlined else heading.start
            lines[at] = _INDENT.sub(r"\g<0>\\", lines[at], count=1)
        written = "\n".join(lines)
    return written


def stays_open(text: str) -> bool:
    """Tell whether code or HTML that begins in a text would swallow a heading below it."""
    last = text.count("\n") + 2
    return not any(heading.start == last for heading in find_headings(text + _PROBE))


@functools.lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark")
    parser.disable("inline")  # headings are blocks; what stands in a line is not looked at
    return parser
