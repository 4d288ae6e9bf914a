"""Differences between the source of a prompt and overrides, and between two overrides."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import attrs

from promptgraft import errors
from promptgraft.ground.serde import Json
from promptgraft.overrides.parts import KINDS, in_order
from promptgraft.overrides.parts.descriptors import PromptLike
from promptgraft.overrides.parts.entry import Entry, SkipReason
from promptgraft.overrides.resolution import resolve_override
from promptgraft.overrides.types import PromptOverride

_NO_NEWLINE = "\n\\ No newline at end of text\n"


@attrs.frozen(kw_only=True)
class PartDiff:
    """The difference in one part of a prompt.

    Attributes:
        kind: ``section``, ``summary``, ``tool``, ``tool example``, ``task example``,
            ``added task example``, ``removed task example``, ``output field`` or ``visibility``.
        part: the part as messages name it: ``section policies/refunds``.
        before: its text before; None if there was none.
        after: its text after; None if there is none.
        state: why the override does not apply to the current source; None if it does, or if two
            revisions are compared.
    """

    kind: str
    part: str
    before: str | None
    after: str | None
    state: SkipReason | None = None

    @property
    def text(self) -> str:
        """A unified diff of the two, empty when they are equal."""
        return diff_bodies(self.before or "", self.after or "", part=self.part)

    @property
    def readable(self) -> str:
        """The diff for people: line breaks at the ends of the texts are no difference."""
        before, after = (_ended(text or "") for text in (self.before, self.after))
        return diff_bodies(before, after, part=self.part)

    @property
    def reversed(self) -> PartDiff:
        """The reverse difference, from after to before."""
        return attrs.evolve(self, before=self.after, after=self.before)


def _ended(text: str) -> str:
    """Return a text with one line break at its end and none before it, unless it is empty."""
    whole = text.strip("\n")
    return f"{whole}\n" if whole else ""


def diff_bodies(before: str, after: str, *, part: str) -> str:
    """Return a unified diff of two bodies, ``part`` in its headers; empty if they are equal."""
    heads = f"{part} (before)", f"{part} (after)"
    lines = (
        difflib.unified_diff(lines_in(before), lines_in(after), *heads) if before != after else ()
    )
    return "".join(line if line.endswith("\n") else line + _NO_NEWLINE for line in lines)


def diff_override(prompt: PromptLike, override: PromptOverride | None) -> tuple[PartDiff, ...]:
    """Compare the current source with each entry of ``override``, in the order of the prompt.

    Entries for parts that the prompt no longer has come last, with ``before`` None.

    Raises:
        InvalidOverrideError: the override is for another prompt.
    """
    if override is None:
        return ()
    descriptor = prompt.descriptor
    if (override.ns, override.prompt_key) != (descriptor.ns, descriptor.key):
        raise errors.InvalidOverrideError(
            f"the override is for prompt `{override.ns}/{override.prompt_key}`, the source is "
            f"`{descriptor.ns}/{descriptor.key}`; compare those of one prompt"
        )
    sources = {entry.part: entry for kind in KINDS.values() for entry in kind.sources(prompt)}
    order = {part: position for position, part in enumerate(sources)}
    entries = sorted(
        in_order(override.entries()), key=lambda entry: order.get(entry.part, len(order))
    )
    skipped = {
        skipped_part.part: skipped_part.reason
        for skipped_part in resolve_override(descriptor, override).skipped
    }
    return tuple(
        _diff(
            entry,
            # Only the fields that the entry replaces.
            entry.show_of(source.as_written(prompt))
            if (source := entry.counterpart(prompt))
            else None,
            entry.as_written(prompt).show(),
            skipped.get(entry.part),
        )
        for entry in entries
    )


def diff_revisions(
    before: PromptOverride, after: PromptOverride, prompt: PromptLike | None = None
) -> tuple[PartDiff, ...]:
    """Compare the entries of two overrides, by kind and part; equal entries are omitted.

    Texts are shown as the author of ``prompt`` would write them; without it, as they are stored.
    The diff is empty for an entry that only changed its source hash, and for a removed task
    example, which has no text.
    """
    older = {entry.part: entry for entry in before.entries()}
    newer = {entry.part: entry for entry in after.entries()}
    return tuple(
        _diff(entry, _shown(older, entry, prompt), _shown(newer, entry, prompt), None)
        for entry in in_order({**older, **newer}.values())
        if older.get(entry.part) != newer.get(entry.part)
    )


def part_json(kind: str, part: str, *, checked: bool, reason: SkipReason | None) -> dict[str, Json]:
    """Return the JSON keys that all documents have for a part."""
    applied = "applied" if reason is None else "skipped"
    return {
        "kind": kind,
        "part": part,
        "status": applied if checked else None,
        "reason": None if reason is None else str(reason),
    }


def parts_json(parts: Sequence[PartDiff], *, checked: bool) -> list[Json]:
    """Return differences as JSON; ``checked`` if they are differences from a source."""
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
    return PartDiff(kind=entry.kind, part=entry.part, before=before, after=after, state=state)


def _shown(entries: Mapping[str, Entry], like: Entry, prompt: PromptLike | None) -> str | None:
    if (entry := entries.get(like.part)) is None:
        return None
    return (entry.as_written(prompt) if prompt else entry).show()


def lines_in(text: str) -> list[str]:
    """Return the lines of a text with their line feeds, which the last one may lack."""
    # Not splitlines: a form feed or a line separator is a character of its line.
    *whole, rest = text.split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines
