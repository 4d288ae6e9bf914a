"""For every kind of override: what it replaces, whether it may, whether it still applies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import attrs

from promptgraft.errors import HashMismatchError, InvalidOverrideError, UnknownPartError
from promptgraft.overrides.content import checked_content
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
    show_path,
)
from promptgraft.overrides.parts import (
    ContainerDescriptor,
    OutputFieldDescriptor,
    PromptDescriptor,
    SectionDescriptor,
    TaskExampleDescriptor,
    ToolCall,
    ToolDescriptor,
    fold_name,
    taken_aliases,
)
from promptgraft.overrides.types import PromptOverride, SkipReason
from promptgraft.overrides.validation import check_path, lost_placeholders, shown_hash
from promptgraft.serde import HexDigest, did_you_mean, shown

P = TypeVar("P")

UNBOUND = HexDigest("")
"""The expected hash of an entry that is not bound to a source yet."""

_TARGETS: Mapping[type[Entry], str] = {
    SectionOverride: "section",
    ToolOverride: "tool",
    ToolExampleOverride: "tool example",
    TaskExampleOverride: "task example",
    AddedTaskExample: "section of task examples",
    RemovedTaskExample: "task example",
    OutputFieldOverride: "output field",
}


@attrs.frozen
class PartSource:
    """The part that an override replaces.

    Attributes:
        content_hash: hash of its source.
        overridable: whether the author allows overrides.
    """

    content_hash: HexDigest
    overridable: bool


def source_of(descriptor: PromptDescriptor, entry: Entry) -> PartSource | None:
    """Return the part that ``entry`` replaces; None when the prompt has none."""
    match entry:
        case SectionOverride():
            section = descriptor.section(entry.path)
            return PartSource(section.content_hash, section.overridable) if section else None
        case ToolOverride():
            tool = descriptor.tool(entry.name)
            return PartSource(tool.content_hash, tool.overridable) if tool else None
        case ToolExampleOverride():
            return _tool_example_source(descriptor, entry)
        case TaskExampleOverride() | RemovedTaskExample():
            example = descriptor.task_example(entry.path)
            return PartSource(example.content_hash, example.overridable) if example else None
        case AddedTaskExample():
            container = descriptor.container(entry.container_path)
            if container is None:
                return None
            return PartSource(descriptor.interface_hash, container.overridable)
        case OutputFieldOverride():
            field = descriptor.output_field(entry.field)
            return PartSource(field.content_hash, overridable=True) if field else None


def _tool_example_source(
    descriptor: PromptDescriptor, entry: ToolExampleOverride
) -> PartSource | None:
    tool = descriptor.tool(entry.tool_name)
    call = descriptor.tool_example(entry.tool_name, entry.example_index)
    return PartSource(call.content_hash, tool.overridable) if tool and call else None


def overridable_parts(descriptor: PromptDescriptor, kind: type[Entry]) -> tuple[str, ...]:
    """Return the names of the parts that overrides of a kind may replace."""
    tools = [tool for tool in descriptor.tools if tool.overridable]
    names: Iterable[str]
    if kind is SectionOverride:
        names = (show_path(found.path) for found in descriptor.sections if found.overridable)
    elif kind is ToolOverride:
        names = (tool.name for tool in tools)
    elif kind is ToolExampleOverride:
        names = (f"{tool.name}/{index}" for tool in tools for index in range(len(tool.examples)))
    elif kind is AddedTaskExample:
        names = (show_path(found.path) for found in descriptor.containers if found.overridable)
    elif kind is OutputFieldOverride:
        names = (found.field for found in descriptor.output_fields)
    else:
        names = (show_path(found.path) for found in descriptor.task_examples if found.overridable)
    return tuple(names)


def require_source(descriptor: PromptDescriptor, entry: Entry) -> PartSource:
    """Return the part that ``entry`` replaces.

    Raises:
        InvalidOverrideError: its path is no tuple of keys.
        UnknownPartError: the prompt has no such part, or does not allow overrides of it; the
            message lists what exists.
    """
    if isinstance(entry, AddedTaskExample):
        check_path(entry.container_path)
    elif isinstance(entry, SectionOverride | TaskExampleOverride | RemovedTaskExample):
        check_path(entry.path)
    source = source_of(descriptor, entry)
    if source is not None and source.overridable:
        return source
    known = overridable_parts(descriptor, type(entry))
    problem = "has no" if source is None else "does not allow overrides of"
    kind = _TARGETS[type(entry)]
    name = entry.target.removeprefix(f"{kind} ")
    raise UnknownPartError(
        f"prompt `{descriptor.ns}/{descriptor.key}` {problem} {kind} `{name}`"
        f"{did_you_mean(name, list(known)) if source is None else ''}; overridable: "
        + (", ".join(f"`{part}`" for part in known) or "none")
    )


def bound_entry(descriptor: PromptDescriptor, entry: Entry) -> Entry:
    """Return ``entry`` bound to the present source of the part that it replaces.

    Raises:
        UnknownPartError: there is no such part, or it may not be overridden.
    """
    return attrs.evolve(entry, expected_hash=require_source(descriptor, entry).content_hash)


def checked_entry(descriptor: PromptDescriptor, entry: Entry) -> Entry:
    """Return ``entry`` in the form that stores keep: its JSON in one line, defaults filled in.

    Raises:
        UnknownPartError: there is no such part, or it may not be overridden.
        HashMismatchError: the override was written for another source.
        InvalidOverrideError: its content is empty, too long, not Unicode, of the wrong type,
            or loses a placeholder.
    """
    source = require_source(descriptor, entry)
    if entry.expected_hash != source.content_hash:
        raise HashMismatchError(
            f"{entry.part}: the override was written for source "
            f"{shown_hash(entry.expected_hash)}, the source is now "
            f"{shown_hash(source.content_hash)}; write it again for this source"
        )
    return checked_content(descriptor, entry)


def skip_reason(descriptor: PromptDescriptor, entry: Entry) -> SkipReason | None:
    """Return why an override does not apply to the prompt as it is now; None if it does."""
    source = source_of(descriptor, entry)
    if source is None:
        return SkipReason.UNKNOWN_PART
    if not source.overridable:
        return SkipReason.NOT_OVERRIDABLE
    if entry.expected_hash != source.content_hash:
        return SkipReason.STALE
    if isinstance(entry, SectionOverride):
        section = descriptor.section(entry.path)
        if section is not None and lost_placeholders(section, entry.body):
            return SkipReason.LOST_PLACEHOLDER
    if isinstance(entry, AddedTaskExample):
        container = descriptor.container(entry.container_path)
        if container is not None and entry.example_key in container.taken:
            return SkipReason.KEY_TAKEN
    if isinstance(entry, OutputFieldOverride) and entry.aliases:
        field = descriptor.output_field(entry.field)
        if field is not None and taken_aliases(field, entry.aliases):
            return SkipReason.NAME_TAKEN
    return None


def shared_name(
    entry: OutputFieldOverride, others: Iterable[OutputFieldOverride]
) -> tuple[str, str] | None:
    """Return an alias that ``entry`` gives although another field has it, and that field."""
    for other in others:
        siblings = _owner(other) == _owner(entry) and other.field != entry.field
        taken = {fold_name(alias) for alias in other.aliases or () if siblings}
        for alias in entry.aliases or ():
            if fold_name(alias) in taken:
                return alias, other.field
    return None


def _owner(entry: OutputFieldOverride) -> str:
    return entry.field.rpartition(".")[0]


def check_names(
    descriptor: PromptDescriptor, written: PromptOverride, visible: PromptOverride
) -> None:
    """Refuse overrides that give a field a name which the override of another field gives.

    Args:
        descriptor: the prompt.
        written: what is about to be written.
        visible: what a reader would see then.

    Raises:
        InvalidOverrideError: naming both fields.
    """
    fresh = [entry for entry in visible.output_overrides.values() if is_fresh(descriptor, entry)]
    for entry in written.output_overrides.values():
        if entry in fresh and (found := shared_name(entry, fresh)):
            raise InvalidOverrideError(
                f"{entry.part}: the name {shown(found[0])} is taken by the override of `{found[1]}`"
            )


def is_fresh(descriptor: PromptDescriptor, entry: Entry) -> bool:
    """Tell whether an override applies to the prompt as it is now."""
    return skip_reason(descriptor, entry) is None


def require_section(descriptor: PromptDescriptor, path: SectionPath) -> SectionDescriptor:
    """Return an overridable section; raises as :func:`require_source`."""
    require_source(descriptor, SectionOverride(path=path, expected_hash=UNBOUND, body=""))
    return _found(descriptor.section(path))


def require_tool(descriptor: PromptDescriptor, name: str) -> ToolDescriptor:
    """Return an overridable tool; raises as :func:`require_source`."""
    require_source(descriptor, ToolOverride(name=name, expected_hash=UNBOUND))
    return _found(descriptor.tool(name))


def require_tool_example(descriptor: PromptDescriptor, name: str, index: int) -> ToolCall:
    """Return an example of an overridable tool; raises as :func:`require_source`."""
    entry = ToolExampleOverride(tool_name=name, example_index=index, expected_hash=UNBOUND)
    require_source(descriptor, entry)
    return _found(descriptor.tool_example(name, index))


def require_task_example(descriptor: PromptDescriptor, path: SectionPath) -> TaskExampleDescriptor:
    """Return an overridable task example of the source; raises as :func:`require_source`."""
    require_source(descriptor, TaskExampleOverride(path=path, expected_hash=UNBOUND))
    return _found(descriptor.task_example(path))


def require_container(descriptor: PromptDescriptor, path: SectionPath) -> ContainerDescriptor:
    """Return a section that takes task examples; raises as :func:`require_source`."""
    require_source(descriptor, _addition_to(path))
    return _found(descriptor.container(path))


def require_output_field(descriptor: PromptDescriptor, field: str) -> OutputFieldDescriptor:
    """Return a field of the answer; raises as :func:`require_source`."""
    require_source(descriptor, OutputFieldOverride(field=field, expected_hash=UNBOUND))
    return _found(descriptor.output_field(field))


def _addition_to(path: SectionPath) -> AddedTaskExample:
    return AddedTaskExample(
        container_path=path,
        example_key="new",
        expected_hash=UNBOUND,
        objective="",
        outcome_json="",
        steps_json="",
    )


def _found(part: P | None) -> P:
    assert part is not None  # noqa: S101 - require_source has looked
    return part
