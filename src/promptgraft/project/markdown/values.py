"""Types, tools and worked examples that are written in YAML.

Types become ordinary attrs classes, tuples and literals, so that the checks of types written in
Python apply to them too.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import attrs

from promptgraft.errors import DataFormatError, PromptDefinitionError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import Json, did_you_mean, shown
from promptgraft.ground.strict import structure
from promptgraft.ground.strict.checks import ANYTHING, TEXT, Kind
from promptgraft.ground.strict.kinds import checked, either, listed, named, record_of
from promptgraft.ground.strict.nodes import Node
from promptgraft.overrides.parts.validation import check_key
from promptgraft.project.python_source import FUNCTION, PythonSource
from promptgraft.prompt import TaskExample, TaskStep, Tool, ToolExample
from promptgraft.prompt.fields import Described
from promptgraft.prompt.schema import schema_of

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
        check_name(field, here)
        kind = kind_of(value, nested_name(name, field), here)
        if kind is not None:
            attributes[field] = _attribute(value, kind, here)
    if not node.is_right():
        return None
    made_class: type = attrs.make_class(name, attributes, frozen=True, kw_only=True)
    try:
        schema_of(made_class)
    except PromptDefinitionError as error:
        node.fault(str(error))
        return None
    return made_class


def described(value: Value) -> Described:
    """Return how a value is described to models."""
    meanings = {option: meaning for option, meaning in value.choices.items() if meaning}
    return Described(value.description, aliases=value.aliases, values=meanings)


def _attribute(value: Value, kind: Any, node: Node) -> Any:
    annotation = kind | None if value.optional else kind
    default: object = None if value.optional else attrs.NOTHING
    if value.default is not None:
        default = fitting(value.default, annotation, node.member("default"))
    return attrs.field(type=applied(Annotated, (annotation, described(value))), default=default)


def kind_of(value: Value, name: str, node: Node) -> Any:
    """Return the Python type of a value; None, with faults noted, if there are any."""
    base = value.type
    if base.startswith(_LIST_OF):
        inner = attrs.evolve(value, type=base.removeprefix(_LIST_OF))
        item = kind_of(inner, name, node)
        return None if item is None else applied(tuple, (item, ...))
    if value.choices and value.fields is not None:
        node.fault("expected `choices` or `fields`, found both")
        return None
    if value.choices:
        if base not in {"", "string"}:
            message = f"expected string or list of string with choices, found `{base}`"
            node.member("type").fault(message)
        return applied(Literal, tuple(value.choices))
    if value.fields is not None:
        if base not in {"", _OBJECT}:
            message = f"expected object or list of object with fields, found `{base}`"
            node.member("type").fault(message)
        if value.name:
            check_name(value.name, node.member("name"))
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


def fitting(value: Json, kind: Any, node: Node) -> Any:
    """Convert plain data to a type; None, with faults noted at ``node``, if there are any."""
    try:
        return structure(value, kind, where="")
    except DataFormatError as error:
        for fault in error.faults:
            node.fault(fault.removeprefix(": ").removesuffix(" @ $"))
        return None


def applied(form: Any, arguments: tuple[Any, ...]) -> Any:
    """Return a generic type with arguments that are only known at run time."""
    return form[arguments]


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
    result: Value = attrs.field(factory=lambda: Value(type="string"))
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
    """Return the tools of a list; those with faults are noted and left out."""
    tools: dict[str, AnyTool] = {}
    for node in nodes:
        entry = TOOL.read(node)
        if entry is not None and (tool := _tool(entry, node, python)) is not None:
            _add(tools, tool.name, tool, node.member("name"))
    return tuple(tools.values())


def _add(found: dict[str, T], name: str, item: T, node: Node) -> None:
    if found.setdefault(name, item) is not item:
        node.fault(f"`{name}` is already defined; use another {node.path[-1]}")


def _tool(entry: _ToolEntry, node: Node, python: PythonSource) -> AnyTool | None:
    name = camel(entry.name)
    params = class_of(entry.parameters, f"{name}Params", node.member("parameters"))
    result = kind_of(entry.result, f"{name}Result", node.member("result"))
    handler = python.read(node.member("handler"), FUNCTION) if entry.handler is not None else None
    if params is None or not node.is_right():
        return None
    examples = tuple(
        _tool_example(call, params, result, here)
        for call, here in zip(entry.examples, node.member("examples").items(), strict=True)
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


def _tool_example(call: _ParsedCall, params: Any, result: Any, node: Node) -> ToolExample[Any, Any]:
    # In YAML `none` is a text; a tool without parameters can mean only one thing by it.
    arguments = {} if call.input == "none" and not attrs.fields(params) else call.input
    return ToolExample(
        description=call.description,
        input=fitting(arguments, params, node.member("input")),
        output=fitting(call.output, result, node.member("output")),
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
    outcome = fitting(entry.outcome, outcome_type, node.member("outcome"))
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


_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


def check_name(name: str, node: Node) -> None:
    """Note a fault at ``node`` unless ``name`` is a valid Python name."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name == "self":
        node.fault(
            "expected a name that Python can use: letters, digits and `_`, beginning with a "
            f"letter, found {shown(name)}"
        )


def nested_name(owner: str, field: str) -> str:
    """Return the default name of the class of a field."""
    return f"{owner}{camel(field)}"


def camel(name: str) -> str:
    """Return a name in camel case: ``find_user`` becomes ``FindUser``."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^a-zA-Z0-9]+", name))
