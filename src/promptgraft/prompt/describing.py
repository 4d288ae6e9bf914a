"""The descriptor of a template: the parts that stores and optimizers see.

Tools that share a name, and examples that do not fit the types of their tools or of the answer,
raise ``PromptDefinitionError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from promptgraft.errors import PromptDefinitionError
from promptgraft.ground.serde import HexDigest, did_you_mean, digest
from promptgraft.overrides.parts.descriptors import (
    NO_INTERFACE,
    ContainerDescriptor,
    OutputFieldDescriptor,
    PromptDescriptor,
    SectionPath,
    SectionVisibility,
    TaskExampleDescriptor,
    ToolDescriptor,
    show_path,
)
from promptgraft.overrides.parts.examples import ToolCall, WorkedExample, json_line
from promptgraft.prompt import fields
from promptgraft.prompt.schema import bare_schema, type_name
from promptgraft.prompt.sections import (
    MarkdownSection,
    TaskExample,
    TaskExamplesSection,
    Tool,
    ToolExample,
    check_value,
)

AnyTool = Tool[Any, Any]
Walked = Sequence[tuple[SectionPath, MarkdownSection]]


def walk(
    sections: tuple[MarkdownSection, ...], above: SectionPath = ()
) -> list[tuple[SectionPath, MarkdownSection]]:
    """Return every section with its path, parents before children, in reading order."""
    walked: list[tuple[SectionPath, MarkdownSection]] = []
    for section in sections:
        path = (*above, section.key)
        walked.append((path, section))
        walked.extend(walk(section.children, path))
    return walked


def describe_template(
    ns: str, key: str, walked: Walked, output_type: Any, *, choice: fields.Described
) -> PromptDescriptor:
    """Check the tools and examples of a template, and return its descriptor."""
    where = f"prompt `{ns}/{key}`"
    tools = tools_by_name(walked, where)
    containers = [(p, section) for p, section in walked if isinstance(section, TaskExamplesSection)]
    outcome_type = str if output_type is None else output_type
    return PromptDescriptor(
        ns=ns,
        key=key,
        sections=tuple(section.descriptor(path) for path, section in walked),
        tools=tuple(_tool(tool) for tool in tools.values()),
        task_examples=tuple(
            TaskExampleDescriptor(
                path=(*path, example.key),
                example=_worked(example, tools, outcome_type, where=f"{where}: {show_path(path)}"),
                overridable=example.overridable and section.overridable,
                visibility=SectionVisibility.HIDDEN if example.hidden else SectionVisibility.FULL,
            )
            for path, section in containers
            for example in section.examples
        ),
        containers=tuple(_container(path, section) for path, section in containers),
        output_fields=_output_fields(output_type, choice),
        output_type=output_type,
        # Only examples in these sections are bound to it, and schemas take time to build.
        interface_hash=_interface(tools, output_type) if containers else NO_INTERFACE,
    )


def tools_by_name(walked: Walked, where: str) -> dict[str, AnyTool]:
    """Return the tools of all sections, in reading order."""
    tools: dict[str, AnyTool] = {}
    for _, section in walked:
        for tool in section.tools:
            if tool.name in tools:
                raise PromptDefinitionError(f"{where}: two tools are named `{tool.name}`")
            tools[tool.name] = tool
    return tools


def _tool(tool: AnyTool) -> ToolDescriptor:
    return ToolDescriptor(
        name=tool.name,
        description=tool.description,
        param_descriptions=tool.param_descriptions,
        examples=tuple(_call(tool.name, example) for example in tool.examples),
        params_type=tool.params_type,
        result_type=tool.result_type,
        overridable=tool.overridable,
    )


def _call(name: str, example: ToolExample[Any, Any]) -> ToolCall:
    return ToolCall(
        tool_name=name,
        description=example.description,
        input_json=json_line(example.input),
        output_json=json_line(example.output),
    )


def _worked(
    example: TaskExample, tools: dict[str, AnyTool], outcome_type: Any, *, where: str
) -> WorkedExample:
    where = f"{where}/{example.key}"
    for index, step in enumerate(example.steps):
        tool = tools.get(step.tool_name)
        if tool is None:
            raise PromptDefinitionError(
                f"{where}: step {index}: there is no tool `{step.tool_name}`"
                f"{did_you_mean(step.tool_name, list(tools))}; tools: "
                + (", ".join(tools) or "none")
            )
        check_value(step.example.input, tool.params_type, where=f"{where}: step {index}: input")
        check_value(step.example.output, tool.result_type, where=f"{where}: step {index}: output")
    check_value(example.outcome, outcome_type, where=f"{where}: outcome")
    return _as_worked(example)


def _as_worked(example: TaskExample) -> WorkedExample:
    return WorkedExample(
        objective=example.objective,
        steps=tuple(_call(step.tool_name, step.example) for step in example.steps),
        outcome_json=json_line(example.outcome),
    )


def hash_tool_example(example: ToolExample[Any, Any]) -> HexDigest:
    """Return the SHA-256 that an override of a tool example must expect."""
    # The name of the tool is not part of the hash.
    return _call("", example).content_hash


def hash_task_example(example: TaskExample) -> HexDigest:
    """Return the SHA-256 that an override of a task example must expect, steps included."""
    return _as_worked(example).content_hash


def _container(path: SectionPath, section: TaskExamplesSection) -> ContainerDescriptor:
    keys = [child.key for child in section.children]
    return ContainerDescriptor(
        path=path,
        taken=(*keys, *(example.key for example in section.examples)),
        overridable=section.overridable,
    )


def _output_fields(output_type: Any, choice: fields.Described) -> tuple[OutputFieldDescriptor, ...]:
    if output_type is None or output_type is str:
        return ()
    if options := fields.options_of(output_type):
        return (
            OutputFieldDescriptor(
                field=type_name(output_type),
                description=choice.description,
                options=options,
                values=choice.values,
            ),
        )
    return tuple(
        _output_field(field, fields.fields_of(owner))
        for owner in fields.classes_in(output_type)
        for field in fields.fields_of(owner)
    )


def _output_field(
    field: fields.FieldInfo, siblings: Sequence[fields.FieldInfo]
) -> OutputFieldDescriptor:
    description = field.described
    siblings_left = [sibling for sibling in siblings if sibling.name != field.name]
    return OutputFieldDescriptor(
        field=field.key,
        name=field.name,
        siblings=frozenset(
            name for sibling in siblings_left for name in (sibling.name, *sibling.described.aliases)
        ),
        description=description.description,
        aliases=description.aliases,
        options=fields.options_within(field.kind),
        values=description.values,
    )


def _interface(tools: dict[str, AnyTool], output_type: Any) -> HexDigest:
    """Hash what task examples depend on: the types of tools and answer, not descriptions."""
    types = [
        [tool.name, _shape(tool.params_type), _shape(tool.result_type)]
        for _, tool in sorted(tools.items())  # sorted, since tools may move between sections
    ]
    return digest([types, _shape(output_type)])


def _shape(kind: Any) -> object:
    return None if kind is None else bare_schema(kind)
