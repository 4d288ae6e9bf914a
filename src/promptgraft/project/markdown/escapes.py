r"""Headings of Markdown, and how a text that looks like one stays text.

Of a line ``\# text``, ``\===`` or ``\---`` one backslash is left out when a file is read, so
that it means in a prompt what it means in Markdown. Nothing else in a text is changed.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

BREAK = re.compile(r"\r\n|\r|\n")
"""What ends a line, in Markdown and in YAML."""

# A line that would be, or underline, a heading but for the backslashes before it.
_ESCAPED = re.compile(
    r"^(?P<indent> {0,3})\\(?P<rest>\\*(?:#{1,6}(?:[ \t].*)?|=+[ \t]*|-+[ \t]*))$", re.MULTILINE
)
_RULE = re.compile(r"---[ \t]*$", re.MULTILINE)
_PROBE = "\n\n# probe"


class FoundHeading(NamedTuple):
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


def find_headings(text: str) -> Iterator[FoundHeading]:
    """Yield the headings of a text that stand in no list, quotation, code or HTML."""
    tokens = _parser().parse(text)
    for token, inline in itertools.pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map:
            start, end = token.map
            level = int(token.tag.removeprefix("h"))
            yield FoundHeading(inline.content, level, start, end, token.markup in {"=", "-"})


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
            bare = lines[at].lstrip(" ")
            lines[at] = f"{lines[at][: len(lines[at]) - len(bare)]}\\{bare}"
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
