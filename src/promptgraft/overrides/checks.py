"""For every kind of override: what it replaces, what may be written, what still applies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from promptgraft.errors import (
    DataFormatError,
    HashMismatchError,
    InvalidOverrideError,
    UnknownPartError,
)
from promptgraft.overrides.body import spell
from promptgraft.overrides.effective import effective_call
from promptgraft.overrides.entries import (
    AddedTaskExample,
    Entry,
    OutputFieldOverride,
    RemovedTaskExample,
    SectionOverride,
    TaskExampleOverride,
    ToolExampleOverride,
    ToolOverride,
    show_path,
)
from promptgraft.overrides.parts import PromptDescriptor, find_tool, read_steps, typed_json
from promptgraft.overrides.types import SkipReason
from promptgraft.overrides.validation import check_key, check_text, lost_placeholders, shown_hash
from promptgraft.serde import HexDigest, did_you_mean, shown


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
        UnknownPartError: the prompt has no such part, or does not allow overrides of it; the
            message lists what exists.
    """
    source = source_of(descriptor, entry)
    if source is not None and source.overridable:
        return source
    known = overridable_parts(descriptor, type(entry))
    problem = "has no" if source is None else "does not allow overrides of"
    kind, _, name = entry.target.rpartition(" ")
    raise UnknownPartError(
        f"prompt `{descriptor.ns}/{descriptor.key}` {problem} {kind} `{name}`"
        f"{did_you_mean(name, list(known)) if source is None else ''}; overridable: "
        + (", ".join(f"`{part}`" for part in known) or "none")
    )


