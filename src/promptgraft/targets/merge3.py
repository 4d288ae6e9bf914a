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
class _Hunk:
    """A replacement of the lines ``before[begin:end]``; either side may be empty."""

    begin: int
    end: int
    after: Sequence[str]

    @property
    def replaces(self) -> bool:
        return self.begin < self.end and bool(self.after)


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
    before, first_side, second_side = sides
    mine, theirs = list(_by_line(before, first_side)), list(_by_line(before, second_side))
    agreed = [edit for edit in theirs if not _is_disputed(edit, mine)]
    mine = [_with_words(before, edit, theirs) for edit in mine]
    return "\n".join(_applied(before, mine, agreed))


def _lines(*texts: str) -> list[list[str]] | None:
    lines = [text.split("\n") for text in texts]
    return None if max(map(len, lines)) > _MOST_LINES else lines


def _edits(before: Sequence[str], after: Sequence[str]) -> Iterator[_Hunk]:
    # autojunk keeps it fast on degenerate texts of many equal lines.
    matcher = SequenceMatcher(None, before, after)
    for kind, begin, end, start, stop in matcher.get_opcodes():
        if kind != "equal":
            yield _Hunk(begin, end, after[start:stop])


def _by_line(before: Sequence[str], after: Sequence[str]) -> Iterator[_Hunk]:
    """Yield the edits, those that replace n lines by n others split into one edit per line."""
    for edit in _edits(before, after):
        if edit.end - edit.begin == len(edit.after):
            for place, line in enumerate(edit.after, edit.begin):
                yield _Hunk(place, place + 1, [line])
        else:
            yield edit


def _is_disputed(edit: _Hunk, rivals: Sequence[_Hunk]) -> bool:
    """Return whether another edit replaces the same lines differently."""
    return edit.replaces and any(
        rival.replaces
        and rival.begin < edit.end
        and edit.begin < rival.end
        and rival.after != edit.after
        for rival in rivals
    )


def _with_words(before: Sequence[str], edit: _Hunk, rivals: Sequence[_Hunk]) -> _Hunk:
    """Return an edit with the words that another adds to the same line, if both only add words."""
    old = before[edit.begin : edit.end]
    for rival in rivals:
        same = (edit.begin, edit.end) == (rival.begin, rival.end) and edit != rival
        if same and len(old) == len(edit.after) == len(rival.after) == 1 and old[0].strip():
            words, *changed = (pieces_in(line) for line in (*old, *edit.after, *rival.after))
            mine, theirs = ([*map(_as_one, _edits(words, side))] for side in changed)
            if all(edit.begin == edit.end for edit in (*mine, *theirs)):
                return attrs.evolve(edit, after=["".join(_applied(words, mine, theirs))])
    return edit


def _as_one(edit: _Hunk) -> _Hunk:
    """Return an edit with its words joined into one, since short runs of words may repeat."""
    return attrs.evolve(edit, after=["".join(edit.after)])


def _applied(before: Sequence[str], mine: Sequence[_Hunk], theirs: Sequence[_Hunk]) -> list[str]:
    """Return a text with the edits of both sides; at the same place the first side's come first."""
    dropped = [False] * len(before)
    added: list[list[str]] = [[] for _ in range(len(before) + 1)]
    for edit in (*mine, *theirs):
        dropped[edit.begin : edit.end] = [True] * (edit.end - edit.begin)
    for edit in mine:
        added[edit.begin] += edit.after
    for edit in theirs:
        lines_known = tuple(added[edit.begin])
        added[edit.begin] += [line for line in edit.after if line not in lines_known]
    lines_applied: list[str] = []
    for place, lines in enumerate(added):
        lines_applied += lines
        if place < len(before) and not dropped[place]:
            lines_applied.append(before[place])
    return lines_applied
