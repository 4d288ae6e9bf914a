"""Tools and worked examples that are written in YAML beside a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from promptgraft.errors import PromptDefinitionError
from promptgraft.parts.validation import check_key
from promptgraft.project.markdown.values import (
    FIELDS,
    SHAPE,
    TYPE,
    Value,
    camel,
    class_of,
    fitting,
    kind_of,
)
from promptgraft.project.python_source import PythonSource, a_function
from promptgraft.prompt import TaskExample, TaskStep, Tool, ToolExample
from promptgraft.serde import Json, did_you_mean
from promptgraft.strict.checks import ANYTHING, TEXT, Kind
from promptgraft.strict.kinds import checked, either, listed, record_of
from promptgraft.strict.nodes import Node

AnyTool = Tool[Any, Any]


@attrs.frozen(kw_only=True)
class _Call:
    """An example of a tool, as YAML has it.

    Attributes:
        tool: the tool.
    """

    tool: str
    description: str = ""
    input: Json = attrs.field(factory=dict)
    output: Json = None


@attrs.frozen(kw_only=True)
class _ToolEntry:
    """A tool, as YAML has it.

    Attributes:
        name: the name that the model calls it by.
        description: what it does and when to use it.
    """

    name: str
    description: str
    parameters: Mapping[str, Value] = attrs.field(factory=dict)
    result: Value = attrs.field(factory=lambda: Value(type="string"))
    handler: str | None = None
    examples: tuple[_Call, ...] = ()
    frozen: bool = False


@attrs.frozen(kw_only=True)
class _ExampleEntry:
    """A worked example, as YAML has it.

    Attributes:
        key: its key.
        objective: what is asked.
        outcome: the answer.
    """

    key: str
    objective: str
    steps: tuple[_Call, ...] = ()
    outcome: Json
    frozen: bool = False


def _type_alone(node: Node) -> Value | None:
    kind = TYPE.read(node)
    return None if kind is None else Value(type=kind)


_SPECIAL: Mapping[str, Kind[object]] = {"tool": TEXT, "input": ANYTHING, "output": ANYTHING}
_STEP: Kind[_Call] = record_of(_Call, special=_SPECIAL)
_CALL: Kind[_Call] = record_of(
    _Call, make=partial(_Call, tool=""), skip=("tool",), special=_SPECIAL
)
_RESULT: Kind[Value] = either(
    "a type, or an object with `type`, `choices` or `fields`",
    (str, Kind(_type_alone)),
    (dict, SHAPE),
)
TOOL: Kind[_ToolEntry] = record_of(
    _ToolEntry,
    special={
        "name": TEXT,
        "description": TEXT,
        "parameters": FIELDS,
        "result": _RESULT,
        "handler": TEXT,
        "examples": listed(_CALL),
    },
)
EXAMPLE: Kind[_ExampleEntry] = record_of(
    _ExampleEntry,
    special={
        "key": checked(TEXT, lambda key: check_key(key, "key")),
        "objective": TEXT,
        "steps": listed(_STEP),
        "outcome": ANYTHING,
    },
)


def read_tools(nodes: Sequence[Node], python: PythonSource) -> tuple[AnyTool, ...]:
    """Return the tools of a list; faults are noted, and tools with faults left out."""
    found: dict[str, AnyTool] = {}
    for node in nodes:
        entry = TOOL.read(node)
        tool = None if entry is None else _tool(entry, node, python)
        if tool is not None and _first(tool.name, found, node, "name"):
            found[tool.name] = tool
    return tuple(found.values())


def _first(name: str, found: Mapping[str, object], node: Node, key: str) -> bool:
    if name in found:
        node.member(key).fault(f"`{name}` is there already; use another {key}")
    return name not in found


def _tool(entry: _ToolEntry, node: Node, python: PythonSource) -> AnyTool | None:
    name = camel(entry.name)
    params = class_of(entry.parameters, f"{name}Params", node.member("parameters"))
    result = kind_of(entry.result, f"{name}Result", node.member("result"))
    handler = None
    if entry.handler is not None:
        handler = python.read(node.member("handler"), a_function("handler"))
    if params is None or not node.is_right():
        return None
    calls = node.member("examples").items()
    examples = tuple(
        _tool_example(call, params, result, here)
        for call, here in zip(entry.examples, calls, strict=True)
    )
    if not node.is_right():
        return None
    try:
        return Tool(
            name=entry.name,
            description=entry.description,
            params_type=params,
            result_type=result,
            handler=handler,
            examples=examples,
            overridable=not entry.frozen,
        )
    except PromptDefinitionError as error:
        node.fault(str(error))
        return None


def _tool_example(call: _Call, params: Any, result: Any, node: Node) -> ToolExample[Any, Any]:
    # In YAML `none` is a text; a tool without parameters can mean only one thing by it.
    given = {} if call.input == "none" and not attrs.fields(params) else call.input
    return ToolExample(
        description=call.description,
        input=fitting(given, params, node.member("input")),
        output=fitting(call.output, result, node.member("output")),
    )


def read_examples(
    nodes: Sequence[Node], tools: tuple[AnyTool, ...], outcome_type: Any
) -> tuple[TaskExample, ...]:
    """Return the worked examples of a list; faults are noted, and examples with faults left out."""
    by_name = {tool.name: tool for tool in tools}
    found: dict[str, TaskExample] = {}
    for node in nodes:
        entry = EXAMPLE.read(node)
        example = None if entry is None else _example(entry, node, by_name, outcome_type)
        if example is not None and _first(example.key, found, node, "key"):
            found[example.key] = example
    return tuple(found.values())


def _example(
    entry: _ExampleEntry, node: Node, tools: Mapping[str, AnyTool], outcome_type: Any
) -> TaskExample | None:
    steps = tuple(_steps(entry, node.member("steps"), tools))
    outcome = fitting(entry.outcome, outcome_type, node.member("outcome"))
    if not node.is_right():
        return None
    return TaskExample(
        key=entry.key,
        objective=entry.objective,
        steps=steps,
        outcome=outcome,
        overridable=not entry.frozen,
    )


def _steps(entry: _ExampleEntry, node: Node, tools: Mapping[str, AnyTool]) -> Iterator[TaskStep]:
    for call, here in zip(entry.steps, node.items() if entry.steps else (), strict=True):
        tool = tools.get(call.tool)
        if tool is None:
            known = ", ".join(f"`{name}`" for name in tools) or "none"
            here.member("tool").fault(
                f"there is no tool `{call.tool}`{did_you_mean(call.tool, list(tools))}; "
                f"tools: {known}"
            )
        else:
            example = _tool_example(call, tool.params_type, tool.result_type, here)
            yield TaskStep(tool_name=call.tool, example=example)
