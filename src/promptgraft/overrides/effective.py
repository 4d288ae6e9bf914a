"""The parts of a prompt as fresh overrides leave them. Pure, and without types."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.overrides.entries import (
    OutputFieldOverride,
    SectionPath,
    TaskExampleOverride,
    TaskStepOverride,
    ToolExampleOverride,
)
from promptgraft.overrides.parts import (
    OutputFieldDescriptor,
    PromptDescriptor,
    ToolCall,
    ToolDescriptor,
    WorkedExample,
    one_line,
    plain_step,
)
from promptgraft.overrides.types import PromptOverride
from promptgraft.serde import Json, parse_json, shown


@attrs.frozen(kw_only=True)
class EffectiveTool:
    """What a model is told of a tool.

    Attributes:
        name: the tool.
        description: what it does.
        param_descriptions: what each parameter means.
        examples: calls that are shown.
    """

    name: str
    description: str
    param_descriptions: Mapping[str, str]
    examples: tuple[ToolCall, ...]


@attrs.frozen(kw_only=True)
class EffectiveField:
    """What a model is told of a field of the answer."""

    description: str
    aliases: tuple[str, ...]
    values: Mapping[str, str]


def effective_tool(tool: ToolDescriptor, fresh: PromptOverride | None) -> EffectiveTool:
    """Return a tool as ``fresh`` leaves it."""
    override = fresh.tool_overrides.get(tool.name) if fresh else None
    description, params = tool.description, tool.param_descriptions
    if override is not None:
        description = tool.description if override.description is None else override.description
        params = {**tool.param_descriptions, **override.param_descriptions}
    examples = tool.examples
    if fresh and fresh.tool_example_overrides:
        examples = tuple(
            effective_call(call, fresh.tool_example_overrides.get((tool.name, index)))
            for index, call in enumerate(tool.examples)
        )
    return EffectiveTool(
        name=tool.name, description=description, param_descriptions=params, examples=examples
    )


def effective_call(
    call: ToolCall, override: ToolExampleOverride | TaskStepOverride | None
) -> ToolCall:
    """Return a call with the fields that ``override`` replaces."""
    if override is None:
        return call
    return ToolCall(
        # The example of a tool stays with its tool, whose name an override must have.
        tool_name=call.tool_name if override.tool_name is None else override.tool_name,
        description=call.description if override.description is None else override.description,
        input_json=call.input_json if override.input_json is None else override.input_json,
        output_json=call.output_json if override.output_json is None else override.output_json,
    )


def effective_example(
    example: WorkedExample, override: TaskExampleOverride | None
) -> WorkedExample:
    """Return a task example with what ``override`` replaces."""
    if override is None:
        return example
    steps = example.steps
    if override.steps_json is not None:
        steps = stored_steps(override.steps_json)
    elif override.step_overrides:
        steps = tuple(
            effective_call(step, override.step_overrides.get(index))
            for index, step in enumerate(example.steps)
        )
    outcome = override.outcome_json
    return WorkedExample(
        objective=example.objective if override.objective is None else override.objective,
        steps=steps,
        outcome_json=example.outcome_json if outcome is None else outcome,
    )


def effective_task_examples(
    descriptor: PromptDescriptor, container: SectionPath, fresh: PromptOverride | None
) -> tuple[tuple[str, WorkedExample], ...]:
    """Return key and content of the task examples in a section: the source's, the added by key."""
    shown = [
        (found.path[-1], effective_example(found.example, _override_of(fresh, found.path)))
        for found in descriptor.task_examples
        if found.path[:-1] == container
        and not (fresh and found.path in fresh.removed_task_examples)
    ]
    # By key, because equal overrides must render equally, and stores keep no order.
    for _, added in sorted(fresh.added_task_examples.items()) if fresh else ():
        if added.container_path == container:
            steps = stored_steps(added.steps_json)
            example = WorkedExample(
                objective=added.objective, steps=steps, outcome_json=added.outcome_json
            )
            shown.append((added.example_key, example))
    return tuple(shown)


def effective_field(
    field: OutputFieldDescriptor, override: OutputFieldOverride | None
) -> EffectiveField:
    """Return a field of the answer as ``override`` leaves it."""
    if override is None:
        return EffectiveField(
            description=field.description, aliases=field.aliases, values=field.values
        )
    description = override.description
    return EffectiveField(
        description=field.description if description is None else description,
        aliases=field.aliases if override.aliases is None else override.aliases,
        values={**field.values, **override.value_descriptions},
    )


def _override_of(fresh: PromptOverride | None, path: SectionPath) -> TaskExampleOverride | None:
    return fresh.task_example_overrides.get(path) if fresh else None


@functools.lru_cache(maxsize=1024)
def stored_steps(steps_json: str) -> tuple[ToolCall, ...]:
    """Return steps that were checked when they were written, and again when they were read."""
    return read_stored_steps(steps_json, where="steps")


def read_stored_steps(steps_json: str, *, where: str) -> tuple[ToolCall, ...]:
    """Read steps without asking whether they fit the types of their tools.

    Raises:
        DataFormatError: it is no list of steps.
    """
    data = parse_json(steps_json, where=where)
    if not isinstance(data, list):
        raise DataFormatError(f"{where}: expected a list, found {shown(data)}")
    return tuple(_stored_step(entry, f"{where}[{index}]") for index, entry in enumerate(data))


def _stored_step(entry: Json, where: str) -> ToolCall:
    name, description, given, result = plain_step(entry, where=where)
    return ToolCall(
        tool_name=name,
        description=description,
        input_json=one_line(given),
        output_json=one_line(result),
    )
