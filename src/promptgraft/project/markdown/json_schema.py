"""Types that are written as JSON Schema, as programs that call models have them already.

They become the same attrs classes, choices and lists as types in the form of :mod:`values`, so
that the same checks and overrides apply. Keywords that no Python type has a place for, such as
``maxLength`` or ``pattern``, are shown to models as they are written; answers are not checked
against them.
"""

from __future__ import annotations

import itertools
import json
import operator
from collections.abc import Iterator, Mapping
from functools import reduce
from types import NoneType
from typing import Annotated, Any, Literal
from urllib.parse import unquote

import attrs

from promptgraft.ground.serde import Json, shown
from promptgraft.ground.strict.nodes import Node
from promptgraft.ground.yaml_text import YamlPath
from promptgraft.project.markdown.classes import (
    applied,
    attribute,
    check_name,
    fitting,
    made_class,
    nested_name,
)
from promptgraft.prompt.fields import Described, fields_of, options_of, without_annotation

_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": NoneType,
}
_VARIANTS = ("anyOf", "oneOf", "allOf")
_OBJECT = ("properties", "additionalProperties")
_HEADS = ("$ref", "enum", *_VARIANTS, "properties", "items")
"""Keywords of which a type has at most one."""
_MARKS = frozenset([*_HEADS, *_OBJECT, "const", "format", "$schema", "$defs"])
"""Keys that types in the form of this project never have."""
_FOREIGN_TYPES = frozenset(["array", "null"])
_UNREAD = (
    "patternProperties",
    "prefixItems",
    "not",
    "if",
    "dependencies",
    "dependentSchemas",
    "dependentRequired",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
)
_DEFINITIONS = ("$defs", "definitions", "schemas")
_READ = frozenset(
    [
        *_HEADS,
        *_OBJECT,
        *_DEFINITIONS,
        "type",
        "const",
        "required",
        "nullable",
        "propertyOrdering",
        "title",
        "description",
        "default",
        "aliases",
        "choices",
        # Keys that are of no use to models.
        "components",
        "discriminator",
        "$schema",
        "$id",
        "$anchor",
        "$comment",
    ]
)
"""All other keywords are shown to models as they are written."""
_DEEPEST = 50
_MOST = 10_000
_TOO_LARGE = 2**63
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
    bare = without_annotation(kind)
    if bare is not kind and (bare is str or fields_of(bare) or options_of(bare)):
        for key in sorted(root.members().keys() - _READ):
            root.member(key).fault("an answer as a whole cannot have this; say it in the prompt")
        kind = bare
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
        about, node = node.member("description").value, node.member(key)
        if about is not None and isinstance(node.value, dict):
            node = attrs.evolve(node, value={"description": about, **node.value})
    return node


def class_name(node: Node, name: str) -> str:
    """Return the name of the class of a schema: its own if Python can use it, else ``name``."""
    while (key := _inner(node.value)) is not None:
        name = _identifier(node.member("name").value, name)
        node = node.member(key)
    return _identifier(node.member("title").value, name)


def properties_of(node: Node) -> Node:
    """Return where the properties of an object's schema are written."""
    root = node = unwrapped(node)
    while (target := _pointed(root, node)) is not None:
        node = target
    return node.member("properties")


def schema_fields(node: Node, name: str) -> Iterator[tuple[str, Node]]:
    """Yield the key of each field below a schema, ``Review.mark``, and where it is written."""
    root = unwrapped(node)
    reader = _SchemaReader(root)
    reader.kind(root, class_name(node, name))
    for place, kind in reader.classes.values():
        for field, member in place.member("properties").members().items():
            yield f"{kind.__name__}.{field}", member


