"""Types, tools and worked examples that are written in YAML.

Types become ordinary attrs classes, tuples and literals, so that the checks of types written in
Python apply to them too. Where a type stands, a JSON Schema may stand instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any, Literal, TypeVar

import attrs

from promptgraft.errors import PromptDefinitionError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.functions import call_fault
from promptgraft.ground.serde import Json, did_you_mean, shown, unstructure
from promptgraft.ground.strict.checks import ANYTHING, TEXT, Kind
from promptgraft.ground.strict.kinds import checked, either, listed, named, record_of
from promptgraft.ground.strict.nodes import Node
from promptgraft.overrides.parts.validation import check_key
from promptgraft.project.markdown import classes
from promptgraft.project.markdown.json_schema import (
    is_object_schema,
    is_schema,
    properties_of,
    read_schema,
)
from promptgraft.project.python_source import FUNCTION, PythonSource
from promptgraft.prompt import TaskExample, TaskStep, Tool, ToolExample
from promptgraft.prompt.fields import Described

T = TypeVar("T")

_SCALARS: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "date": date,
    "datetime": datetime,
}
_OBJECT = "object"
_LIST_OF = "list of "
_LISTS = re.compile(rf"\A({_LIST_OF})+")


@attrs.frozen(kw_only=True)
class Value:
    """The type of a field, parameter or answer.

    Attributes:
        type: ``string``, ``integer``, ``number``, ``boolean``, ``date``, ``datetime`` or
            ``object``, after any number of ``list of``; empty if choices or fields say it.
        choices: the options, each with its meaning, which may be empty.
        fields: the fields of an object, by name.
        optional: whether it may be left out, which means None.
        name: the name of an object's class.
    """

    type: str = ""
    description: str = ""
    choices: Mapping[str, str] = attrs.field(factory=FrozenMap[str, str])
    fields: Mapping[str, Value] | None = None
    optional: bool = False
    default: Json = attrs.field(default=None, hash=False)
    aliases: tuple[str, ...] = ()
    name: str = ""


def _read_type(node: Node) -> str | None:
    base = _LISTS.sub("", node.value) if isinstance(node.value, str) else ""
    if base in _SCALARS or base == _OBJECT:
        return str(node.value)
    types = [*_SCALARS, _OBJECT]
    node.expected(
        f"{', '.join(types)}, or a list, such as `list of object`{did_you_mean(base, types)}"
    )
    return None


def _read_options(node: Node) -> Mapping[str, str] | None:
    value = node.value
    if isinstance(value, dict) and value:
        options = {option: "" if text is None else text for option, text in value.items()}
        texts = {option: text for option, text in options.items() if isinstance(text, str)}
        if len(texts) < len(options):
            node.fault("expected a text for what each option means")
            return None
        return FrozenMap(texts)
    if (
        isinstance(value, list)
        and value
        and all(isinstance(option, str) and option for option in value)
    ):
        names = [str(option) for option in value]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            node.fault(f"the option {shown(name)} is listed twice")
        return FrozenMap((name, "") for name in names)
    items = [item for item in node.items() if not isinstance(item.value, (str, list, dict))]
    if items and items[0].value is not None:
        items[0].expected("a text; put it in quotes")
    else:
        node.expected("a list of texts, or an object that says what each option means")
    return None


def _read_fields(node: Node) -> dict[str, Value] | None:
    for name, value in node.value.items() if isinstance(node.value, dict) else ():
        if value is None:
            Node(value, (*node.path, name), node.source).expected("an object with `type`")
    return _NAMED_FIELDS.read(node)


TYPE: Kind[str] = Kind(_read_type)
FIELDS: Kind[dict[str, Value]] = Kind(_read_fields)
_SPECIAL: Mapping[str, Kind[object]] = {
    "type": TYPE,
    "description": TEXT,
    "choices": Kind(_read_options),
    "fields": FIELDS,
    "default": ANYTHING,
    "aliases": listed(TEXT),
    "name": TEXT,
}
_NAMED_FIELDS = named(record_of(Value, special=_SPECIAL), "an object with an object for each name")
_OF_FIELDS = ("optional", "default", "aliases")
SHAPE: Kind[Value] = record_of(Value, skip=("description", *_OF_FIELDS), special=_SPECIAL)
OUTPUT: Kind[Value] = record_of(Value, skip=("default", "aliases"), special=_SPECIAL)


def class_of(fields: Mapping[str, Value], name: str, node: Node) -> type | None:
    """Return an attrs class with these fields; None, with faults noted, if there are any."""
    attributes: dict[str, Any] = {}
    for field, value in fields.items():
        here = node.member(field)
        classes.check_name(field, here)
        kind = kind_of(value, classes.nested_name(name, field), here)
        if kind is not None:
            attributes[field] = _attribute(field, value, kind, here)
    return classes.made_class(attributes, name, node)


def described(value: Value) -> Described:
    """Return how a value is described to models."""
    meanings = {option: meaning for option, meaning in value.choices.items() if meaning}
    return Described(value.description, aliases=value.aliases, values=meanings)


def _attribute(name: str, value: Value, kind: Any, node: Node) -> Any:
    annotation = kind | None if value.optional else kind
    default: object = None if value.optional else attrs.NOTHING
    if value.default is not None:
        default = classes.fitting(value.default, annotation, node.member("default"))
    return classes.attribute(name, annotation, described(value), default)


def kind_of(value: Value, name: str, node: Node) -> Any:
    """Return the Python type of a value; None, with faults noted, if there are any."""
    base = value.type
    if base.startswith(_LIST_OF):
        inner = attrs.evolve(value, type=base.removeprefix(_LIST_OF))
        item = kind_of(inner, name, node)
        return None if item is None else classes.applied(tuple, (item, ...))
    if value.choices and value.fields is not None:
        node.fault("expected `choices` or `fields`, found both")
        return None
    if value.choices:
        if base not in {"", "string"}:
            message = f"expected string or list of string with choices, found `{base}`"
            node.member("type").fault(message)
        return classes.applied(Literal, tuple(value.choices))
    if value.fields is not None:
        if base not in {"", _OBJECT}:
            message = f"expected object or list of object with fields, found `{base}`"
            node.member("type").fault(message)
        if value.name:
            classes.check_class_name(value.name, node.member("name"))
        return class_of(value.fields, value.name or name, node.member("fields"))
    if value.name:
        node.member("name").fault("expected the name of an object's class only beside `fields`")
    if base == _OBJECT:
        node.fault("expected the key `fields` (the fields of the object)")
        return None
    if not base:
        node.fault("expected the key `type`, `choices` or `fields`")
        return None
    return _SCALARS[base]


AnyTool = Tool[Any, Any]


@attrs.frozen(kw_only=True)
class _ParsedCall:
    """A call in an example, as written in YAML.

    Attributes:
        tool: the tool.
    """

    tool: str
    description: str = ""
    input: Json = attrs.field(factory=dict, hash=False)
    output: Json = attrs.field(default=None, hash=False)


@attrs.frozen(kw_only=True)
class _ToolEntry:
    """A tool, as written in YAML.

    Attributes:
        name: the name that the model calls it by.
        description: what it does and when to use it.
    """

    name: str
    description: str
    parameters: Mapping[str, Value] = attrs.field(factory=dict)
    result: Value | None = None
    handler: str | None = None
    examples: tuple[_ParsedCall, ...] = ()
    frozen: bool = False


@attrs.frozen(kw_only=True)
class _ExampleEntry:
    """A worked example, as written in YAML.

    Attributes:
        key: its key.
        objective: what is asked.
        outcome: the answer.
    """

    key: str
    objective: str
    steps: tuple[_ParsedCall, ...] = ()
    outcome: Json = attrs.field(hash=False)
    frozen: bool = False
    hidden: bool = False


def _type_alone(node: Node) -> Value | None:
    kind = TYPE.read(node)
    return None if kind is None else Value(type=kind)


_CALL_KEYS: Mapping[str, Kind[object]] = {"tool": TEXT, "input": ANYTHING, "output": ANYTHING}
_STEP: Kind[_ParsedCall] = record_of(_ParsedCall, special=_CALL_KEYS)
_CALL: Kind[_ParsedCall] = record_of(
    _ParsedCall, make=partial(_ParsedCall, tool=""), skip=("tool",), special=_CALL_KEYS
)
_RESULT: Kind[Value] = either(
    "a type, or an object with `type`, `choices` or `fields`",
    (str, Kind(_type_alone)),
    (dict, SHAPE),
)
_TEXT = Value(type="string")
_PARAMETERS = ("parameters", "input_schema", "inputSchema")
_RESULTS = ("result", "output_schema", "outputSchema")
_AROUND = {"type", "function"}
_FOREIGN_KEYS = (
    *_PARAMETERS[1:],
    *_RESULTS[1:],
    "type",
    "strict",
    "title",
    "annotations",
    "cache_control",
    "execution",
    "icons",
    "_meta",
    "meta",
)
TOOL: Kind[_ToolEntry] = record_of(
    _ToolEntry,
    special={
        "name": TEXT,
        "description": TEXT,
        "parameters": Kind(lambda node: {} if is_object_schema(node.value) else FIELDS.read(node)),
        "result": Kind(lambda node: _TEXT if is_schema(node.value) else _RESULT.read(node)),
        "handler": TEXT,
        "examples": listed(_CALL),
    },
    left_out=_FOREIGN_KEYS,
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


@attrs.frozen
class ToolPlaces:
    """Where a tool is described: in the form of this project, of OpenAI, Anthropic or MCP.

    Attributes:
        entry: the object with its name and description.
        parameters: the types of its parameters.
        result: the type of its result.
    """

    entry: Node
    parameters: Node
    result: Node

    @classmethod
    def of(cls, node: Node) -> ToolPlaces:
        """Return the places of an item of a list of tools."""
        inner = node.member("function")
        entry = inner if isinstance(inner.value, dict) else node

        def first(keys: Sequence[str]) -> Node:
            return entry.member(next((key for key in keys if key in entry.members()), keys[0]))

        return cls(entry, first(_PARAMETERS), first(_RESULTS))

    def parameter(self, name: str) -> Node:
        """Return where a parameter is described."""
        node = self.parameters
        return (properties_of(node) if self.has_schema else node).member(name)

    @property
    def has_schema(self) -> bool:
        """Whether the parameters are written as JSON Schema."""
        return self.parameters.path[-1] != _PARAMETERS[0] or is_object_schema(self.parameters.value)


@attrs.frozen
class Handlers:
    """Where the functions of tools are found.

    Attributes:
        python: loads the function that a tool names as its ``handler``.
        module: names the file or module with the functions of the other tools; it may be null.
    """

    python: PythonSource
    module: Node

    def of(self, name: str, node: Node, params: Any) -> Callable[[Any], object] | None:
        """Return the function of the tool at ``node``; None if there is none, or it has a fault."""
        if "handler" in node.members():
            return self.python.read(node.member("handler"), FUNCTION)
        if self.module.value is None:
            return None
        spec = f"{self.module.value}:{name.replace('-', '_')}"
        function = self.python.read(attrs.evolve(self.module, value=spec), FUNCTION)
        if function is None:
            return None
        if fault := call_fault(function, named=[field.alias for field in attrs.fields(params)]):
            self.module.fault(f"tool `{name}`: {fault}")
        return _ByName(function)


@attrs.frozen
class _ByName:
    """Calls a function with the parameters that a model has given, by name and as plain data."""

    function: Callable[..., object]

    def __call__(self, params: attrs.AttrsInstance) -> object:
        arguments = {
            field.alias: unstructure(getattr(params, field.name))
            for field in attrs.fields(type(params))
            if not (field.default is None and getattr(params, field.name) is None)
        }
        return self.function(**arguments)


def read_tools(nodes: Sequence[Node], handlers: Handlers) -> tuple[AnyTool, ...]:
    """Return the tools of a list; those with faults are noted and left out."""
    tools: dict[str, AnyTool] = {}
    for node in nodes:
        places = ToolPlaces.of(node)
        for key in sorted(node.members().keys() - _AROUND) if places.entry is not node else ():
            node.member(key).fault("unknown key here; write it into `function`, beside the name")
        entry = TOOL.read(places.entry)
        tool = None if entry is None else _tool(entry, places, handlers)
        if tool is not None:
            _add(tools, tool.name, tool, places.entry.member("name"))
    return tuple(tools.values())


def _add(items: dict[str, T], name: str, item: T, node: Node) -> None:
    if items.setdefault(name, item) is not item:
        node.fault(f"`{name}` is already defined; use another {node.path[-1]}")


def _tool(entry: _ToolEntry, places: ToolPlaces, handlers: Handlers) -> AnyTool | None:
    node = places.entry
    params = _params(entry, places)
    result = _result(entry, places)
    if params is None or not node.is_right():
        return None
    handler = handlers.of(entry.name, node, params)
    examples = tuple(
        _tool_example(call, params, result, here)
        for call, here in zip(entry.examples, node.member("examples").items(), strict=True)
    )
    if not node.is_right() or not handlers.module.is_right():
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


def _params(entry: _ToolEntry, places: ToolPlaces) -> type | None:
    """Return the class of a tool's parameters; None, with faults noted, if there are any."""
    node, name = places.parameters, f"{classes.camel(entry.name)}Params"
    if not places.has_schema:
        return class_of(entry.parameters, name, node)
    if (
        isinstance(node.value, dict)
        and str(node.value.get("type", _OBJECT)).lower() == _OBJECT
        and "$ref" not in node.value
    ):
        node = attrs.evolve(node, value={"properties": {}, **node.value})
    schema = read_schema(node, name)
    if schema is not None and not attrs.has(schema.kind):
        node.expected("an object with `properties`")
    return None if schema is None else schema.kind