def check_entry(descriptor: PromptDescriptor, entry: Entry) -> None:
    """Refuse an override that would not apply as it stands.

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
    try:
        _check_content(descriptor, entry)
    except DataFormatError as error:
        raise InvalidOverrideError(str(error)) from None


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
    return None


def is_fresh(descriptor: PromptDescriptor, entry: Entry) -> bool:
    """Tell whether an override applies to the prompt as it is now."""
    return skip_reason(descriptor, entry) is None


def _check_content(descriptor: PromptDescriptor, entry: Entry) -> None:
    match entry:
        case SectionOverride():
            _check_section(descriptor, entry)
        case ToolOverride():
            _check_tool(descriptor, entry)
        case ToolExampleOverride():
            _check_tool_example(descriptor, entry)
        case TaskExampleOverride():
            _check_task_example(descriptor, entry)
        case AddedTaskExample():
            _check_added(descriptor, entry)
        case OutputFieldOverride():
            _check_output_field(descriptor, entry)
        case RemovedTaskExample():
            pass


def _check_section(descriptor: PromptDescriptor, entry: SectionOverride) -> None:
    check_text(entry.body, entry.part)
    section = descriptor.section(entry.path)
    lost = lost_placeholders(section, entry.body) if section else ()
    if section and lost:
        names = ", ".join(f"`{spell(name, section.syntax)}`" for name in lost)
        raise InvalidOverrideError(f"{entry.part} lost the placeholder {names}; keep it in the body")


def _check_tool(descriptor: PromptDescriptor, entry: ToolOverride) -> None:
    tool = find_tool(descriptor.tools_by_name, entry.name, where=entry.part)
    if entry.description is None and not entry.param_descriptions:
        raise InvalidOverrideError(f"{entry.part}: replaces nothing; give a description")
    if entry.description is not None:
        _check_said(entry.description, f"{entry.part}: description")
    for name, text in entry.param_descriptions.items():
        if name not in tool.param_descriptions:
            known = ", ".join(f"`{param}`" for param in tool.param_descriptions)
            raise InvalidOverrideError(
                f"{entry.part}: there is no parameter {shown(name)}; parameters: {known}"
            )
        _check_said(text, f"{entry.part}: parameter `{name}`")


def _check_tool_example(descriptor: PromptDescriptor, entry: ToolExampleOverride) -> None:
    tool = find_tool(descriptor.tools_by_name, entry.tool_name, where=entry.part)
    if entry.description is None and entry.input_json is None and entry.output_json is None:
        raise InvalidOverrideError(f"{entry.part}: replaces nothing; give a field")
    _check_texts(entry.part, entry.description, entry.input_json, entry.output_json)
    if entry.input_json is not None:
        typed_json(entry.input_json, tool.params_type, where=f"{entry.part}: input")
    if entry.output_json is not None:
        typed_json(entry.output_json, tool.result_type, where=f"{entry.part}: output")


def _check_task_example(descriptor: PromptDescriptor, entry: TaskExampleOverride) -> None:
    found = descriptor.task_example(entry.path)
    steps = found.example.steps if found else ()
    if entry.steps_json is not None and entry.step_overrides:
        raise InvalidOverrideError(f"{entry.part}: give steps_json or step_overrides, not both")
    if (entry.objective, entry.outcome_json, entry.steps_json) == (None, None, None):
        if not entry.step_overrides:
            raise InvalidOverrideError(f"{entry.part}: replaces nothing; give a field")
    _check_texts(entry.part, entry.objective, entry.outcome_json, entry.steps_json)
    if entry.outcome_json is not None:
        check_outcome(descriptor, entry.outcome_json, where=entry.part)
    if entry.steps_json is not None:
        read_steps(entry.steps_json, descriptor.tools_by_name, where=entry.part)
    for index, override in entry.step_overrides.items():
        where = f"{entry.part}: step {index}"
        if override.step_index != index or not 0 <= index < len(steps):
            raise InvalidOverrideError(
                f"{where}: expected the index of one of {len(steps)} steps, under that index"
            )
        _check_texts(where, override.description, override.input_json, override.output_json)
        step = effective_call(steps[index], override)
        tool = find_tool(descriptor.tools_by_name, step.tool_name, where=where)
        tool.call(step.description, step.input_json, step.output_json, where=where)


def _check_added(descriptor: PromptDescriptor, entry: AddedTaskExample) -> None:
    check_key(entry.example_key, "task example key")
    container = descriptor.container(entry.container_path)
    if container is not None and entry.example_key in container.taken:
        raise InvalidOverrideError(f"{entry.part}: the source has a part of that key; use another")
    _check_said(entry.objective, f"{entry.part}: objective")
    _check_texts(entry.part, entry.outcome_json, entry.steps_json)
    check_outcome(descriptor, entry.outcome_json, where=entry.part)
    read_steps(entry.steps_json, descriptor.tools_by_name, where=entry.part)


def check_outcome(descriptor: PromptDescriptor, outcome_json: str, *, where: str) -> str:
    """Return the outcome of a task example in one line, if it is of the prompt's output type.

    Raises:
        DataFormatError: it is not.
    """
    kind = str if descriptor.output_type is None else descriptor.output_type
    return typed_json(outcome_json, kind, where=f"{where}: outcome")


def _check_output_field(descriptor: PromptDescriptor, entry: OutputFieldOverride) -> None:
    field = descriptor.output_field(entry.field)
    if field is None:
        return
    if (entry.description, entry.aliases) == (None, None) and not entry.value_descriptions:
        raise InvalidOverrideError(f"{entry.part}: replaces nothing; give a description")
    if entry.description is not None:
        _check_said(entry.description, f"{entry.part}: description")
    _check_options(entry.part, entry.value_descriptions, field.options)
    seen = set(field.siblings)
    for alias in entry.aliases or ():
        _check_said(alias, f"{entry.part}: alias")
        if not field.name:
            raise InvalidOverrideError(f"{entry.part}: an answer that is a choice has no aliases")
        if alias in seen or alias == field.name:
            raise InvalidOverrideError(f"{entry.part}: the name {shown(alias)} is taken")
        seen.add(alias)


def _check_options(part: str, values: Mapping[str, str], options: tuple[str, ...]) -> None:
    for option, text in values.items():
        if option not in options:
            raise InvalidOverrideError(
                f"{part}: there is no option {shown(option)}; options: "
                + (", ".join(options) or "none")
            )
        _check_said(text, f"{part}: option `{option}`")


def _check_said(text: object, where: str) -> None:
    if not check_text(text, where).strip():
        raise InvalidOverrideError(f"{where}: expected a text, found nothing")


def _check_texts(part: str, *texts: object) -> None:
    for text in texts:
        if text is not None:
            check_text(text, part)
