"""What a store keeps about a prompt, and what it may know of the prompt itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

import attrs

from promptgraft.errors import InvalidOverrideError
from promptgraft.frozenmap import FrozenMap
from promptgraft.overrides.entries import (
    AddedTaskExample,
    Entry,
    OutputFieldOverride,
    RemovedTaskExample,
    SectionOverride,
    SectionPath,
    TaskExampleOverride,
    ToolExampleOverride,
    ToolOverride,
)
from promptgraft.overrides.parts import PromptDescriptor
from promptgraft.serde import HexDigest, shown


class PromptLike(Protocol):
    """The little that a store sees of a prompt."""

    @property
    def descriptor(self) -> PromptDescriptor:
        """Identity and hashes of the source."""
        ...

    def section_body(self, path: SectionPath) -> str:
        """Return the source of a section, spelled as an override body.

        Raises:
            UnknownPartError: when there is no such section.
        """
        ...


# Most kinds are empty in most overrides, and a search makes many thousands of these.
_NOTHING: FrozenMap[Any, Any] = FrozenMap()


def _sections(
    entries: Mapping[SectionPath, SectionOverride],
) -> Mapping[SectionPath, SectionOverride]:
    return entries if isinstance(entries, FrozenMap) else FrozenMap(entries)


def _tools(
    entries: Mapping[str, ToolOverride],
) -> Mapping[str, ToolOverride]:
    return entries if isinstance(entries, FrozenMap) else FrozenMap(entries)


def _tool_examples(
    entries: Mapping[tuple[str, int], ToolExampleOverride],
) -> Mapping[tuple[str, int], ToolExampleOverride]:
    return entries if isinstance(entries, FrozenMap) else FrozenMap(entries)


def _task_examples(
    entries: Mapping[SectionPath, TaskExampleOverride],
) -> Mapping[SectionPath, TaskExampleOverride]:
    return entries if isinstance(entries, FrozenMap) else FrozenMap(entries)


def _added(
    entries: Mapping[SectionPath, AddedTaskExample],
) -> Mapping[SectionPath, AddedTaskExample]:
    return entries if isinstance(entries, FrozenMap) else FrozenMap(entries)


def _removed(
    entries: Mapping[SectionPath, RemovedTaskExample],
) -> Mapping[SectionPath, RemovedTaskExample]:
    return entries if isinstance(entries, FrozenMap) else FrozenMap(entries)


def _fields(
    entries: Mapping[str, OutputFieldOverride],
) -> Mapping[str, OutputFieldOverride]:
    return entries if isinstance(entries, FrozenMap) else FrozenMap(entries)


@attrs.frozen(kw_only=True)
class PromptOverride:
    """Every override that is kept for one prompt under one tag, by kind and key.

    Attributes:
        ns: namespace of the prompt.
        prompt_key: key of the prompt.
        tag: the tag.
        sections: section bodies, by path.
        tool_overrides: what is said of tools, by name.
        tool_example_overrides: examples of tools, by tool and position.
        task_example_overrides: task examples of the source, by path.
        added_task_examples: task examples that the source does not have, by path.
        removed_task_examples: task examples of the source that are not shown, by path.
        output_overrides: what is said of fields of the answer, by field.

    Raises:
        InvalidOverrideError: an entry is filed under a key that is not its own.
    """

    ns: str
    prompt_key: str
    tag: str
    sections: Mapping[SectionPath, SectionOverride] = attrs.field(
        default=_NOTHING, converter=_sections
    )
    tool_overrides: Mapping[str, ToolOverride] = attrs.field(default=_NOTHING, converter=_tools)
    tool_example_overrides: Mapping[tuple[str, int], ToolExampleOverride] = attrs.field(
        default=_NOTHING, converter=_tool_examples
    )
    task_example_overrides: Mapping[SectionPath, TaskExampleOverride] = attrs.field(
        default=_NOTHING, converter=_task_examples
    )
    added_task_examples: Mapping[SectionPath, AddedTaskExample] = attrs.field(
        default=_NOTHING, converter=_added
    )
    removed_task_examples: Mapping[SectionPath, RemovedTaskExample] = attrs.field(
        default=_NOTHING, converter=_removed
    )
    output_overrides: Mapping[str, OutputFieldOverride] = attrs.field(
        default=_NOTHING, converter=_fields
    )
    _entries: tuple[Entry, ...] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        filed = [item for kind in KINDS for item in getattr(self, kind).items()]
        object.__setattr__(self, "_entries", tuple(entry for _, entry in filed))
        for entry_key, entry in filed:
            if entry_key != entry.key:
                raise InvalidOverrideError(
                    f"{entry.part} is filed under {shown(entry_key)}; file it under its own key "
                    f"{shown(entry.key)}"
                )

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def _address(self) -> tuple[str, str, str]:
        return self.ns, self.prompt_key, self.tag

    def entries(self) -> tuple[Entry, ...]:
        """Return every entry: kind by kind, in their order."""
        return self._entries

    def find(self, like: Entry) -> Entry | None:
        """Return the entry of the kind and key of ``like``, or None."""
        found: Entry | None = getattr(self, KIND_OF[type(like)]).get(like.key)
        return found

    def holding(self, entries: Iterable[Entry]) -> PromptOverride:
        """Return an override for the same prompt and tag that holds just ``entries``."""
        kinds: dict[str, Any] = {}
        for entry in entries:
            kinds.setdefault(KIND_OF[type(entry)], {})[entry.key] = entry
        return PromptOverride(ns=self.ns, prompt_key=self.prompt_key, tag=self.tag, **kinds)

    def merged_with(self, newer: PromptOverride) -> PromptOverride:
        """Return both; where both replace the same part, ``newer`` wins.

        What is said of a tool is merged by field as long as both were written for the same
        source.
        """
        if not newer:
            return self
        if not self and self._address == newer._address:
            return newer
        return self.with_entries(newer.entries())

    def with_entries(self, newer: Iterable[Entry]) -> PromptOverride:
        """Return the override with more entries, which win as in :meth:`merged_with`."""
        merged = {(type(entry), entry.key): entry for entry in self.entries()}
        for entry in newer:
            key = (type(entry), entry.key)
            merged[key] = _merged(merged.get(key), entry)
        return self.holding(merged.values())

    def without(self, entry: Entry) -> PromptOverride:
        """Return the override without the entry of that kind and key."""
        key = (type(entry), entry.key)
        return self.holding(kept for kept in self.entries() if (type(kept), kept.key) != key)


KIND_OF: Mapping[type[Entry], str] = {
    SectionOverride: "sections",
    ToolOverride: "tool_overrides",
    ToolExampleOverride: "tool_example_overrides",
    TaskExampleOverride: "task_example_overrides",
    AddedTaskExample: "added_task_examples",
    RemovedTaskExample: "removed_task_examples",
    OutputFieldOverride: "output_overrides",
}
"""For each kind of entry, the field of ``PromptOverride`` that holds it."""

KINDS = tuple(KIND_OF.values())


def _merged(older: Entry | None, newer: Entry) -> Entry:
    if not isinstance(newer, ToolOverride) or not isinstance(older, ToolOverride):
        return newer
    if older.expected_hash != newer.expected_hash:
        return newer
    return attrs.evolve(
        newer,
        description=older.description if newer.description is None else newer.description,
        param_descriptions={**older.param_descriptions, **newer.param_descriptions},
    )


class SkipReason(StrEnum):
    """Why an override that is stored was not applied."""

    STALE = "stale"
    UNKNOWN_PART = "unknown part"
    NOT_OVERRIDABLE = "not overridable"
    LOST_PLACEHOLDER = "lost placeholder"
    KEY_TAKEN = "key taken by the source"
    NAME_TAKEN = "name taken by another field"


@attrs.frozen(kw_only=True)
class AppliedOverride:
    """A part whose source was replaced."""

    part: str
    expected_hash: HexDigest


@attrs.frozen(kw_only=True)
class SkippedOverride:
    """A part whose override is kept but was not applied.

    Attributes:
        part: the part, as messages write it: ``section policies/refunds``.
        reason: why.
        expected_hash: the source hash that the override was written for.
        found_hash: the hash of today's source; None when the part is gone.
    """

    part: str
    reason: SkipReason
    expected_hash: HexDigest
    found_hash: HexDigest | None


@attrs.frozen(kw_only=True)
class Provenance:
    """Where a stored override comes from.

    Attributes:
        run_id: the optimization run that produced it, if one did.
        note: one line for people.
        scores: names and values, such as ``baseline`` and ``best``.
    """

    run_id: str | None = None
    note: str = ""
    scores: FrozenMap[str, float] = attrs.field(factory=FrozenMap[str, float])


@attrs.frozen(kw_only=True)
class Revision:
    """An immutable state of a tag.

    Attributes:
        id: SHA-256 over everything else in the revision.
        number: 1 for the first revision of the tag, then one more for each write.
        parent: the revision that it was made from; None when the tag held nothing.
        step: what all revisions have in common that one atomic write of several tags made;
            None when it was written alone.
        time: when it was written, in UTC.
        provenance: where it comes from.
        override: what it holds.
    """

    id: HexDigest
    number: int
    parent: HexDigest | None
    step: HexDigest | None = None
    time: datetime
    provenance: Provenance
    override: PromptOverride
