"""The parts of a prompt that may be replaced: a class for each kind."""

from collections.abc import Iterable
from operator import attrgetter

from promptgraft.ground.serde import Json
from promptgraft.overrides.parts.entry import Entry
from promptgraft.overrides.parts.replacements import (
    OutputFieldOverride,
    SectionOverride,
    SummaryOverride,
    ToolExampleOverride,
    ToolOverride,
    VisibilityOverride,
)
from promptgraft.overrides.parts.task_example import (
    AddedTaskExample,
    RemovedTaskExample,
    TaskExampleOverride,
)

__all__ = ["KINDS", "in_order"]

KINDS: dict[str, type[Entry]] = {
    kind.listed: kind
    for kind in (
        SectionOverride,
        SummaryOverride,
        ToolOverride,
        ToolExampleOverride,
        TaskExampleOverride,
        AddedTaskExample,
        RemovedTaskExample,
        OutputFieldOverride,
        VisibilityOverride,
    )
}
"""Every kind by the key under which documents list it, in the order of documents and diffs.

A further kind is registered by adding it: ``KINDS[Greeting.listed] = Greeting``.
"""

_KEY = attrgetter("key")  # keys of one kind are of one type


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries kind by kind, those of a kind by their keys."""
    entries_by_kind: dict[type[Entry], list[Entry]] = {kind: [] for kind in KINDS.values()}
    for entry in entries:
        entries_by_kind[type(entry)].append(entry)
    return [entry for kind in entries_by_kind.values() for entry in sorted(kind, key=_KEY)]


def plain_lists(entries: Iterable[Entry]) -> dict[str, Json]:
    """Return entries as plain data, by the list of their kind and in canonical order."""
    lists: dict[str, list[Json]] = {}
    for entry in in_order(entries):
        lists.setdefault(entry.listed, []).append(entry.plain())
    return {**lists}