@attrs.frozen
class _SchemaReader:
    """Reads the types of a schema.

    Attributes:
        root: what its references begin at.
        names: the name of each class, by its place; no two are equal.
        classes: each class with its place. What is referred to twice is one class.
        counted: how many types were read.
    """

    root: Node
    names: dict[YamlPath, str] = attrs.field(factory=dict, hash=False)
    classes: dict[YamlPath, tuple[Node, type]] = attrs.field(factory=dict, hash=False)
    counted: Iterator[int] = attrs.field(factory=itertools.count)

    def kind(self, node: Node, name: str, above: tuple[YamlPath, ...] = ()) -> Any:
        """Return the Python type of a value; None, with faults noted, if there are any.

        ``above`` has the places around it, and those of the references that were followed.
        """
        if node.value is True:
            return Any
        if len(above) > _DEEPEST:
            node.fault(f"nested deeper than {_DEEPEST} levels; {_MEND}")
            return None
        # References to references may stand for very many types.
        if next(self.counted) >= _MOST:
            self.root.fault(f"more than {_MOST:,} types; {_MEND}")
            return None
        if not isinstance(node.value, dict):
            node.expected("a JSON Schema")
            return None
        _check(node)
        kind = self.bare_kind(node, name, (*above, node.path)) if node.is_right() else None
        is_nullable = kind is not None and node.value.get("nullable") is True
        kind = _with_keywords(kind, self.shown_keywords(node))
        return kind | None if is_nullable else kind

    def shown_keywords(self, node: Node) -> dict[str, Json]:
        """Return what is shown of a schema as it is written."""
        value = node.value if isinstance(node.value, dict) else {}
        if isinstance(value.get("type"), list):  # each of the types has them
            return {}
        keywords = {key: value[key] for key in value if key not in _READ}
        # Descriptions of fields, classes and answers have places of their own.
        is_inner = node.path != self.root.path and node.path[-2:-1] != ("properties",)
        if is_inner and "properties" not in value and value.get("description"):
            keywords["description"] = value["description"]
        return keywords

    def bare_kind(self, node: Node, name: str, above: tuple[YamlPath, ...]) -> Any:
        value = node.value if isinstance(node.value, dict) else {}
        if "$ref" in value:
            return self.referred(node, name, above)
        if "enum" in value or "const" in value:
            return _choice(node)
        for key in _VARIANTS:
            if key in value:
                return self.any_of(node, key, name, above)
        if types := node.member("type").items():
            alternatives = [
                attrs.evolve(node, value={**value, "type": each.value}) for each in types
            ]
            return self.united(alternatives, name, above)
        return self.of_type(node, name, above)

    def referred(self, node: Node, name: str, above: tuple[YamlPath, ...]) -> Any:
        place, target = node.member("$ref"), _pointed(self.root, node)
        if target is None:
            place.expected("a reference to a part of this schema, such as `#/$defs/NAME`")
            return None
        if target.path in above:
            place.fault(f"a type that holds itself cannot be read; {_MEND}")
            return None
        if _is_definition(target.path):
            name = _identifier(target.path[-1], name)
        return self.kind(target, name, above)

    def any_of(self, node: Node, key: str, name: str, above: tuple[YamlPath, ...]) -> Any:
        """Return the union of the variants; of ``allOf``, which only wraps a type, the one."""
        place = node.member(key)
        variants = place.items()
        if not variants or (key == "allOf" and len(variants) > 1):
            place.fault(f"expected one schema, found {len(variants)}; {_MEND}")
            return None
        if all(isinstance(each.value, dict) and "const" in each.value for each in variants):
            return _described_choice(variants, node)
        beside = {"type": node.member("type").value} if "type" in node.members() else {}
        return self.united(
            [
                attrs.evolve(each, value={**beside, **each.value})
                if isinstance(each.value, dict) and each.value.keys().isdisjoint(_MARKS)
                else each
                for each in variants
            ],
            name,
            above,
        )

    def united(self, nodes: list[Node], name: str, above: tuple[YamlPath, ...]) -> Any:
        kinds = [self.kind(each, name, above) for each in nodes]
        if any(kind is None for kind in kinds):
            return None
        is_answer = all(path == self.root.path or _is_definition(path) for path in above)
        if not is_answer and sum(bool(fields_of(without_annotation(kind))) for kind in kinds) > 1:
            nodes[1].fault(
                "only the answer as a whole can be one of several objects; write one object with "
                "fields that may be null"
            )
            return None
        return reduce(operator.or_, kinds)

    def of_type(self, node: Node, name: str, above: tuple[YamlPath, ...]) -> Any:
        """Return the type of a value whose schema has at most one ``type``."""
        kind = node.member("type").value
        kind = kind.lower() if isinstance(kind, str) else kind  # Gemini has `STRING`
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

    def class_of(self, node: Node, name: str, above: tuple[YamlPath, ...]) -> type | None:
        """Return the class of an object; fields that it may lack are None by default."""
        if node.path in self.classes:
            return self.classes[node.path][1]
        if node.path not in self.names:
            numbered = itertools.chain([name], (f"{name}{at}" for at in itertools.count(2)))
            names = set(self.names.values())
            self.names[node.path] = next(each for each in numbered if each not in names)
        name = self.names[node.path]
        properties = node.member("properties").value
        order = [each.value for each in node.member("propertyOrdering").items()]
        attributes: dict[str, Any] = {}
        for field in sorted(
            properties if isinstance(properties, dict) else {},
            key=lambda field: order.index(field) if field in order else len(order),
        ):
            member = node.member("properties").member(field)
            check_name(field, member)
            kind = self.kind(member, nested_name(name, field), above)
            if kind is not None:
                is_needed = field in [each.value for each in node.member("required").items()]
                attributes[field] = self.attribute(field, member, kind, is_needed=is_needed)
        # The description of a field is shown beside the field.
        is_field = node.path[-2:-1] == ("properties",)
        about = None if is_field else node.member("description").value
        new_class = made_class(
            attributes, name, node, about=about if isinstance(about, str) else ""
        )
        if new_class is not None:
            self.classes[node.path] = (node, new_class)
        return new_class

    def attribute(self, name: str, node: Node, kind: Any, *, is_needed: bool) -> Any:
        default: object = attrs.NOTHING
        if node.member("default").value is not None:
            default = fitting(node.member("default").value, kind, node.member("default"))
            if is_needed:
                kind = _with_keywords(kind, {"default": node.member("default").value})
                default = attrs.NOTHING
        elif not is_needed:
            kind, default = kind | None, None
        return attribute(name, kind, _described(node, self.root), default)


