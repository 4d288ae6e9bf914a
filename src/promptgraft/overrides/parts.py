"""The parts of a prompt as stores see them: texts and JSON, with hashes.

Values of users' types are kept as the one-line JSON that models are shown, so that hashing,
overriding and rendering need no types; types are asked only when something is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.frozenmap import FrozenMap
from promptgraft.overrides.body import BodySyntax
from promptgraft.overrides.entries import SectionPath
from promptgraft.serde import HexDigest, Json, digest, parse_json, shown, structure, unstructure

NO_INTERFACE = HexDigest("")


@attrs.frozen(kw_only=True)
class ToolCall:
    """One call of a tool, as an example shows it.

    Attributes:
        tool_name: the tool.
        description: when or why one would make the call.
        input_json: the parameters as one line of JSON.
        output_json: the result as one line of JSON.
    """

    tool_name: str
    description: str
    input_json: str
    output_json: str

    @property
    def content_hash(self) -> HexDigest:
        """SHA-256 over description, input and output."""
        return digest(_plain_call(self))


@attrs.frozen(kw_only=True)
class WorkedExample:
    """A task example: objective, tool calls, outcome.

    Attributes:
        objective: what was asked.
        steps: the calls, in order.
        outcome_json: the answer as one line of JSON, also when it is a text.
    """

    objective: str
    steps: tuple[ToolCall, ...]
    outcome_json: str

    @property
    def content_hash(self) -> HexDigest:
        """SHA-256 over everything, the inputs and outputs of the steps included."""
        return digest(
            {
                "objective": self.objective,
                "steps": [
                    {"tool_name": step.tool_name, **_plain_call(step)} for step in self.steps
                ],
                "outcome": parse_json(self.outcome_json, where="outcome"),
            }
        )

    @property
    def steps_json(self) -> str:
        """The steps in the form that overrides keep them in."""
        return one_line([{"tool_name": step.tool_name, **_plain_call(step)} for step in self.steps])


def show_steps(steps: Sequence[ToolCall]) -> str:
    """Return steps in the form that overrides keep them in."""
    return one_line([{"tool_name": step.tool_name, **_plain_call(step)} for step in steps])


def _plain_call(call: ToolCall) -> dict[str, Json]:
    return {
        "description": call.description,
        "input": parse_json(call.input_json, where="input"),
        "output": parse_json(call.output_json, where="output"),
    }


def fold_name(name: str) -> str:
    """Return what of the name of a field counts when an answer is read."""
    return re.sub(r"[-_ ]", "", name).casefold()


def one_line(value: object) -> str:
    """Return a value as the one line of JSON that models are shown.

    Raises:
        DataFormatError: the value has no plain form.
    """
    return json.dumps(unstructure(value), ensure_ascii=False)


def typed_json(text: str, kind: Any, *, where: str) -> str:
    """Return JSON that fits ``kind``, in one line and with every default filled in.

    Raises:
        DataFormatError: it is no JSON or does not fit; with the path to each fault.
    """
    return one_line(structure(parse_json(text, where=where), kind, where=where))


@attrs.frozen(kw_only=True)
class SectionDescriptor:
    """What a store needs to know of a section.

    Attributes:
        path: where the section stands.
        content_hash: SHA-256 over the source template, its syntax and, of a plain section, its
            placeholders.
        syntax: how placeholders are spelled in the source and in override bodies.
        placeholders: names that an override body must keep, in order of appearance; of a plain
            section the strings themselves.
        overridable: whether the author allows overrides.
    """

    path: SectionPath
    content_hash: HexDigest
    syntax: BodySyntax
    placeholders: tuple[str, ...] = ()
    overridable: bool = True


def _texts(values: Mapping[str, str]) -> Mapping[str, str]:
    return FrozenMap(values)


@attrs.frozen(kw_only=True)
class ToolDescriptor:
    """What a store needs to know of a tool.

    Attributes:
        name: the tool.
        description: what its source says it does.
        param_descriptions: what its source says of each parameter, all of them.
        examples: its source examples.
        params_type: type of the parameters.
        result_type: type of the result.
        overridable: whether the author allows overrides.
        content_hash: SHA-256 over the descriptions.
    """

    name: str
    description: str
    param_descriptions: Mapping[str, str] = attrs.field(converter=_texts)
    examples: tuple[ToolCall, ...] = ()
    params_type: Any = attrs.field(repr=False)
    result_type: Any = attrs.field(repr=False)
    overridable: bool = True
    content_hash: HexDigest = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        said = {"description": self.description, "params": dict(self.param_descriptions)}
        object.__setattr__(self, "content_hash", digest(said))

    def call(self, description: str, input_json: str, output_json: str, *, where: str) -> ToolCall:
        """Return an example call whose values fit the tool's types.

        Raises:
            DataFormatError: a value does not fit.
        """
        return ToolCall(
            tool_name=self.name,
            description=description,
            input_json=typed_json(input_json, self.params_type, where=f"{where}: input"),
            output_json=typed_json(output_json, self.result_type, where=f"{where}: output"),
        )


@attrs.frozen(kw_only=True)
class TaskExampleDescriptor:
    """What a store needs to know of a task example.

    Attributes:
        path: the path of its section and its key.
        example: the source.
        overridable: whether the author allows overrides.
        content_hash: SHA-256 over the source.
    """

    path: SectionPath
    example: WorkedExample
    overridable: bool = True
    content_hash: HexDigest = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "content_hash", self.example.content_hash)


@attrs.frozen(kw_only=True)
class ContainerDescriptor:
    """A section that holds task examples.

    Attributes:
        path: the section.
        taken: keys that an added example may not have.
        overridable: whether examples may be added.
    """

    path: SectionPath
    taken: tuple[str, ...]
    overridable: bool = True


@attrs.frozen(kw_only=True)
class OutputFieldDescriptor:
    """What a store needs to know of a field of the answer.

    Attributes:
        field: ``Review.severity``; the type's name for an answer that is a choice.
        name: the field's own name; empty for a choice.
        siblings: names and aliases that its own aliases may not repeat.
        description: what the source says.
        aliases: other names in the source.
        options: the options of a choice.
        values: what the source says of them.
        content_hash: SHA-256 over all of it.
    """

    field: str
    name: str = ""
    siblings: frozenset[str] = frozenset()
    description: str = ""
    aliases: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    values: Mapping[str, str] = attrs.field(factory=dict, converter=_texts)
    content_hash: HexDigest = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        said = {
            "field": self.field,
            "description": self.description,
            "aliases": self.aliases,
            "options": self.options,
            "values": dict(self.values),
        }
        object.__setattr__(self, "content_hash", digest(said))


def taken_aliases(field: OutputFieldDescriptor, aliases: Sequence[str]) -> tuple[str, ...]:
    """Return the aliases that name another field, or that the field has already."""
    siblings = {fold_name(name) for name in field.siblings}
    return tuple(
        alias
        for index, alias in enumerate(aliases)
        if alias in (field.name, *aliases[:index]) or fold_name(alias) in siblings
    )


def read_steps(
    steps_json: str, tools: Mapping[str, ToolDescriptor], *, where: str
) -> tuple[ToolCall, ...]:
    """Read the steps of a task example: ``[{"tool_name", "description", "input", "output"}]``.

    Raises:
        DataFormatError: it is no such list, names an unknown tool, or a value does not fit.
    """
    data = parse_json(steps_json, where=f"{where}: steps")
    if not isinstance(data, list):
        raise DataFormatError(f"{where}: steps: expected a list, found {shown(data)}")
    return tuple(
        _read_step(entry, tools, where=f"{where}: step {index}") for index, entry in enumerate(data)
    )


def _read_step(entry: Json, tools: Mapping[str, ToolDescriptor], *, where: str) -> ToolCall:
    name, description, given, result = plain_step(entry, where=where)
    tool = find_tool(tools, name, where=where)
    return tool.call(description, one_line(given), one_line(result), where=where)


def plain_step(entry: Json, *, where: str) -> tuple[str, str, Json, Json]:
    """Return tool, description, input and output of a step in the form that overrides keep.

    Raises:
        DataFormatError: it has another form.
    """
    match entry:
        case {
            "tool_name": str(name),
            "description": str(description),
            "input": given,
            "output": result,
            **others,
        } if not others:
            return name, description, given, result
    raise DataFormatError(
        f"{where}: expected an object with tool_name, description, input and output, "
        f"found {shown(entry)}"
    )


def find_tool(tools: Mapping[str, ToolDescriptor], name: str, *, where: str) -> ToolDescriptor:
    """Return the tool of that name.

    Raises:
        DataFormatError: there is none; the message lists those that exist.
    """
    if name in tools:
        return tools[name]
    known = ", ".join(f"`{tool}`" for tool in tools) or "none"
    raise DataFormatError(f"{where}: there is no tool {shown(name)}; tools: {known}")


@attrs.frozen(kw_only=True)
class PromptDescriptor:
    """The identity of a prompt and the hashes of its parts.

    Attributes:
        ns: namespace.
        key: key in the namespace.
        sections: sections in reading order.
        tools: tools in reading order.
        task_examples: task examples of the source in reading order.
        containers: sections that hold task examples.
        output_fields: fields of the answer.
        output_type: type of the answer; None for text.
        interface_hash: SHA-256 over what task examples depend on: the types of tools and answer.
    """

    ns: str
    key: str
    sections: tuple[SectionDescriptor, ...]
    tools: tuple[ToolDescriptor, ...] = ()
    task_examples: tuple[TaskExampleDescriptor, ...] = ()
    containers: tuple[ContainerDescriptor, ...] = ()
    output_fields: tuple[OutputFieldDescriptor, ...] = ()
    output_type: Any = attrs.field(default=None, repr=False)
    interface_hash: HexDigest = NO_INTERFACE
    tools_by_name: Mapping[str, ToolDescriptor] = attrs.field(init=False, repr=False, eq=False)
    _sections: Mapping[SectionPath, SectionDescriptor] = attrs.field(
        init=False, repr=False, eq=False
    )
    _task_examples: Mapping[SectionPath, TaskExampleDescriptor] = attrs.field(
        init=False, repr=False, eq=False
    )
    _containers: Mapping[SectionPath, ContainerDescriptor] = attrs.field(
        init=False, repr=False, eq=False
    )
    _output_fields: Mapping[str, OutputFieldDescriptor] = attrs.field(
        init=False, repr=False, eq=False
    )

    def __attrs_post_init__(self) -> None:
        indexes = {
            "tools_by_name": FrozenMap((tool.name, tool) for tool in self.tools),
            "_sections": FrozenMap((section.path, section) for section in self.sections),
            "_task_examples": FrozenMap((found.path, found) for found in self.task_examples),
            "_containers": FrozenMap((found.path, found) for found in self.containers),
            "_output_fields": FrozenMap((found.field, found) for found in self.output_fields),
        }
        for name, index in indexes.items():
            object.__setattr__(self, name, index)

    def section(self, path: SectionPath) -> SectionDescriptor | None:
        """Return the section at ``path``, or None."""
        return self._sections.get(path)

    def tool(self, name: str) -> ToolDescriptor | None:
        """Return the tool of that name, or None."""
        return self.tools_by_name.get(name)

    def tool_example(self, name: str, index: int) -> ToolCall | None:
        """Return the example of a tool at a position, or None."""
        tool = self.tools_by_name.get(name)
        if tool is None or type(index) is not int:  # True is an integer, but no position
            return None
        return tool.examples[index] if 0 <= index < len(tool.examples) else None

    def task_example(self, path: SectionPath) -> TaskExampleDescriptor | None:
        """Return the task example of the source at ``path``, or None."""
        return self._task_examples.get(path)

    def container(self, path: SectionPath) -> ContainerDescriptor | None:
        """Return the section that holds task examples at ``path``, or None."""
        return self._containers.get(path)

    def output_field(self, field: str) -> OutputFieldDescriptor | None:
        """Return the field of the answer, or None."""
        return self._output_fields.get(field)
