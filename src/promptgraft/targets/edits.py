"""Reads replies that give new texts of several parts: a block for each, or one JSON object."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from promptgraft.ground.serde import Json
from promptgraft.ground.text import clip, listed
from promptgraft.overrides.parts.examples import one_line
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.replies import (
    JSON_TAG,
    check_whole,
    fields_in,
    named_blocks,
    parse_reply,
    read_value,
    text_in,
)

_SHOWN_CHARS = 80
_REASON_CHARS = 400


class Edit(NamedTuple):
    """A new text, and the model's reason for it in one line, which may be empty."""

    text: str
    reason: str = ""


class ReadEdits(NamedTuple):
    """The usable edits of a reply by the marks of their parts, and the faults of the others."""

    edits: Mapping[str, Edit]
    faults: Sequence[InvalidProposalError]


def edits_in(reply: str, names: Mapping[str, str], *, finish_reason: str = "stop") -> ReadEdits:
    """Return the new texts in a reply: blocks by the names of their parts, or one JSON object.

    Args:
        reply: the reply.
        names: the marks of the parts that it may edit, by name.
        finish_reason: why the model ended it.

    Raises:
        InvalidProposalError: the reply cannot be read.
    """
    blocks = named_blocks(reply, {**names, **{mark: mark for mark in names.values()}})
    if not blocks:
        return read_edits(
            parse_reply(reply, tag=JSON_TAG, finish_reason=finish_reason), names.values()
        )
    check_whole(reply, finish_reason)
    edits: dict[str, Edit] = {}
    faults: list[InvalidProposalError] = []
    for mark, text, before in blocks:
        if mark in edits:
            faults.append(_unreadable("expected one block for each part, found two for", mark))
        edits[mark] = Edit(text, clip(before, _REASON_CHARS, around=" "))
    twice = {mark for mark in edits if [block_mark for block_mark, *_ in blocks].count(mark) > 1}
    edits_left = {mark: edit for mark, edit in edits.items() if mark not in twice}
    if not edits_left:
        raise faults[0]
    return ReadEdits(edits_left, faults)


def no_edit() -> InvalidProposalError:
    """Return the refusal of a reply without an edit."""
    return InvalidProposalError(RejectionReason.UNCHANGED, "the reply edits no part")


def read_edits(text: str, marks: Collection[str]) -> ReadEdits:
    """Return the new texts in a reply by the marks of their parts; objects as JSON.

    Args:
        text: the reply's JSON.
        marks: the marks of the parts that it may edit.

    Raises:
        InvalidProposalError: the reply cannot be read, or none of its edits can: they edit an
            unknown part or one part twice, or contain unusable characters.
    """
    value = read_value(text)
    edits = value.get("edits") if isinstance(value, dict) else None
    if isinstance(value, dict) and isinstance(edits, list):
        value = {**value, "edits": []}  # each is checked by itself
    edits = edits or fields_in(value, ("edits",))["edits"]
    if not isinstance(edits, list):
        raise _unreadable("edits: expected a list of objects", edits)
    if not edits:
        raise no_edit()
    edits_read: dict[str, Edit] = {}
    faults: list[InvalidProposalError] = []
    unread_marks = set(marks)
    for number, entry in enumerate(edits, start=1):
        where = f"edit {number}: "
        try:
            mark, edit = _read_edit(entry, where)
        except InvalidProposalError as error:
            faults.append(error)
            continue
        if mark in unread_marks:
            unread_marks.remove(mark)
            edits_read[mark] = edit
        else:
            edits_read.pop(mark, None)  # of two texts for a part neither is the one that is meant
            expected = f"{where}part: expected one of {listed(marks)}, each once"
            faults.append(_unreadable(expected, mark))
    if not edits_read:
        raise faults[0]
    return ReadEdits(edits_read, faults)


def _read_edit(given: Json, where: str) -> tuple[str, Edit]:
    fields = fields_in(given, ("part", "text"), optional=("reason",), where=where)
    mark = text_in(fields["part"], f"{where}part").strip(" []`").upper()
    new_text, reason = fields["text"], fields.get("reason")
    text = one_line(new_text) if isinstance(new_text, dict) else text_in(new_text, f"{where}text")
    why = " ".join(reason.split()) if isinstance(reason, str) else ""
    return mark, Edit(text, clip(why, _REASON_CHARS, around=" "))


def _unreadable(expected: str, value: Json) -> InvalidProposalError:
    shown_value = clip(json.dumps(value), _SHOWN_CHARS, around=" ")
    return InvalidProposalError(RejectionReason.UNPARSABLE, f"{expected}, found {shown_value}")
