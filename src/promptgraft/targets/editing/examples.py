"""Examples of tools and tasks: mutated, and new ones written."""

from __future__ import annotations

from promptgraft.overrides.effective import stored_steps
from promptgraft.overrides.entries import (
    AddedTaskExample,
    SectionPath,
    TaskExampleOverride,
    ToolExampleOverride,
    show_path,
)
from promptgraft.overrides.parts import ToolCall, ToolDescriptor, WorkedExample, one_line
from promptgraft.prompt.schema import schema_of
from promptgraft.serde import Json, canonical_json, parse_json
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.editing.view import View
from promptgraft.targets.example_text import (
    TaskExampleText,
    fresh_key,
    read_task_example,
    read_tool_example,
    write_task_example,
    write_tool_example,
)
from promptgraft.targets.modules import GenerationModule, TaskExampleModule, ToolExampleModule
from promptgraft.targets.types import MetaPrompt, ModuleDescription


def describe_tool_example(
    view: View, module: ToolExampleModule, tool: ToolDescriptor
) -> ModuleDescription:
    """Return what a reflector may know of an example of a tool."""
    now = view.tool(tool.name)
    others = [
        write_tool_example(call)
        for index, call in enumerate(now.examples)
        if index != module.example_index
    ]
    return ModuleDescription(
        name=module.name,
        meta_prompt=MetaPrompt.TOOL_EXAMPLE,
        title=tool.name,
        text=write_tool_example(now.examples[module.example_index]),
        max_chars=view.max_part_chars,
        output=view.output(),
        neighbours=view.neighbours(module.name),
        schema=_tool_schema(view, tool),
        siblings=others,
    )


def edit_tool_example(
    view: View, module: ToolExampleModule, source: ToolCall, text: str
) -> ToolExampleOverride:
    """Return the override that replaces an example of a tool by what was proposed.

    Raises:
        InvalidProposalError: it cannot be read.
    """
    view.check_length(text)
    read = read_tool_example(text)
    return ToolExampleOverride(
        tool_name=module.tool_name,
        example_index=module.example_index,
        expected_hash=source.content_hash,
        description=read.description,
        input_json=read.input_json,
        output_json=read.output_json,
    )


def describe_task_example(view: View, module: TaskExampleModule) -> ModuleDescription:
    """Return what a reflector may know of a task example."""
    examples = view.shown_examples(module.path[:-1])
    own = examples.pop(module.path[-1])
    return ModuleDescription(
        name=module.name,
        meta_prompt=MetaPrompt.TASK_EXAMPLE,
        title=module.path[-1],
        text=write_task_example(own),
        max_chars=view.max_part_chars,
        output=view.output(),
        neighbours=view.neighbours(module.name, without=module.path[:-1]),
        schema=_task_schema(view),
        siblings=[write_task_example(example, key=key) for key, example in examples.items()],
    )


def edit_task_example(
    view: View, module: TaskExampleModule, text: str
) -> TaskExampleOverride | AddedTaskExample:
    """Return the override that replaces a task example by what was proposed.

    Raises:
        InvalidProposalError: it cannot be read.
    """
    view.check_length(text)
    read = read_task_example(text, outcome_is_text=_outcome_is_text(view))
    source = view.descriptor.task_example(module.path)
    if source is None:
        return _added(view, module.path[:-1], module.path[-1], read)
    return TaskExampleOverride(
        path=module.path,
        expected_hash=source.content_hash,
        objective=read.objective,
        outcome_json=view.own_outcome(read.outcome_json),
        steps_json=_steps_json(read),
    )


def describe_generation(view: View, module: GenerationModule) -> ModuleDescription:
    """Return what a reflector may know of a section that lacks an example."""
    examples = view.shown_examples(module.container_path)
    summary = view.template.section(module.container_path).summary
    return ModuleDescription(
        name=module.name,
        meta_prompt=MetaPrompt.GENERATION,
        title=view.template.section(module.container_path).title,
        text=summary or "",
        max_chars=view.max_part_chars,
        output=view.output(),
        neighbours=view.neighbours(module.name, without=module.container_path),
        schema=_task_schema(view),
        siblings=[write_task_example(example, key=key) for key, example in examples.items()],
    )


def edit_generation(view: View, module: GenerationModule, text: str) -> AddedTaskExample:
    """Return the task example that was proposed, under a key that is free.

    Raises:
        InvalidProposalError: it cannot be read.
    """
    view.check_length(text)
    read = read_task_example(text, outcome_is_text=_outcome_is_text(view))
    key = fresh_key(read.key, taken_keys(view, module.container_path))
    return _added(view, module.container_path, key, read)


def taken_keys(view: View, container: SectionPath) -> set[str]:
    """Return the keys that a new task example of a section cannot have."""
    source = view.descriptor.container(container)
    return {*view.task_examples(container), *(source.taken if source else ())}


def check_is_new(view: View, added: AddedTaskExample) -> None:
    """Refuse a task example that is there already, under whatever key.

    Raises:
        InvalidProposalError: naming the one that is there.
    """
    content = WorkedExample(
        objective=added.objective,
        steps=stored_steps(added.steps_json),
        outcome_json=added.outcome_json,
    ).content_hash
    for container in view.descriptor.containers:
        for key, example in view.task_examples(container.path).items():
            if example.content_hash == content:
                raise InvalidProposalError(
                    RejectionReason.DUPLICATE,
                    f"the same example is there already, as "
                    f"`{show_path((*container.path, key))}`; write one that shows something else",
                )


def _added(view: View, container: SectionPath, key: str, read: TaskExampleText) -> AddedTaskExample:
    return AddedTaskExample(
        container_path=container,
        example_key=key,
        expected_hash=view.descriptor.interface_hash,
        objective=read.objective,
        outcome_json=view.own_outcome(read.outcome_json),
        steps_json=_steps_json(read),
    )


def _steps_json(read: TaskExampleText) -> str:
    steps: list[Json] = [
        {
            "tool_name": step.tool_name,
            "description": step.description,
            "input": parse_json(step.input_json, where="input"),
            "output": parse_json(step.output_json, where="output"),
        }
        for step in read.steps
    ]
    return one_line(steps)


def _outcome_is_text(view: View) -> bool:
    return view.template.output_type in (None, str)


def _tool_schema(view: View, tool: ToolDescriptor) -> str:
    return (
        f"Tool `{tool.name}`: {view.tool(tool.name).description}\n"
        f"input: {view.params_schema(tool)}\n"
        f"output: {canonical_json(schema_of(tool.result_type))}"
    )


def _task_schema(view: View) -> str:
    return "\n\n".join(_tool_schema(view, tool) for tool in view.descriptor.tools)
