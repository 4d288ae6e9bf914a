"""Edits of a long text: SEARCH/REPLACE blocks instead of the whole new text.

Rewriting a long text costs as many tokens as it has, and models drop lines when they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

from promptgraft.ground.text import clip
from promptgraft.targets.base import InvalidProposalError, RejectionReason

LONG_CHARS = 4_000
"""Texts of at least this many characters, about 1,000 tokens, may be edited."""

SEARCH = "<<<<<<< SEARCH"
"""What a reply with edits begins with."""

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
    """Return a text with the edits of a reply applied in order.

    Args:
        before: the current text.
        reply: the edits; it begins with ``SEARCH``.

    Raises:
        InvalidProposalError: an edit has no end, or its lines do not occur exactly once.
    """
    lines = before.split("\n")
    for number, edit in enumerate(_edits(reply), start=1):
        start = _place(lines, edit.search, number) if edit.search else len(lines)
        lines[start : start + len(edit.search)] = edit.replace
    return "\n".join(lines)


def _edits(reply: str) -> list[_Edit]:
    """Return the edits of a reply; anything between them is ignored."""
    edits: list[_Edit] = []
    inside: Literal["", "search", "replace"] = ""
    for line in reply.split("\n"):
        match inside, line.strip():
            case "", "<<<<<<< SEARCH":
                edits.append(_Edit())
                inside = "search"
            case "search", "=======":
                inside = "replace"
            case "replace", ">>>>>>> REPLACE":
                inside = ""
            case "search", _:
                edits[-1].search.append(line)
            case "replace", _:
                edits[-1].replace.append(line)
    if inside:
        raise _refused(f"edit {len(edits)} does not end; close it with >>>>>>> REPLACE")
    return edits


def _place(lines: Sequence[str], wanted: Sequence[str], number: int) -> int:
    """Return where the lines of a SEARCH begin; white space at their ends does not count."""
    bare, sought = [line.rstrip() for line in lines], [line.rstrip() for line in wanted]
    places = [
        start
        for start in range(len(bare) - len(sought) + 1)
        if bare[start : start + len(sought)] == sought
    ]
    if len(places) == 1:
        return places[0]
    lines_shown = clip("\n".join(wanted), _SHOWN_CHARS, around=" ")
    raise _refused(
        f"edit {number}: expected SEARCH lines that occur once in the current text, found them "
        + (f"{len(places)} times; add a neighbouring line: " if places else "nowhere: ")
        + repr(lines_shown)
    )


def _refused(detail: str) -> InvalidProposalError:
    return InvalidProposalError(RejectionReason.UNPARSABLE, detail)
