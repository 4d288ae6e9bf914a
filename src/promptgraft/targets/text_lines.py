"""Lines of a text: those that may be dropped, those that are redundant, and edits by line."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal

import attrs

from promptgraft.ground.text import clip, folded_words
from promptgraft.targets.base import unreadable

_MARK = re.compile(r"(?:[-*+•]|\d+[.)])\s+")
_FENCE = re.compile(r"```|~~~")
# Headings, tables, rules across the page, and lines that are nothing but a tag.
_STRUCTURE = re.compile(r"#|\||[-=*_]{3,}$|<[^>]*>$")
# The subject that a line begins with: `- billing: …`, `**Billing** — …`.
_LABEL = re.compile(
    r"(?P<mark>(?:[-*+•]|\d+[.)])\s+)?(?P<label>[^:—–]{1,60}?)\s*(?P<end>[:—–])[*_`\"]*\s+\S"
)
_LABEL_WORDS = 5  # what is longer is a sentence
_SAME = 0.4  # of the weight of the shorter line
_MOST_LINES = 1_000


@attrs.define(eq=False)
class Line:
    """A rule or sentence that may be dropped, with its continuation lines.

    Attributes:
        places: indices of its lines in the text.
        key: its heading and normalized content; equal for repetitions.
        words: its words, without case and accents.
        is_fixed: whether it must stay: it introduces other lines or contains a placeholder.
        label: what it defines, below which heading; empty if it is no definition. Of a definition
            another wording is a replacement: it stands where the old one stood, never beside it.
    """

    places: list[int]
    key: str
    words: list[str]
    is_fixed: bool
    label: str = ""


def lines_of(text: str, placeholders: Collection[str] = ()) -> list[Line]:
    """Return the lines of a text that may be dropped, in order.

    Headings, fenced blocks and tables are left out. Indented lines belong to the line above them
    that is not indented, and so does the rest of a sentence that continues on the next line.
    """
    lines: list[Line] = []
    heading, is_fenced, indent, is_adjacent = "", False, 0, False
    for place, line in enumerate(text.split("\n")[:_MOST_LINES]):
        bare = line.strip()
        # Without its bullet, case, spacing and full stop.
        content = " ".join(_MARK.sub("", bare, count=1).casefold().split()).rstrip(".")
        depth = len(line) - len(line.lstrip())
        fixed = bare.endswith(":") or any(placeholder in line for placeholder in placeholders)
        if _FENCE.match(bare) or is_fenced:
            is_fenced ^= bool(_FENCE.match(bare))
            if lines and is_adjacent:
                lines[-1].is_fixed = True
            is_adjacent = False
        elif not bare:
            is_adjacent = False
        elif _STRUCTURE.match(bare):
            # Structure separates: lines below it continue neither it nor a line above it.
            heading, is_adjacent, indent = bare, False, len(text)
            lines.append(Line([], "", [], is_fixed=True))
        elif lines and (depth > indent or (is_adjacent and bare[0].islower())):
            above = lines[-1]
            above.places.append(place)
            above.key = f"{above.key} {content}"
            above.words += folded_words(bare)
            above.is_fixed |= fixed
            is_adjacent = True
        else:
            key, words = f"{heading}\n{content}", folded_words(bare)
            lines.append(Line([place], key, words, fixed, _label(heading, bare)))
            indent, is_adjacent = depth, True
            heading = bare if bare.endswith(":") else heading
    return [line for line in lines if line.words and not line.is_fixed]


def _label(heading: str, bare: str) -> str:
    """Return what a line defines below a heading; empty if it is no definition.

    A dash ends a label only behind a bullet: sentences have dashes too.
    """
    match = _LABEL.match(bare)
    if match is None or (match["end"] != ":" and not match["mark"]):
        return ""
    words = folded_words(match["label"])
    return f"{heading}\n{' '.join(words)}" if 0 < len(words) <= _LABEL_WORDS else ""


def without(text: str, dropped: Iterable[Line]) -> str:
    """Return a text without some of its lines, or unchanged if nothing would be left."""
    gone = {place for line in dropped for place in line.places}
    kept_text = "\n".join(line for place, line in enumerate(text.split("\n")) if place not in gone)
    return kept_text if kept_text.strip() else text


def undoubled(text: str, sides: Iterable[str]) -> str:
    """Return what was merged from texts without definitions of a label that two have added.

    The one that stands first is kept. A label that a side has several times stays as it is.
    """
    counts = [Counter(line.label for line in lines_of(side)) for side in sides]
    labels, doubles = set[str](), list[Line]()
    for line in lines_of(text):
        if line.label in labels and all(count[line.label] < 2 for count in counts):
            doubles.append(line)
        labels.add(line.label)
    return without(text, [line for line in doubles if line.label])


def extended(text: str, line: str, *, label: str = "", replaces: str = "") -> str:
    """Return a text with one more line; unchanged if it says that already in other words.

    A definition takes the place of the wording that it replaced elsewhere. If the text defines the
    label otherwise, the text is left as it is.

    Args:
        text: the text.
        line: the line, with its continuation lines.
        label: what it defines; empty if it is no definition.
        replaces: the key of the definition that it replaced; empty if there was none.
    """
    lines, longer, rows = lines_of(text), f"{text}\n{line}", text.count("\n") + 1
    added = [line_there for line_there in lines_of(longer) if line_there.places[0] >= rows]
    if not label:
        return text if any(is_said(new_line, lines) for new_line in added) else longer
    defined = [line_there for line_there in lines if line_there.label == label]
    if not defined and not replaces:
        # Below another heading it would define something else, perhaps a second time.
        is_at_home = [line_there.label for line_there in added] == [label]
        return longer if is_at_home and not _is_opened(text, label) else text
    is_old = [line_there.key for line_there in defined] == [replaces]
    return exchanged(text, defined[0], line) if is_old else text


def _is_opened(text: str, label: str) -> bool:
    """Return whether a line of a text names a label and defines nothing yet."""
    name = label.partition("\n")[2].split()
    rows = (row.rstrip() for row in text.split("\n"))
    return any(folded_words(row) == name for row in rows if row.endswith(":"))


def exchanged(text: str, line: Line, other: str) -> str:
    """Return a text with another wording of one of its lines."""
    rows = text.split("\n")
    rows_left = [None if place in line.places else row for place, row in enumerate(rows)]
    rows_left[line.places[0]] = other
    return "\n".join(row for row in rows_left if row is not None)


def is_said(line: Line, others: Sequence[Line]) -> bool:
    """Return whether one of the others repeats, paraphrases or contradicts a line."""
    matches = _matching([*others, line])
    return any(matches(place, len(others)) for place in range(len(others)))


def replaced(lines: Sequence[Line]) -> list[Line]:
    """Return the lines that a later line repeats, paraphrases or contradicts."""
    matches = _matching(lines)
    return [
        line
        for place, line in enumerate(lines)
        if any(matches(place, later) for later in range(place + 1, len(lines)))
    ]


def inverse_frequencies(texts: Collection[Collection[str]]) -> dict[str, float]:
    """Return the inverse document frequency of each word of some texts, given as sets of words."""
    counts = Counter(word for words in texts for word in words)
    return {word: math.log((1 + len(texts)) / count) for word, count in counts.items()}


def _matching(lines: Sequence[Line]) -> Callable[[int, int], bool]:
    """Return a function that tells whether the lines at two places match.

    They do if they share 40 % of the words of the shorter one, weighted by rarity.
    """
    words = [set(line.words) for line in lines]
    weights = inverse_frequencies(words)
    weight = [math.fsum(map(weights.__getitem__, sentence)) for sentence in words]

    def matches(place: int, later: int) -> bool:
        shared = math.fsum(map(weights.__getitem__, words[place] & words[later]))
        return shared >= _SAME * min(weight[place], weight[later])

    return matches


LONG_CHARS = 4_000
"""Texts of at least this many characters, about 1,000 tokens, may be edited."""

SEARCH = "<<<<<<< SEARCH"
"""What a reply with edits begins with."""

SEARCHES = re.compile(r"^[ \t]*(?P<marks><{3,}+)[ \t]*SEARCH[ \t]*$", re.IGNORECASE | re.MULTILINE)
"""The line that begins an edit, as models write it."""

HOW_TO_EDIT = f"""\
A text of {LONG_CHARS:,} characters or more need not be written out again. You may reply with \
edits in its place, one below the other:

