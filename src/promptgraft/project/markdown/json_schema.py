"""Types that are written as JSON Schema, as programs that call models have them already.

They become the same attrs classes, choices and lists as types in the form of :mod:`values`, so
that the same checks and overrides apply. Keywords that no Python type has a place for, such as
``maxLength`` or ``pattern``, are shown to models as they are written; answers are not checked
against them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from functools import reduce
from types import NoneType
from typing import Annotated, Any, Literal

import attrs

from promptgraft.ground.serde import Json
from promptgraft.ground.strict.nodes import Node
from promptgraft.project.markdown.classes import (
    applied,
    check_name,
    fitting,
    made_class,
    nested_name,
)
from promptgraft.prompt.fields import Described, fields_of, options_of

_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": NoneType,
}
_VARIANTS = ("anyOf", "oneOf", "allOf")
_MARKS = frozenset(["properties", "enum", "const", "items", "$ref", "$schema", *_VARIANTS])
"""Keys that types in the form of this project never have."""
_FOREIGN_TYPES = frozenset(["array", "null"])
_UNREAD = (
    "patternProperties",
    "prefixItems",
    "not",
    "if",
    "dependentSchemas",
    "dependentRequired",
    "unevaluatedProperties",
)
_SHOWN = (
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "examples",
)
_MEND = "write the type in Python (`file.py:NAME`)"


@attrs.frozen
class SchemaType:
    """The type that a JSON Schema describes, and how values of it are described to models."""

    kind: Any = attrs.field(hash=False)
    described: Described


def is_schema(value: Json) -> bool:
    """Tell whether a type is written as JSON Schema."""
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    is_foreign = (
        isinstance(kind, list) or kind in _FOREIGN_TYPES or not value.keys().isdisjoint(_MARKS)
    )
    return is_foreign or _inner(value) is not None


def is_object_schema(value: Json) -> bool:
    """Tell whether the parameters of a tool are written as JSON Schema.

    In the form of this project each member is a parameter, which may be called ``type``.
    """
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def read_schema(node: Node, name: str) -> SchemaType | None:
    """Return the type of a schema; None, with faults noted, if there are any.

    ``name`` is that of its class unless the schema, or what APIs wrap it in, has another.
    """
    root = unwrapped(node)
    kind = _SchemaReader(root).kind(root, class_name(node, name))
    if not node.is_right():
        return None
    described = _described(root, root) if options_of(kind) else Described()
    if described == Described() and not fields_of(kind) and "description" in root.members():
        root.member("description").fault(
            "expected a description only of a choice or an object; say it in the prompt"
        )
        return None
    return SchemaType(kind, described)


def unwrapped(node: Node) -> Node:
    """Return the schema inside of what APIs wrap it in: ``{name: ..., schema: {...}}``."""
    while (key := _inner(node.value)) is not None:
        node = node.member(key)
    return node


def class_name(node: Node, name: str) -> str:
    """Return the name of the class of a schema: its own if Python can use it, else ``name``."""
    while (key := _inner(node.value)) is not None:
        name = _identifier(node.member("name").value, name)
        node = node.member(key)
    return _identifier(node.member("title").value, name)


def schema_fields(node: Node, name: str) -> Iterator[tuple[str, Node]]:
    """Yield the key of each field below a schema, ``Review.mark``, and where it is written."""
    root = unwrapped(node)
    yield from _fields_below(root, class_name(node, name), root)


def _fields_below(node: Node, name: str, root: Node) -> Iterator[tuple[str, Node]]:
    for field, member in _object_of(node, root).member("properties").members().items():
        yield f"{name}.{field}", member
        yield from _fields_below(member, nested_name(name, field), root)


def _object_of(node: Node, root: Node) -> Node:
    """Return the schema of the object that a value is, or may be, or is a list of."""
    inside = [
        *([_pointed(root, node)] if "$ref" in node.members() else []),
        *(variant for key in _VARIANTS for variant in node.member(key).items()),
        *([node.member("items")] if "items" in node.members() else []),
    ]
    objects = (_object_of(inner, root) for inner in inside if inner is not None)
    return next((found for found in objects if "properties" in found.members()), node)


@attrs.frozen
class _SchemaReader:
    """Reads the types of a schema; ``root`` is what its references begin at."""

    root: Node

    def kind(self, node: Node, name: str, above: tuple[Json, ...] = ()) -> Any:
        """Return the Python type of a value; None, with faults noted, if there are any.

        ``above`` has the references that were followed.
        """
        value = node.value
        if value is True:
            return Any
        if not isinstance(value, dict):
            node.expected("a JSON Schema")
            return None
        if unread := next((key for key in _UNREAD if key in value), ""):
            node.member(unread).fault(f"a type of Python cannot say this; {_MEND}")
            return None
        if "$ref" in value:
            return self.referred(node, name, above)
        if "enum" in value or "const" in value:
            return _choice(node)
        for key in _VARIANTS:
            if key in value:
                return self.any_of(node.member(key), name, above)
        if types := node.member("type").items():
            alternatives = [
                attrs.evolve(node, value={**value, "type": each.value}) for each in types
            ]
            return self.united(alternatives, name, above)
        kind = self.of_type(node, name, above)
        noted = {key: value[key] for key in _SHOWN if key in value}
        return _with_keywords(kind, noted) if noted else kind

    def referred(self, node: Node, name: str, above: tuple[Json, ...]) -> Any:
        place = node.member("$ref")
        if place.value in above:
            place.fault(f"a type that holds itself cannot be read; {_MEND}")
            return None
        target = _pointed(self.root, node)
        if target is None:
            place.expected("a reference to a part of this schema, such as `#/$defs/NAME`")
            return None
        return self.kind(target, name, (*above, place.value))

    def any_of(self, node: Node, name: str, above: tuple[Json, ...]) -> Any:
        """Return the union of the variants; of ``allOf``, which only wraps a type, the one."""
        variants = node.items()
        if not variants or (node.path[-1] == "allOf" and len(variants) > 1):
            node.fault(f"expected one schema, found {len(variants)}; {_MEND}")
            return None
        if all(isinstance(each.value, dict) and "const" in each.value for each in variants):
            return _literal([each.member("const").value for each in variants], node)
        return self.united(variants, name, above)

    def united(self, nodes: list[Node], name: str, above: tuple[Json, ...]) -> Any:
        kinds = [self.kind(each, name, above) for each in nodes]
        if any(kind is None for kind in kinds):
            return None
        return reduce(operator.or_, kinds)

    def of_type(self, node: Node, name: str, above: tuple[Json, ...]) -> Any:
        """Return the type of a value whose schema has at most one ``type``."""
        kind = node.member("type").value
        if kind == "array" or (kind is None and "items" in node.members()):
            items = node.member("items")
            item = Any if items.value is None else self.kind(items, name, above)
            return None if item is None else applied(tuple, (item, ...))
        if "properties" in node.members():
            return self.class_of(node, name, above)
        if kind == "object":
            values = node.member("additionalProperties")
            is_open = values.value in (None, True, False)
            value = Any if is_open else self.kind(values, name, above)
            return None if value is None else applied(dict, (str, value))
        if kind is None:
            return Any
        if kind not in _TYPES:
            node.member("type").expected(f"{', '.join(_TYPES)}, array or object")
            return None
        return _TYPES[str(kind)]

    def class_of(self, node: Node, name: str, above: tuple[Json, ...]) -> type | None:
        """Return the class of an object; fields that it may lack are None by default."""
        required = node.member("required").value
        attributes: dict[str, Any] = {}
        for field, member in node.member("properties").members().items():
            check_name(field, member)
            kind = self.kind(member, nested_name(name, field), above)
            if kind is not None:
                is_needed = isinstance(required, list) and field in required
                attributes[field] = self.attribute(member, kind, is_needed=is_needed)
        # What is said of a field is shown beside the field.
        is_field = node.path[-2:-1] == ("properties",)
        about = None if is_field else node.member("description").value
        return made_class(attributes, name, node, about=about if isinstance(about, str) else "")

    def attribute(self, node: Node, kind: Any, *, is_needed: bool) -> Any:
        default: object = attrs.NOTHING
        if node.member("default").value is not None:
            default = fitting(node.member("default").value, kind, node.member("default"))
        elif not is_needed:
            kind, default = kind | None, None
        annotation = applied(Annotated, (kind, _described(node, self.root)))
        return attrs.field(type=annotation, default=default)


def _choice(node: Node) -> Any:
    options = node.member("enum").items() if "enum" in node.members() else [node.member("const")]
    return _literal([option.value for option in options], node)


def _literal(options: list[Json], node: Node) -> Any:
    """Return the type of one of several values; null is written beside them."""
    if not options or any(isinstance(option, (dict, list, float)) for option in options):
        node.fault("expected texts, whole numbers, true, false or null as options")
        return None
    named = tuple(dict.fromkeys(option for option in options if option is not None))
    kinds = [applied(Literal, named)] if named else []
    return reduce(operator.or_, [*kinds, *([NoneType] if None in options else [])])


def _with_keywords(kind: Any, keywords: dict[str, Json]) -> Any:
    from msgspec import Meta

    return None if kind is None else applied(Annotated, (kind, Meta(extra_json_schema=keywords)))


def _described(node: Node, root: Node) -> Described:
    """Return what a schema says of a value, or else the choice that it refers to.

    ``aliases``, and ``choices`` with the meaning of options, are what overrides may change beside
    the description; no validator of schemas minds them.
    """
    target = (_pointed(root, node) if "$ref" in node.members() else None) or node
    of_choice = target.member("description").value if "enum" in target.members() else None
    text = node.member("description").value or of_choice
    aliases = (alias.value for alias in node.member("aliases").items())
    meanings = {
        str(option.member("const").value): option.member("description").value
        for option in target.member("oneOf").items()
    } | {option: meaning.value for option, meaning in node.member("choices").members().items()}
    return Described(
        text if isinstance(text, str) else "",
        aliases=tuple(alias for alias in aliases if isinstance(alias, str)),
        values={name: said for name, said in meanings.items() if said and isinstance(said, str)},
    )


def _pointed(root: Node, node: Node) -> Node | None:
    """Return what the reference of a schema points at in the same schema; None if nothing."""
    reference = node.member("$ref").value
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    target = root
    for step in reference.removeprefix("#").split("/")[1:]:
        target = target.member(step.replace("~1", "/").replace("~0", "~"))
    return target if isinstance(target.value, dict) else None


def _inner(value: Json) -> str | None:
    """Return the key of the schema in what OpenAI's and other APIs wrap it in."""
    if not isinstance(value, dict) or "properties" in value:
        return None
    return next(
        (key for key in ("json_schema", "schema") if isinstance(value.get(key), dict)), None
    )


def _identifier(name: Json, otherwise: str) -> str:
    return name if isinstance(name, str) and name.isidentifier() else otherwise
