"""What an override may say: checked against the types and names of the prompt it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from promptgraft.errors import DataFormatError, InvalidOverrideError
from promptgraft.overrides.body import spell
from promptgraft.overrides.effective import effective_call
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
from promptgraft.overrides.parts import (
    PromptDescriptor,
    find_tool,
    read_steps,
    show_steps,
    taken_aliases,
    typed_json,
)
from promptgraft.overrides.validation import (
    check_entry_texts,
    check_key,
    check_text,
    lost_placeholders,
)
from promptgraft.serde import shown


def checked_content(descriptor: PromptDescriptor, entry: Entry) -> Entry:
    """Return ``entry`` with its JSON in one line and defaults filled in.

    Raises:
        InvalidOverrideError: its content is empty, too long, not Unicode, of the wrong type,
            or loses a placeholder.
    """
    try:
        checked = _checked(descriptor, entry)
    except DataFormatError as error:
        raise InvalidOverrideError(str(error)) from None
    # Once more: an escape in JSON may stand for a lone surrogate, and defaults make texts longer.
    check_entry_texts(checked)
    return checked


def _checked(descriptor: PromptDescriptor, entry: Entry) -> Entry:
    match entry:
        case SectionOverride():
            return _checked_section(descriptor, entry)
        case ToolOverride():
            return _checked_tool(descriptor, entry)
        case ToolExampleOverride():
            return _checked_tool_example(descriptor, entry)
        case TaskExampleOverride():
            return _checked_task_example(descriptor, entry)
        case AddedTaskExample():
            return _checked_added(descriptor, entry)
        case OutputFieldOverride():
            return _checked_output_field(descriptor, entry)
        case RemovedTaskExample():
            return entry


def _checked_section(descriptor: PromptDescriptor, entry: SectionOverride) -> SectionOverride:
    check_text(entry.body, entry.part)
    section = descriptor.section(entry.path)
    lost = lost_placeholders(section, entry.body) if section else ()
    if section and lost:
        names = ", ".join(f"`{spell(name, section.syntax)}`" for name in lost)
        raise InvalidOverrideError(
            f"{entry.part} lost the placeholder {names}; keep it in the body"
        )
    return entry


def _checked_tool(descriptor: PromptDescriptor, entry: ToolOverride) -> ToolOverride:
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
    return entry


def _checked_tool_example(
    descriptor: PromptDescriptor, entry: ToolExampleOverride
) -> ToolExampleOverride:
    tool = find_tool(descriptor.tools_by_name, entry.tool_name, where=entry.part)
    if entry.description is None and entry.input_json is None and entry.output_json is None:
        raise InvalidOverrideError(f"{entry.part}: replaces nothing; give a field")
    _check_texts(entry.part, entry.description, entry.input_json, entry.output_json)
    return attrs.evolve(
        entry,
        input_json=_typed(entry.input_json, tool.params_type, f"{entry.part}: input"),
        output_json=_typed(entry.output_json, tool.result_type, f"{entry.part}: output"),
    )


def _typed(text: str | None, kind: Any, where: str) -> str | None:
    return None if text is None else typed_json(text, kind, where=where)


def _checked_task_example(
    descriptor: PromptDescriptor, entry: TaskExampleOverride
) -> TaskExampleOverride:
    replaced = (entry.objective, entry.outcome_json, entry.steps_json)
    if replaced == (None, None, None) and not entry.step_overrides:
        raise InvalidOverrideError(f"{entry.part}: replaces nothing; give a field")
    if entry.steps_json is not None and entry.step_overrides:
        raise InvalidOverrideError(f"{entry.part}: give steps_json or step_overrides, not both")
    _check_texts(entry.part, *replaced)
    if entry.objective is not None:
        _check_said(entry.objective, f"{entry.part}: objective")
    outcome, steps = entry.outcome_json, entry.steps_json
    return attrs.evolve(
        entry,
        outcome_json=None
        if outcome is None
        else checked_outcome(descriptor, outcome, where=entry.part),
        steps_json=None if steps is None else checked_steps(descriptor, steps, where=entry.part),
        step_overrides={
            index: _checked_step(descriptor, entry, index) for index in entry.step_overrides
        },
    )


def _checked_step(
    descriptor: PromptDescriptor, entry: TaskExampleOverride, index: int
) -> TaskStepOverride:
    override = entry.step_overrides[index]
    where = f"{entry.part}: step {index}"
    found = descriptor.task_example(entry.path)
    steps = found.example.steps if found else ()
    # Not isinstance: True is an integer, but not one that a file gives back.
    if type(override.step_index) is not int or index not in range(len(steps)):
        raise InvalidOverrideError(f"{where}: expected the index of one of {len(steps)} steps")
    if override.step_index != index:
        raise InvalidOverrideError(
            f"{where}: step_index: expected {index}, found {override.step_index}"
        )
    replaced = (
        override.tool_name,
        override.description,
        override.input_json,
        override.output_json,
    )
    if replaced == (None, None, None, None):
        raise InvalidOverrideError(f"{where}: replaces nothing; give a field")
    _check_texts(where, *replaced)
    step = effective_call(steps[index], override)
    tool = find_tool(descriptor.tools_by_name, step.tool_name, where=where)
    call = tool.call(step.description, step.input_json, step.output_json, where=where)
    return attrs.evolve(
        override,
        input_json=None if override.input_json is None else call.input_json,
        output_json=None if override.output_json is None else call.output_json,
    )


def _checked_added(descriptor: PromptDescriptor, entry: AddedTaskExample) -> AddedTaskExample:
    check_key(entry.example_key, "task example key")
    container = descriptor.container(entry.container_path)
    if container is not None and entry.example_key in container.taken:
        raise InvalidOverrideError(f"{entry.part}: the source has a part of that key; use another")
    _check_said(entry.objective, f"{entry.part}: objective")
    _check_texts(entry.part, entry.outcome_json, entry.steps_json)
    return attrs.evolve(
        entry,
        outcome_json=checked_outcome(descriptor, entry.outcome_json, where=entry.part),
        steps_json=checked_steps(descriptor, entry.steps_json, where=entry.part),
    )


def checked_steps(descriptor: PromptDescriptor, steps_json: str, *, where: str) -> str:
    """Return steps in one line, if each fits the types of its tool.

    Raises:
        DataFormatError: one does not.
    """
    steps = read_steps(steps_json, descriptor.tools_by_name, where=where)
    return show_steps(steps)


def checked_outcome(descriptor: PromptDescriptor, outcome_json: str, *, where: str) -> str:
    """Return the outcome of a task example in one line, if it is of the prompt's output type.

    Raises:
        DataFormatError: it is not.
    """
    kind = str if descriptor.output_type is None else descriptor.output_type
    return typed_json(outcome_json, kind, where=f"{where}: outcome")


def _checked_output_field(
    descriptor: PromptDescriptor, entry: OutputFieldOverride
) -> OutputFieldOverride:
    field = descriptor.output_field(entry.field)
    if field is None:
        return entry
    if (entry.description, entry.aliases) == (None, None) and not entry.value_descriptions:
        raise InvalidOverrideError(f"{entry.part}: replaces nothing; give a description")
    if entry.description is not None:
        _check_said(entry.description, f"{entry.part}: description")
    _check_options(entry.part, entry.value_descriptions, field.options)
    if entry.aliases and not field.name:
        raise InvalidOverrideError(f"{entry.part}: an answer that is a choice has no aliases")
    aliases = entry.aliases or ()
    for alias in aliases:
        _check_said(alias, f"{entry.part}: alias")
    if taken := taken_aliases(field, aliases):
        raise InvalidOverrideError(f"{entry.part}: the name {shown(taken[0])} is taken")
    return entry


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