{SEARCH}
<one or more whole lines of the current text, copied exactly; empty to add lines at its end>
=======
<the lines that replace them; empty to remove them>
>>>>>>> REPLACE

The SEARCH lines must occur exactly once in the text; include a neighbouring line if they would \
match elsewhere."""

_SHOWN_CHARS = 80


@attrs.define
class _Edit:
    search: list[str] = attrs.field(factory=list)
    replace: list[str] = attrs.field(factory=list)


def edited(before: str, reply: str) -> str:
    """Return a text with the edits of a reply, which begins with ``SEARCH``, made in order.

    Raises:
        InvalidProposalError: an edit has no end, or its lines do not occur exactly once.
    """
    lines = before.split("\n")
    for number, edit in enumerate(_edits(reply), start=1):
        start = _place(lines, edit.search, number) if edit.search else len(lines)
        lines[start : start + len(edit.search)] = edit.replace
    return "\n".join(lines)


def _edits(reply: str) -> list[_Edit]:
    """Return the edits of a reply; anything between them is ignored.

    Models vary the marks; those of one edit have equal lengths.
    """
    edits: list[_Edit] = []
    inside: Literal["", "search", "replace"] = ""
    marks = ""
    for line in reply.split("\n"):
        bare = line.strip().casefold()
        if not inside and (begin := SEARCHES.fullmatch(line)):
            edits.append(_Edit())
            inside, marks = "search", begin["marks"]
        elif inside == "search" and bare == "=" * len(marks):
            inside = "replace"
        elif inside == "replace" and bare.split() == [">" * len(marks), "replace"]:
            inside = ""
        elif inside:
            getattr(edits[-1], inside).append(line)
    if inside:
        raise unreadable(f"edit {len(edits)} does not end; close it with >>>>>>> REPLACE")
    return edits


def _place(lines: Sequence[str], sought_lines: Sequence[str], number: int) -> int:
    """Return where the lines of a SEARCH begin; white space at their ends does not count."""
    bare, sought = [line.rstrip() for line in lines], [line.rstrip() for line in sought_lines]
    places = [
        start
        for start in range(len(bare) - len(sought) + 1)
        if bare[start : start + len(sought)] == sought
    ]
    if len(places) == 1:
        return places[0]
    where = f"{len(places)} times; add a neighbouring line" if places else "nowhere"
    if not places and {line.strip() for line in bare} >= {line.strip() for line in sought}:
        where += " with this indentation or order"
    lines_shown = clip("\n".join(sought_lines), _SHOWN_CHARS, around=" ")
    raise unreadable(
        f"edit {number}: expected SEARCH lines that occur once in the current text, found them "
        f"{where}: {lines_shown!r}"
    )
