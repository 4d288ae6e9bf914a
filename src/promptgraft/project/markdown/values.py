"""Types that are written in YAML: of parameters, results and answers.

They become ordinary attrs classes, lists and choices, so that everything that is asked of types
written in Python is asked of them too.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import attrs

from promptgraft.errors import DataFormatError, PromptDefinitionError
from promptgraft.frozenmap import FrozenMap
from promptgraft.prompt.fields import Described
from promptgraft.prompt.schema import schema_of
from promptgraft.serde import Json, did_you_mean, shown
from promptgraft.strict import structure
from promptgraft.strict.checks import ANYTHING, TEXT, Kind
from promptgraft.strict.kinds import listed, named, record_of
from promptgraft.strict.nodes import Node

_SCALARS: Mapping[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool}
_OBJECT = "object"
_LIST_OF = "list of "
_LISTS = re.compile(rf"\A({_LIST_OF})+")
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


@attrs.frozen(kw_only=True)
class Value:
    """What a field holds.

    Attributes:
        type: ``string``, ``integer``, ``number``, ``boolean`` or ``object``, with ``list of``
            before it as often as needed; empty where choices or fields say it.
        choices: what may be chosen, with what each option means, or an empty text.
        fields: the fields of an object, by name.
        optional: whether it may be left out, and is None then.
        name: the name of an object's class.
    """

    type: str = ""
    description: str = ""
    choices: Mapping[str, str] = attrs.field(factory=FrozenMap[str, str])
    fields: Mapping[str, Value] | None = None
    optional: bool = False
    default: Json = None
    aliases: tuple[str, ...] = ()
    name: str = ""


def _read_type(node: Node) -> str | None:
    base = _LISTS.sub("", node.value) if isinstance(node.value, str) else ""
    if base in _SCALARS or base == _OBJECT:
        return str(node.value)
    known = [*_SCALARS, _OBJECT]
    node.expected(f"{', '.join(known)}, or `list of` one of them{did_you_mean(base, known)}")
    return None


def _read_options(node: Node) -> Mapping[str, str] | None:
    value = node.value
    if isinstance(value, dict) and value:
        said = {option: "" if text is None else text for option, text in value.items()}
        texts = {option: text for option, text in said.items() if isinstance(text, str)}
        if len(texts) < len(said):
            node.fault("expected a text for what each option means")
            return None
        return FrozenMap(texts)
    if isinstance(value, list) and value and all(isinstance(one, str) and one for one in value):
        names = [str(one) for one in value]
        for name in dict.fromkeys(one for one in names if names.count(one) > 1):
            node.fault(f"the option {shown(name)} stands in it twice")
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
SHAPE: Kind[Value] = record_of(
    Value, skip=("description", "optional", "default", "aliases"), special=_SPECIAL
)
OUTPUT: Kind[Value] = record_of(
    Value, skip=("type", "optional", "default", "aliases"), special=_SPECIAL
)


def class_of(fields: Mapping[str, Value], name: str, node: Node) -> type | None:
    """Return an attrs class with these fields; faults are noted at ``node``, and None returned."""
    made: dict[str, Any] = {}
    for field, value in fields.items():
        here = node.member(field)
        check_name(field, here)
        kind = kind_of(value, nested_name(name, field), here)
        if kind is not None:
            made[field] = _attribute(value, kind, here)
    if not node.is_right():
        return None
    made_class: type = attrs.make_class(name, made, frozen=True, kw_only=True)
    try:
        schema_of(made_class)
    except PromptDefinitionError as error:
        node.fault(str(error))
        return None
    return made_class


def check_name(name: str, node: Node) -> None:
    """Note it at ``node`` if Python cannot name a field or a class so."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name == "self":
        node.fault(
            "expected a name that Python can use: letters, digits and `_`, beginning with a "
            f"letter, found {shown(name)}"
        )


def described(value: Value) -> Described:
    """Return the description of a value for models."""
    meanings = {option: meaning for option, meaning in value.choices.items() if meaning}
    return Described(value.description, aliases=value.aliases, values=meanings)


def _attribute(value: Value, kind: Any, node: Node) -> Any:
    wanted = kind | None if value.optional else kind
    default: object = attrs.NOTHING
    if value.default is not None:
        default = fitting(value.default, wanted, node.member("default"))
    elif value.optional:
        default = None
    return attrs.field(type=applied(Annotated, (wanted, described(value))), default=default)


def kind_of(value: Value, name: str, node: Node) -> Any:
    """Return the type of a value; faults are noted, and None returned."""
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
            node.member("type").fault(
                f"expected string or list of string with choices, found `{base}`"
            )
        return applied(Literal, tuple(value.choices))
    if value.fields is not None:
        if base not in {"", _OBJECT}:
            node.member("type").fault(
                f"expected object or list of object with fields, found `{base}`"
            )
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
    """Return plain data as a value of a type; faults are noted at ``node``, and None returned."""
    try:
        return structure(value, kind, where="")
    except DataFormatError as error:
        for fault in error.faults:
            node.fault(fault.removeprefix(": ").removesuffix(" @ $"))
        return None


def applied(form: Any, arguments: tuple[Any, ...]) -> Any:
    """Return a generic type with these arguments, which are only known at run time."""
    return form[arguments]


def nested_name(owner: str, field: str) -> str:
    """Return the name of the class that is the type of a field, unless it has one of its own."""
    return f"{owner}{camel(field)}"


def camel(name: str) -> str:
    """Return a name as part of the name of a class: ``find_user`` is ``FindUser``."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^a-zA-Z0-9]+", name))
