"""Changes of one text that were made apart, in one text: a three-way merge of lines.

What two sides add at the same place is kept of both, the first side's before: in a prompt these
are mostly rules that do not touch each other. Programs that merge code call that a conflict.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import attrs

_MOST_LINES = 1_000


@attrs.frozen
class _Edits:
    """How a side differs from the text that both began with.

    Attributes:
        dropped: for each line whether the side has dropped it.
        instead: for each line what the side has in its place; None where it only dropped it.
        added: what the side has before each line, and at the end.
    """

    dropped: Sequence[bool]
    instead: Sequence[Sequence[str] | None]
    added: Sequence[Sequence[str]]


def woven(base: str, first: str, second: str) -> str | None:
    """Return ``base`` with the changes of both sides.

    Args:
        base: what both began with.
        first: one side.
        second: the other one; a line that it adds where the first adds the same is left out.

    Returns:
        None when both have put something else in the place of the same line, or when a text has
        more than a thousand lines.
    """
    before, one, other = (text.split("\n") for text in (base, first, second))
    if max(len(before), len(one), len(other)) > _MOST_LINES:
        return None
    mine, theirs = _edits(before, one), _edits(before, other)
    pairs = zip(mine.instead, theirs.instead, strict=True)
    if any(None not in pair and pair[0] != pair[1] for pair in pairs):
        return None
    found: list[str] = []
    for place, added in enumerate(mine.added):
        found += added
        found += [line for line in theirs.added[place] if line not in added]
        if place < len(before) and not mine.dropped[place] and not theirs.dropped[place]:
            found.append(before[place])
    return "\n".join(found)


def _edits(before: Sequence[str], after: Sequence[str]) -> _Edits:
    dropped = [False] * len(before)
    instead: list[Sequence[str] | None] = [None] * len(before)
    added: list[Sequence[str]] = [()] * (len(before) + 1)
    for kind, begin, end, start, stop in SequenceMatcher(None, before, after).get_opcodes():
        if kind == "equal":
            continue
        added[begin] = after[start:stop]
        for place in range(begin, end):
            dropped[place] = True
            instead[place] = after[start:stop] if kind == "replace" else None
    return _Edits(dropped, instead, added)
