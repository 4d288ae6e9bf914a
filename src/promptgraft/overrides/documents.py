"""Overrides as plain data, and back: what files, journals and digests are made of.

Each kind of entry has a list of its own; kinds without entries are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import cast

import attrs

from promptgraft.errors import DataFormatError, InvalidIdentifierError, InvalidOverrideError
from promptgraft.frozenmap import FrozenMap
from promptgraft.overrides.effective import read_stored_steps
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
    show_path,
)
from promptgraft.overrides.parts import NO_INTERFACE
from promptgraft.overrides.types import PromptOverride
from promptgraft.overrides.validation import check_entry_texts, check_key, check_path
from promptgraft.serde import HexDigest, Json, parse_json, shown, structure, unstructure

_HASH = re.compile(r"[0-9a-f]{64}")


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
    lists: dict[str, list[Entry]] = {name: [] for name in ENTRY_LISTS}
    for entry in override.entries():
        lists[_LISTS[type(entry)]].append(entry)
    return {name: [_plain(entry) for entry in _in_order(lists[name])] for name in _filled(lists)}


def _in_order(entries: list[Entry]) -> list[Entry]:
    # Keys of one kind are of one type.
    return sorted(entries, key=lambda entry: cast("tuple[str, ...]", entry.key))


def _filled(lists: Mapping[str, list[Entry]]) -> list[str]:
    return [name for name in ENTRY_LISTS if lists[name]]


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
        DataFormatError: a text is not Unicode or too long, what should be JSON is none, a path
            is empty, a hash, key or index is none, steps are replaced in two ways, or a part
            or a step occurs twice.
    """
    entries = list(_entries(document))
    for entry in entries:
        _check_entry(entry, where)
    for task in document.task_examples:
        if len({step.step_index for step in task.step_overrides}) < len(task.step_overrides):
            raise DataFormatError(f"{where}: {show_path(task.path)}: one step occurs twice")
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


def _check_entry(entry: Entry, where: str) -> None:
    try:
        if isinstance(entry, AddedTaskExample):
            check_path(entry.container_path)
        elif isinstance(entry, SectionOverride | TaskExampleOverride | RemovedTaskExample):
            check_path(entry.path)
        if isinstance(entry, AddedTaskExample):
            check_key(entry.example_key, "example_key")
        check_entry_texts(entry)
    except (InvalidOverrideError, InvalidIdentifierError) as error:
        raise DataFormatError(f"{where}: {error}") from None
    _check_numbers(entry, f"{where}: {entry.part}")
    # A prompt may be without an interface; every other hash is that of a part.
    if not isinstance(entry, AddedTaskExample) or entry.expected_hash != NO_INTERFACE:
        check_hash(entry.expected_hash, f"{where}: {entry.part}: expected_hash")
    _check_json(entry, f"{where}: {entry.part}")


def check_hash(text: str, where: str) -> None:
    """Refuse what is no SHA-256 in hexadecimal digits.

    Raises:
        DataFormatError: beginning with ``where``.
    """
    if not _HASH.fullmatch(text):
        raise DataFormatError(
            f"{where}: expected 64 lower-case hexadecimal digits, found {shown(text)}"
        )


def _check_numbers(entry: Entry, where: str) -> None:
    if isinstance(entry, ToolExampleOverride) and entry.example_index < 0:
        raise DataFormatError(
            f"{where}: example_index: expected at least 0, found {shown(entry.example_index)}"
        )
    if isinstance(entry, TaskExampleOverride) and entry.step_overrides:
        if entry.steps_json is not None:
            raise DataFormatError(f"{where}: expected steps_json or step_overrides, found both")
        if min(entry.step_overrides) < 0:
            raise DataFormatError(
                f"{where}: step_index: expected at least 0, found {min(entry.step_overrides)}"
            )


def _check_json(entry: Entry | TaskStepOverride, where: str) -> None:
    for name in ("input_json", "output_json", "outcome_json"):
        text = getattr(entry, name, None)
        if text is not None:
            parse_json(text, where=f"{where}: {name}")
    steps = getattr(entry, "steps_json", None)
    if steps is not None:
        read_stored_steps(steps, where=f"{where}: steps_json")
    if isinstance(entry, TaskExampleOverride):
        for index, step in entry.step_overrides.items():
            _check_json(step, f"{where}: step {index}")
