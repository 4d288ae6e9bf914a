"""Stored overrides of every kind, for people and for machines."""

from __future__ import annotations

import attrs

from promptgraft.cli.output import Screen
from promptgraft.overrides import PromptDescriptor, PromptOverride, SkippedOverride
from promptgraft.overrides.diff import part_json
from promptgraft.overrides.resolution import resolve_override
from promptgraft.parts.entry import Entry
from promptgraft.parts.kinds import in_order
from promptgraft.parts.validation import shown_hash
from promptgraft.serde import Json


@attrs.frozen(kw_only=True)
class ShownEntry:
    """One entry, and what today's source makes of it.

    Attributes:
        entry: the entry.
        checked: whether a source was looked at.
        skipped: why it is not applied to that source; None when it is, or is not checked.
    """

    entry: Entry
    checked: bool
    skipped: SkippedOverride | None


def shown_entries(
    override: PromptOverride, descriptor: PromptDescriptor | None
) -> tuple[ShownEntry, ...]:
    """Return every entry, kind by kind, checked against ``descriptor`` if there is one."""
    resolution = resolve_override(descriptor, override) if descriptor else None
    skipped = {found.part: found for found in resolution.skipped} if resolution else {}
    return tuple(
        ShownEntry(entry=entry, checked=descriptor is not None, skipped=skipped.get(entry.part))
        for entry in in_order(override.entries())
    )


def entry_json(shown: ShownEntry) -> dict[str, Json]:
    """Return what machines are told of an entry."""
    entry, skipped = shown.entry, shown.skipped
    return {
        **part_json(
            entry.kind,
            entry.part,
            checked=shown.checked,
            reason=skipped.reason if skipped else None,
        ),
        "expected_hash": entry.expected_hash,
        "found_hash": skipped.found_hash if skipped else None,
        "content": {
            name: value for name, value in entry.plain().items() if name != "expected_hash"
        },
    }


def print_entry(screen: Screen, shown: ShownEntry) -> None:
    """Print the part, whether its override is applied, and what it says."""
    entry = shown.entry
    state = f": {_state(shown.skipped)}" if shown.checked else ""
    screen.line(f"{entry.part}{state}", bold=True)
    if entry.texts():
        screen.body(entry.show(), wrapped=not entry.is_text)
    else:
        screen.body("The example of the source is not shown.")


def _state(skipped: SkippedOverride | None) -> str:
    if skipped is None:
        return "applied"
    if skipped.found_hash is None or skipped.found_hash == skipped.expected_hash:
        return f"not applied, {skipped.reason}"
    return (
        f"not applied, {skipped.reason}: written for source "
        f"{shown_hash(skipped.expected_hash)}, the source is now {shown_hash(skipped.found_hash)}"
    )
