"""The source of a prompt as overrides that change nothing; a start for editing."""

from __future__ import annotations

from collections.abc import Iterator

from promptgraft.overrides.checks import is_fresh
from promptgraft.overrides.entries import (
    Entry,
    OutputFieldOverride,
    SectionOverride,
    TaskExampleOverride,
    ToolExampleOverride,
    ToolOverride,
)
from promptgraft.overrides.parts import PromptDescriptor, TaskExampleDescriptor, ToolDescriptor
from promptgraft.overrides.types import PromptLike, PromptOverride


def source_entries(prompt: PromptLike, *, fixed: bool = False) -> Iterator[Entry]:
    """Yield the source of every part that may be overridden and says anything.

    With ``fixed``, also of the parts that may not.
    """
    descriptor = prompt.descriptor
    for section in descriptor.sections:
        if section.overridable or fixed:
            yield SectionOverride(
                path=section.path,
                expected_hash=section.content_hash,
                body=prompt.section_body(section.path),
            )
    for tool in descriptor.tools:
        if tool.overridable or fixed:
            yield from _tool_entries(tool)
    for task in descriptor.task_examples:
        if task.overridable or fixed:
            yield example_entry(task)
    for field in descriptor.output_fields:
        values = {option: text for option, text in field.values.items() if _said(text)}
        if _said(field.description) or field.aliases or values:
            yield OutputFieldOverride(
                field=field.field,
                expected_hash=field.content_hash,
                description=_said(field.description),
                aliases=field.aliases or None,
                value_descriptions=values,
            )


def example_entry(task: TaskExampleDescriptor) -> TaskExampleOverride:
    """Return the source of a task example as an override that changes nothing."""
    return TaskExampleOverride(
        path=task.path,
        expected_hash=task.content_hash,
        objective=_said(task.example.objective),
        outcome_json=task.example.outcome_json,
        steps_json=task.example.steps_json,
    )


def _tool_entries(tool: ToolDescriptor) -> Iterator[Entry]:
    said = {name: text for name, text in tool.param_descriptions.items() if _said(text)}
    if _said(tool.description) or said:
        yield ToolOverride(
            name=tool.name,
            expected_hash=tool.content_hash,
            description=_said(tool.description),
            param_descriptions=said,
        )
    for index, call in enumerate(tool.examples):
        yield ToolExampleOverride(
            tool_name=tool.name,
            example_index=index,
            expected_hash=call.content_hash,
            description=call.description,
            input_json=call.input_json,
            output_json=call.output_json,
        )


def _said(text: str) -> str | None:
    # An override may not say nothing; a source may, and is kept as it is.
    return text if text.strip() else None


def is_replaced(descriptor: PromptDescriptor, override: PromptOverride, entry: Entry) -> bool:
    """Tell whether ``override`` holds a fresh entry for the part that ``entry`` is of."""
    found = override.find(entry)
    return found is not None and is_fresh(descriptor, found)
