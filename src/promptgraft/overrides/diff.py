"""What overrides change, line by line; pure functions for people and for reviews."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import attrs

from promptgraft.errors import InvalidOverrideError
from promptgraft.overrides.resolution import resolve_override
from promptgraft.overrides.types import PromptOverride
from promptgraft.parts import KINDS, in_order
from promptgraft.parts.descriptors import PromptLike
from promptgraft.parts.entry import Entry, SkipReason
from promptgraft.serde import Json

_NO_NEWLINE = "\n\\ No newline at end of text\n"


@attrs.frozen(kw_only=True)
class PartDiff:
    """How one part of a prompt changes.

    Attributes:
        kind: ``section``, ``tool``, ``tool example``, ``task example``, ``added task example``,
            ``removed task example`` or ``output field``.
        part: the part, as messages write it: ``section policies/refunds``.
        before: its text before; None when there was none.
        after: its text after; None when there is none.
        text: a unified diff of the two, empty when they are equal.
        state: why the override is not applied to today's source; None when it is applied, or
            when two revisions are compared.
    """

    kind: str
    part: str
    before: str | None
    after: str | None
    text: str
    state: SkipReason | None = None


def diff_bodies(before: str, after: str, *, part: str) -> str:
    """Return a unified diff of two bodies whose headers name ``part``; empty when equal."""
    heads = f"{part} (before)", f"{part} (after)"
    lines = difflib.unified_diff(_lines(before), _lines(after), *heads) if before != after else ()
    return "".join(line if line.endswith("\n") else line + _NO_NEWLINE for line in lines)


def diff_override(prompt: PromptLike, override: PromptOverride | None) -> tuple[PartDiff, ...]:
    """Compare today's source with each entry of ``override``, in the order of the prompt.

    Entries for parts that the prompt no longer has come last, with nothing before.

    Raises:
        InvalidOverrideError: the override is for another prompt.
    """
    if override is None:
        return ()
    descriptor = prompt.descriptor
    if (override.ns, override.prompt_key) != (descriptor.ns, descriptor.key):
        raise InvalidOverrideError(
            f"the override is for prompt `{override.ns}/{override.prompt_key}`, the source is "
            f"`{descriptor.ns}/{descriptor.key}`; compare those of one prompt"
        )
    sources = {entry.part: entry for kind in KINDS.values() for entry in kind.sources(prompt)}
    order = {part: position for position, part in enumerate(sources)}
    entries = sorted(
        in_order(override.entries()), key=lambda entry: order.get(entry.part, len(order))
    )
    skipped = {found.part: found.reason for found in resolve_override(descriptor, override).skipped}
    return tuple(
        _diff(
            entry,
            # Only the fields that the entry replaces.
            entry.show_of(source) if (source := entry.counterpart(prompt)) else None,
            entry.show(),
            skipped.get(entry.part),
        )
        for entry in entries
    )


def diff_revisions(before: PromptOverride, after: PromptOverride) -> tuple[PartDiff, ...]:
    """Compare the entries of two overrides, by kind and part; equal entries are left out.

    An entry whose text is the same but was written for another source has an empty text, and
    so has a removed task example, which says nothing.
    """
    older = {entry.part: entry for entry in before.entries()}
    newer = {entry.part: entry for entry in after.entries()}
    return tuple(
        _diff(entry, _shown(older.get(entry.part)), _shown(newer.get(entry.part)), None)
        for entry in in_order({**older, **newer}.values())
        if older.get(entry.part) != newer.get(entry.part)
    )


def part_json(kind: str, part: str, *, checked: bool, reason: SkipReason | None) -> dict[str, Json]:
    """Return the keys that every document has for a part."""
    applied = "applied" if reason is None else "skipped"
    return {
        "kind": kind,
        "part": part,
        "status": applied if checked else None,
        "reason": None if reason is None else str(reason),
    }


def parts_json(parts: Sequence[PartDiff], *, checked: bool) -> list[Json]:
    """Return differences for machines; ``checked`` when they are differences from a source."""
    return [
        {
            **part_json(part.kind, part.part, checked=checked, reason=part.state),
            "before": part.before,
            "after": part.after,
            "diff": part.text,
        }
        for part in parts
    ]


def _diff(
    entry: Entry, before: str | None, after: str | None, state: SkipReason | None
) -> PartDiff:
    return PartDiff(
        kind=entry.kind,
        part=entry.part,
        before=before,
        after=after,
        text=diff_bodies(before or "", after or "", part=entry.part),
        state=state,
    )


def _shown(entry: Entry | None) -> str | None:
    return None if entry is None else entry.show()


def _lines(text: str) -> list[str]:
    # Not splitlines: a form feed or a line separator is a character of its line.
    *whole, rest = text.split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines
