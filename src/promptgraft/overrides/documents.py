"""Overrides as plain data, and back: what files, journals and digests are made of.

Each kind of entry has a list of its own; kinds without entries are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from promptgraft.errors import DataFormatError, InvalidOverrideError
from promptgraft.frozenmap import FrozenMap
from promptgraft.overrides.entries import (
    AddedTaskExample,
    Entry,
    OutputFieldOverride,
    RemovedTaskExample,
    SectionOverride,
    TaskExampleOverride,
    TaskStepOverride,
    ToolExampleOverride,
    ToolOverride,
)
from promptgraft.overrides.types import PromptOverride
from promptgraft.overrides.validation import check_text
from promptgraft.serde import HexDigest, Json, canonical_json, structure, unstructure


@attrs.frozen(kw_only=True)
class ToolDocument:
    """A tool override as it stands in a file."""

    name: str
    expected_hash: HexDigest
    description: str | None
    param_descriptions: FrozenMap[str, str]


@attrs.frozen(kw_only=True)
class TaskExampleDocument:
    """A task example override as it stands in a file."""

    path: tuple[str, ...]
    expected_hash: HexDigest
    objective: str | None
    outcome_json: str | None
    step_overrides: tuple[TaskStepOverride, ...]
    steps_json: str | None


@attrs.frozen(kw_only=True)
class OutputFieldDocument:
    """An output field override as it stands in a file."""

    field: str
    expected_hash: HexDigest
    description: str | None
    aliases: tuple[str, ...] | None
    value_descriptions: FrozenMap[str, str]


@attrs.frozen(kw_only=True)
class EntriesDocument:
    """Every entry of an override, by kind; the other kinds are flat and stand as they are."""

    sections: tuple[SectionOverride, ...] = ()
    tools: tuple[ToolDocument, ...] = ()
    tool_examples: tuple[ToolExampleOverride, ...] = ()
    task_examples: tuple[TaskExampleDocument, ...] = ()
    added_task_examples: tuple[AddedTaskExample, ...] = ()
    removed_task_examples: tuple[RemovedTaskExample, ...] = ()
    output_fields: tuple[OutputFieldDocument, ...] = ()


_LISTS: Mapping[type[Entry], str] = {
    SectionOverride: "sections",
    ToolOverride: "tools",
    ToolExampleOverride: "tool_examples",
    TaskExampleOverride: "task_examples",
    AddedTaskExample: "added_task_examples",
    RemovedTaskExample: "removed_task_examples",
    OutputFieldOverride: "output_fields",
}

ENTRY_LISTS = tuple(_LISTS.values())
"""The keys under which documents keep entries."""


def plain_entries(override: PromptOverride) -> dict[str, Json]:
    """Return the entries of an override as plain data, in one order."""
    lists: dict[str, list[Json]] = {}
    for entry in sorted(override.entries(), key=lambda entry: str(entry.key)):
        lists.setdefault(_LISTS[type(entry)], []).append(_plain(entry))
    return {name: lists[name] for name in ENTRY_LISTS if name in lists}


def _plain(entry: Entry) -> Json:
    if isinstance(entry, TaskExampleOverride):
        steps = [entry.step_overrides[index] for index in sorted(entry.step_overrides)]
        fields = attrs.asdict(entry, recurse=False)
        return unstructure({**fields, "step_overrides": steps})
    return unstructure(entry)


def read_entries(data: Json, address: PromptOverride, *, where: str) -> PromptOverride:
    """Return the override that ``data`` holds, for the prompt and tag of ``address``.

    Raises:
        DataFormatError: with the place of each fault.
    """
    return entries_of(structure(data, EntriesDocument, where=where), address, where=where)


def entries_of(document: EntriesDocument, address: PromptOverride, *, where: str) -> PromptOverride:
    """Return the override that a document holds, for the prompt and tag of ``address``.

    Raises:
        DataFormatError: a text is not Unicode or too long, a path is empty, or a part occurs
            twice.
    """
    entries = list(_entries(document))
    for entry in entries:
        _check(entry, where)
    override = address.holding(entries)
    if len(override.entries()) != len(entries):
        raise DataFormatError(f"{where}: one part occurs twice")
    return override


def _entries(document: EntriesDocument) -> Iterable[Entry]:
    yield from document.sections
    for tool in document.tools:
        yield ToolOverride(**attrs.asdict(tool, recurse=False))
    yield from document.tool_examples
    for task in document.task_examples:
        steps = {step.step_index: step for step in task.step_overrides}
        yield TaskExampleOverride(**{**attrs.asdict(task, recurse=False), "step_overrides": steps})
    yield from document.added_task_examples
    yield from document.removed_task_examples
    for field in document.output_fields:
        yield OutputFieldOverride(**attrs.asdict(field, recurse=False))


def _check(entry: Entry, where: str) -> None:
    paths = (SectionOverride, TaskExampleOverride, RemovedTaskExample)
    if isinstance(entry, paths) and not entry.path:
        raise DataFormatError(f"{where}: path: expected at least one key, found none")
    try:
        check_text(canonical_json(_plain(entry)), f"{where}: {entry.part}")
    except InvalidOverrideError as error:
        raise DataFormatError(str(error)) from None