def _is_definition(path: YamlPath) -> bool:
    return len(path) > 1 and path[-2] in _DEFINITIONS


def _choice(node: Node) -> Any:
    options = node.member("enum").items() if "enum" in node.members() else [node.member("const")]
    return _literal([option.value for option in options], node)


def _described_choice(variants: list[Node], node: Node) -> Any:
    options = [each.member("const").value for each in variants]
    for each in variants:
        if not all(isinstance(option, (str, NoneType)) for option in options) and (
            each.member("description").value or each.member("title").value
        ):
            each.fault("only options that are texts can be described; do it in the description")
    return _literal(options, node)


def _literal(options: list[Json], node: Node) -> Any:
    """Return the type of one of several values; null is written beside them."""
    if not options or any(isinstance(option, (dict, list, float)) for option in options):
        node.fault("expected texts, whole numbers, true, false or null as options")
        return None
    if any(isinstance(option, int) and abs(option) >= _TOO_LARGE for option in options):
        node.fault(f"expected options below {_TOO_LARGE:,}; write larger ones as texts")
        return None
    # By type too: 1 is not true.
    named = tuple(
        {(type(option), option): option for option in options if option is not None}.values()
    )
    kinds = [applied(Literal, named)] if named else []
    return reduce(operator.or_, [*kinds, *([NoneType] if None in options else [])])


