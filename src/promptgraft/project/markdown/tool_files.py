"""Tools and worked examples that are written in YAML beside a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import attrs

from promptgraft.errors import PromptDefinitionError
from promptgraft.parts.validation import check_key
from promptgraft.project.markdown.python import Python
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
from promptgraft.project.python_source import Wanted
from promptgraft.prompt.task_examples import TaskExample, TaskStep
from promptgraft.prompt.tools import Tool, ToolExample
from promptgraft.serde import Json, did_you_mean
from promptgraft.strict.checks import ANYTHING, FLAG, TEXT, Kind
from promptgraft.strict.kinds import Key, checked, either, listed, record
from promptgraft.strict.nodes import Node

AnyTool = Tool[Any, Any]
T = TypeVar("T")

_HANDLER: Wanted[Callable[..., object]] = Wanted(
    what="handler",
    expected="a function",
    plural="functions",
    read=lambda value: value if callable(value) and not isinstance(value, type) else None,
)


@attrs.frozen(kw_only=True)
class _Call:
    """An example of a tool, as YAML has it."""

    description: str = ""
    input: Json = attrs.field(factory=dict)
    output: Json = None
    tool: str = ""


@attrs.frozen(kw_only=True)
class _ToolEntry:
    """A tool, as YAML has it."""

    name: str
    description: str
    parameters: Mapping[str, Value] = attrs.field(factory=dict)
    result: Value = attrs.field(factory=lambda: Value(type="string"))
    handler: str | None = None
    examples: tuple[_Call, ...] = ()
    frozen: bool = False


@attrs.frozen(kw_only=True)
class _ExampleEntry:
    """A worked example, as YAML has it."""

    key: str
    objective: str
    steps: tuple[_Call, ...] = ()
    outcome: Json
    frozen: bool = False


@attrs.frozen
class Entries:
    """What a file of tools or examples says.

    Attributes:
        section: the section that they belong to; empty for the usual one.
        items: the list.
    """

    section: str = ""
    items: tuple[Node, ...] = ()


def _said(node: Node) -> str | None:
    if isinstance(node.value, str):
        return node.value
    node.expected("a text")
    return None


def _list_of_nodes(node: Node) -> tuple[Node, ...] | None:
    if isinstance(node.value, list):
        return tuple(node.items())
    node.expected("a list")
    return None


_SAID: Kind[str] = Kind(_said, {"type": "string"})
_INPUT: Key[Json] = Key(ANYTHING, "the parameters")
_OUTPUT: Key[Json] = Key(ANYTHING, "what it returns for them")
_SHOWN: Key[str] = Key(_SAID, "when or why one makes this call")
_CALL: Kind[_Call] = record(_Call, {"description": _SHOWN, "input": _INPUT, "output": _OUTPUT})
_STEP: Kind[_Call] = record(
    _Call,
    {
        "tool": Key(TEXT, "the tool", required=True),
        "description": _SHOWN,
        "input": _INPUT,
        "output": _OUTPUT,
    },
)
_RESULT: Kind[Value] = either(
    "a type, or an object with `type`, `choices` or `fields`",
    (str, Kind(lambda node: Value(type=kind) if (kind := TYPE.read(node)) else None, TYPE.schema)),
    (dict, SHAPE),
)
TOOL: Kind[_ToolEntry] = record(
    _ToolEntry,
    {
        "name": Key(TEXT, "the name that the model calls it by", required=True),
        "description": Key(TEXT, "what it does and when to use it", required=True),
        "parameters": Key(FIELDS, "its parameters by name"),
        "result": Key(_RESULT, "what it returns; a text by default"),
        "handler": Key(TEXT, "the function: `file.py:NAME`"),
        "examples": Key(listed(_CALL), "calls that are shown to the model"),
        "frozen": Key(FLAG, "whether overrides are refused"),
    },
)
EXAMPLE: Kind[_ExampleEntry] = record(
    _ExampleEntry,
    {
        "key": Key(checked(TEXT, lambda key: check_key(key, "key")), "its key", required=True),
        "objective": Key(TEXT, "what is asked", required=True),
        "steps": Key(listed(_STEP), "the calls of tools, in order"),
        "outcome": Key(ANYTHING, "the answer", required=True),
        "frozen": Key(FLAG, "whether overrides are refused"),
    },
)


def entries_kind(name: str, about: str) -> Kind[Entries]:
    """Return the kind of files that hold a list under ``name``."""

    def make(section: str = "", **items: tuple[Node, ...]) -> Entries:
        return Entries(section, items.get(name, ()))

    items: Kind[tuple[Node, ...]] = Kind(_list_of_nodes, {"type": "array"})
    return record(
        make,
        {
            "section": Key(TEXT, "the section that they belong to, such as `guide/cases`"),
            name: Key(items, about, required=True),
        },
    )


def read_tools(nodes: tuple[Node, ...], python: Python) -> tuple[AnyTool, ...]:
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


def _tool(entry: _ToolEntry, node: Node, python: Python) -> AnyTool | None:
    name = camel(entry.name)
    params = class_of(entry.parameters, f"{name}Params", node.member("parameters"))
    result = kind_of(entry.result, f"{name}Result", node.member("result"))
    handler = None
    if entry.handler is not None:
        handler = python.load(entry.handler, _HANDLER, node.member("handler"))
    if params is None or not node.is_right():
        return None
    calls = node.member("examples").items()
    examples = tuple(
        _tool_example(call, params, result, here)
        for call, here in zip(entry.examples, calls, strict=True)
    )
    if not node.is_right():
        return None
    return _made(
        node,
        lambda: Tool(
            name=entry.name,
            description=entry.description,
            params_type=params,
            result_type=result,
            handler=handler,
            examples=examples,
            overridable=not entry.frozen,
        ),
    )


def _made(node: Node, make: Callable[[], T]) -> T | None:
    try:
        return make()
    except PromptDefinitionError as error:
        node.fault(str(error))
        return None


def _tool_example(call: _Call, params: Any, result: Any, node: Node) -> ToolExample[Any, Any]:
    return ToolExample(
        description=call.description,
        input=fitting(call.input, params, node.member("input")),
        output=fitting(call.output, result, node.member("output")),
    )


def read_examples(
    nodes: tuple[Node, ...], tools: tuple[AnyTool, ...], outcome_type: Any
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