def _result(entry: _ToolEntry, places: ToolPlaces) -> Any:
    """Return the type of a tool's result; tools of APIs and MCP need not declare one."""
    node, name = places.result, f"{classes.camel(entry.name)}Result"
    if is_schema(node.value) or node.path[-1] != _RESULTS[0]:
        schema = read_schema(node, name)
        return None if schema is None else schema.kind
    if entry.result is None and places.has_schema:
        return Any
    return kind_of(entry.result or _TEXT, name, node)


def _tool_example(call: _ParsedCall, params: Any, result: Any, node: Node) -> ToolExample[Any, Any]:
    # In YAML `none` is a text; a tool without parameters can mean only one thing by it.
    arguments = {} if call.input == "none" and not attrs.fields(params) else call.input
    return ToolExample(
        description=call.description,
        input=classes.fitting(arguments, params, node.member("input")),
        output=classes.fitting(call.output, result, node.member("output")),
    )


def read_examples(
    nodes: Sequence[Node], tools: tuple[AnyTool, ...], outcome_type: Any
) -> tuple[TaskExample, ...]:
    """Return the worked examples of a list; those with faults are noted and left out."""
    by_name = {tool.name: tool for tool in tools}
    examples: dict[str, TaskExample] = {}
    for node in nodes:
        entry = EXAMPLE.read(node)
        example = None if entry is None else _example(entry, node, by_name, outcome_type)
        if example is not None:
            _add(examples, example.key, example, node.member("key"))
    return tuple(examples.values())


def _example(
    entry: _ExampleEntry, node: Node, tools: Mapping[str, AnyTool], outcome_type: Any
) -> TaskExample | None:
    steps = tuple(_steps(entry, node.member("steps"), tools))
    outcome = classes.fitting(entry.outcome, outcome_type, node.member("outcome"))
    if not node.is_right():
        return None
    return TaskExample(
        key=entry.key,
        objective=entry.objective,
        steps=steps,
        outcome=outcome,
        overridable=not entry.frozen,
        hidden=entry.hidden,
    )


def _steps(entry: _ExampleEntry, node: Node, tools: Mapping[str, AnyTool]) -> Iterator[TaskStep]:
    for call, here in zip(entry.steps, node.items() if entry.steps else (), strict=True):
        tool = tools.get(call.tool)
        if tool is None:
            names = ", ".join(f"`{name}`" for name in tools) or "none"
            here.member("tool").fault(
                f"there is no tool `{call.tool}`{did_you_mean(call.tool, list(tools))}; "
                f"tools: {names}"
            )
        else:
            example = _tool_example(call, tool.params_type, tool.result_type, here)
            yield TaskStep(tool_name=call.tool, example=example)