def _with_keywords(kind: Any, keywords: dict[str, Json]) -> Any:
    from msgspec import Meta

    if kind is None or kind is NoneType or not keywords:
        return kind
    return applied(Annotated, (kind, Meta(extra_json_schema=keywords)))


def _check(node: Node) -> None:
    """Note what would be lost of a schema."""
    value = node.value if isinstance(node.value, dict) else {}
    for key in value:
        if key in _UNREAD or (key not in _READ and '"$ref"' in json.dumps(value[key])):
            node.member(key).fault(f"a type of Python cannot say this; {_MEND}")
    heads = [key for key in _HEADS if key in value]
    if "properties" in value and value.get("additionalProperties") not in (None, True, False, {}):
        heads = ["properties", "additionalProperties"]
    for key in heads[1:]:
        node.member(key).fault(f"a type of Python cannot say this beside `{heads[0]}`; {_MEND}")
    properties, required = node.member("properties"), node.member("required")
    if not isinstance(properties.value, (dict, NoneType)):
        properties.expected("an object")
    if not isinstance(required.value, (list, NoneType)):
        required.expected("a list of names")
    for name in required.items():
        if name.value not in list(properties.members()):
            name.fault(f"there is no property {shown(name.value)} here")
    _check_shapes(node, value)


def _check_shapes(node: Node, value: dict[str, Json]) -> None:
    if not isinstance(value.get("description"), (str, NoneType)):
        node.member("description").expected("a text")
    if not isinstance(value.get("nullable"), (bool, NoneType)):
        node.member("nullable").expected("true or false")
    kind = value.get("type", "object")
    kinds = kind if isinstance(kind, list) else [kind]
    if not kinds or not all(isinstance(each, str) for each in kinds):
        node.member("type").expected("the name of a type, or a list of names")
    aliases = value.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
        node.member("aliases").expected("a list of texts")


def _described(node: Node, root: Node) -> Described:
    """Return what a schema says of a value, or else the choice that it refers to.

    ``aliases``, and ``choices`` with the meaning of options, are what overrides may change beside
    the description; no validator of schemas minds them.
    """
    target = (_pointed(root, node) if "$ref" in node.members() else None) or node
    # The description of a class is shown beside the class.
    is_shown = "enum" in target.members() or target.path[-2:-1] == ("properties",)
    text = node.member("description").value or (is_shown and target.member("description").value)
    aliases = (alias.value for alias in node.member("aliases").items())
    meanings: dict[Json, Json] = {
        option.member("const").value: option.member("description").value
        or option.member("title").value
        for key in ("oneOf", "anyOf")
        for option in target.member(key).items()
        if isinstance(option.member("const").value, str)
    } | {option: meaning.value for option, meaning in node.member("choices").members().items()}
    return Described(
        text if isinstance(text, str) else "",
        aliases=tuple(alias for alias in aliases if isinstance(alias, str)),
        values={
            option: meaning
            for option, meaning in meanings.items()
            if meaning and isinstance(option, str) and isinstance(meaning, str)
        },
    )


def _pointed(root: Node, node: Node) -> Node | None:
    """Return what the reference of a schema points at in the same schema; None if nothing."""
    reference = node.member("$ref").value
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    anchor, *steps = unquote(reference.removeprefix("#")).split("/")
    if anchor:
        return None
    target = root
    for step in steps:
        items = {str(at): item for at, item in enumerate(target.items())}
        target = items.get(step) or target.member(step.replace("~1", "/").replace("~0", "~"))
    return target if isinstance(target.value, dict) else None


def _inner(value: Json) -> str | None:
    """Return the key of the schema in what OpenAI's and other APIs wrap it in."""
    if not isinstance(value, dict) or "properties" in value:
        return None
    return next(
        (key for key in ("json_schema", "schema") if isinstance(value.get(key), dict)), None
    )


def _identifier(name: Json, otherwise: str) -> str:
    return name if isinstance(name, str) and name.isascii() and name.isidentifier() else otherwise
