"""Three-way merge of line lists.

Unlike merges of code, lines that both sides add at the same place are no conflict: in a prompt they
are mostly independent rules, so both are kept, the first side's first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import attrs

from promptgraft.ground.text import pieces_in

_MOST_LINES = 1_000


@attrs.frozen
class _Edit:
    """A replacement of the lines ``before[begin:end]``; either side may be empty."""

    begin: int
    end: int
    after: Sequence[str]

    @property
    def replaces(self) -> bool:
        return self.begin < self.end and bool(self.after)


def merge3(base: str, first: str, second: str) -> str | None:
    """Return ``base`` with the changes of both sides.

    Args:
        base: the common ancestor.
        first: one side.
        second: the other side; a line that both add at the same place is added once.

    Returns:
        None if both sides replaced the same line differently, or if a text has more than 1,000
        lines.
    """
    sides = _lines(base, first, second)
    if sides is None:
        return None
    before, one, other = sides
    mine, theirs = list(_edits(before, one)), list(_edits(before, other))
    if any(_is_disputed(edit, mine) for edit in theirs):
        return None
    return "\n".join(_applied(before, mine, theirs))


def merge3_onto(base: str, first: str, second: str) -> str | None:
    """Return ``first`` with the compatible changes of the second side.

    Args:
        base: the common ancestor.
        first: one side, which wins conflicts.
        second: the other side. Where both replaced the same line its replacement is dropped,
            unless both only added words to that line: then the words of both are kept.

    Returns:
        None if a text has more than 1,000 lines.
    """
    sides = _lines(base, first, second)
    if sides is None:
        return None
    before, one, other = sides
    mine, theirs = list(_by_line(before, one)), list(_by_line(before, other))
    agreed = [edit for edit in theirs if not _is_disputed(edit, mine)]
    mine = [_with_words(before, edit, theirs) for edit in mine]
    return "\n".join(_applied(before, mine, agreed))


def _lines(*texts: str) -> list[list[str]] | None:
    lines = [text.split("\n") for text in texts]
    return None if max(map(len, lines)) > _MOST_LINES else lines


def _edits(before: Sequence[str], after: Sequence[str]) -> Iterator[_Edit]:
    # autojunk keeps it fast on degenerate texts of many equal lines.
    matcher = SequenceMatcher(None, before, after)
    for kind, begin, end, start, stop in matcher.get_opcodes():
        if kind != "equal":
            yield _Edit(begin, end, after[start:stop])


def _by_line(before: Sequence[str], after: Sequence[str]) -> Iterator[_Edit]:
    """Yield the edits, those that replace n lines by n others split into one edit per line."""
    for edit in _edits(before, after):
        if edit.end - edit.begin == len(edit.after):
            for place, line in enumerate(edit.after, edit.begin):
                yield _Edit(place, place + 1, [line])
        else:
            yield edit


def _is_disputed(edit: _Edit, others: Sequence[_Edit]) -> bool:
    """Return whether another edit replaces the same lines differently."""
    return edit.replaces and any(
        other.replaces
        and other.begin < edit.end
        and edit.begin < other.end
        and other.after != edit.after
        for other in others
    )


def _with_words(before: Sequence[str], edit: _Edit, others: Sequence[_Edit]) -> _Edit:
    """Return an edit with the words that another adds to the same line, if both only add words."""
    old = before[edit.begin : edit.end]
    for other in others:
        same = (edit.begin, edit.end) == (other.begin, other.end) and edit != other
        if same and len(old) == len(edit.after) == len(other.after) == 1 and old[0].strip():
            words, *changed = (pieces_in(line) for line in (*old, *edit.after, *other.after))
            mine, theirs = ([*map(_as_one, _edits(words, side))] for side in changed)
            if all(one.begin == one.end for one in (*mine, *theirs)):
                return attrs.evolve(edit, after=["".join(_applied(words, mine, theirs))])
    return edit


def _as_one(edit: _Edit) -> _Edit:
    """Return an edit with its words joined into one, since short runs of words may repeat."""
    return attrs.evolve(edit, after=["".join(edit.after)])


def _applied(before: Sequence[str], mine: Sequence[_Edit], theirs: Sequence[_Edit]) -> list[str]:
    """Return a text with the edits of both sides; at the same place the first side's come first."""
    dropped = [False] * len(before)
    added: list[list[str]] = [[] for _ in range(len(before) + 1)]
    for edit in (*mine, *theirs):
        dropped[edit.begin : edit.end] = [True] * (edit.end - edit.begin)
    for edit in mine:
        added[edit.begin] += edit.after
    for edit in theirs:
        known = tuple(added[edit.begin])
        added[edit.begin] += [one for one in edit.after if one not in known]
    found: list[str] = []
    for place, lines in enumerate(added):
        found += lines
        if place < len(before) and not dropped[place]:
            found.append(before[place])
    return found
