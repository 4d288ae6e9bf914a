"""Kinds of lists and objects, and kinds derived from attrs classes: the format of files."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import re
import types
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from decimal import Decimal
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

import attrs

from promptgraft.errors import ConfigError, InvalidIdentifierError
from promptgraft.ground.serde import Json, did_you_mean, nearest, shown
from promptgraft.ground.strict import checks
from promptgraft.ground.strict.nodes import Node

_MOST_NAMED = 10
_MOST_UNKNOWN = 100
"""Unknown keys of one object that get a line and a suggestion each; the others are counted."""


def known_members(
    node: Node,
    known: Collection[str],
    *,
    elsewhere: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> dict[str, Node]:
    """Return the members of an object that have a value, by key.

    Unknown and repeated keys are reported. The arguments are those of :func:`record`.
    """
    members: dict[str, Node] = {}
    unknown = 0
    if not isinstance(node.value, dict):
        node.expected("an object")
        return members
    for key, value in node.value.items():
        name = key if aliases is None else aliases.get(snake_case(key), snake_case(key))
        if value is None and aliases is not None:
            continue  # other tools write null for absent values
        if name not in known:
            unknown += 1
            if unknown <= _MOST_UNKNOWN:
                place_of_key = (elsewhere or {}).get(name)
                node.member(key).fault(place_of_key or f"unknown key{_known(name, known)}")
        elif name in members:
            node.member(key).fault(f"repeats `{members[name].path[-1]}`; keep one")
        elif value is not None:
            members[name] = node.member(key)
    if unknown > _MOST_UNKNOWN:
        node.fault(f"{unknown - _MOST_UNKNOWN:,} more unknown keys")
    return members


def snake_case(key: str) -> str:
    """Return ``finalResponse`` as ``final_response``."""
    if key.islower():
        return key
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in key).removeprefix("_")


def _known(name: str, keys: Collection[str]) -> str:
    if near := did_you_mean(name, keys):
        return near
    more = len(keys) - _MOST_NAMED
    listed = ", ".join(f"`{key}`" for key in islice(keys, _MOST_NAMED))
    return f"; known here: {listed}{f' and {more} more' if more > 0 else ''}"


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# An unknown key this similar to a missing one is taken for a misspelling of it.
_TYPING_MISTAKE = 0.8
_ENTRY = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)
_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_SCALARS: Mapping[object, checks.Kind[object]] = {
    bool: checks.FLAG,
    int: checks.INTEGER,
    float: checks.NUMBER,
    str: checks.STRING,
    datetime: checks.MOMENT,
    Decimal: checks.DOLLARS,
    Path: checks.PATH,
}


def listed(kind: checks.Kind[T], what: str = "a list") -> checks.Kind[tuple[T, ...]]:
    """Return the kind of lists."""

    def read(node: Node) -> tuple[T, ...] | None:
        if not isinstance(node.value, list):
            node.expected(what)
            return None
        items = [kind.read(item) for item in node.items()]
        values = tuple(item for item in items if item is not None)
        return values if len(values) == len(items) else None

    return checks.Kind(read, {"type": "array", "items": kind.schema})


def named(
    kind: checks.Kind[T],
    what: str = "an object",
    *,
    least: int = 0,
    check: Callable[[str], object] | None = None,
    pattern: str = "",
) -> checks.Kind[dict[str, T]]:
    """Return the kind of objects with at least ``least`` keys that the user chooses.

    ``check`` raises for an invalid name; ``pattern`` says the same in the JSON Schema.
    """

    def read(node: Node) -> dict[str, T] | None:
        if not isinstance(node.value, dict) or len(node.members()) < least:
            node.expected(what)
            return None
        members = {name: kind.read(member) for name, member in node.members().items()}
        if check is not None:
            for name in members:
                refusing(check, name, node.member(name))
        values = {name: value for name, value in members.items() if value is not None}
        return values if len(values) == len(members) else None

    schema: checks.Schema = {"type": "object", "additionalProperties": kind.schema}
    bound: checks.Schema = {"minProperties": least} if least else {}
    names: checks.Schema = {"propertyNames": {"pattern": pattern}} if pattern else {}
    return checks.Kind(read, {**schema, **bound, **names})


def refusing(check: Callable[[T], object], value: T, node: Node) -> None:
    """Report the error that ``check`` raises for a value."""
    try:
        check(value)
    except (ConfigError, InvalidIdentifierError) as error:
        node.fault(without_name(str(error), str(node.path[-1]) if node.path else ""))


def checked(
    kind: checks.Kind[T], check: Callable[[T], object], schema: checks.Schema | None = None
) -> checks.Kind[T]:
    """Return a kind whose values must pass ``check``, which raises."""

    def read(node: Node) -> T | None:
        value = kind.read(node)
        if value is not None:
            refusing(check, value, node)
        return value if node.is_right() else None

    return checks.Kind(read, {**kind.schema, **(schema or {})}, reach=kind.reach)


def without_name(message: str, name: str) -> str:
    """Remove a leading name from a message: the place says it already."""
    before, sign, rest = message.partition(f"{name}: ")
    return rest if sign and (not before or before.endswith((": ", "."))) else message


@attrs.frozen
class Key(Generic[T_co]):
    """A key of an object: the kind of its value, and its description in one line."""

    kind: checks.Kind[T_co]
    about: str = ""
    required: bool = False


Keys: TypeAlias = "Mapping[str, Key[object]]"


def record(
    make: Callable[..., T],
    keys: Keys,
    *,
    elsewhere: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
    left_out: Collection[str] = (),
    about: str = "",
    rules: checks.Schema | None = None,
) -> checks.Kind[T]:
    """Return the kind of objects with given keys; a key whose value is null counts as absent.

    Args:
        make: builds the value; called with the keys that are present.
        keys: the known keys.
        elsewhere: messages for keys that users may expect here; they are refused.
        aliases: other names of keys. If given, even empty, keys may be in camelCase too.
        left_out: keys that are allowed and ignored.
        about: a description in one line.
        rules: constraints of ``make`` across keys, for the JSON Schema.
    """
    needed = [name for name, key in keys.items() if key.required]
    shape = "an object"
    if needed:
        shape = f"an object with {', '.join(f'`{name}`' for name in needed)}"
    elif keys:
        shape = f"an object such as `{{{next(iter(keys))}: ...}}`"

    def read(node: Node) -> T | None:
        if not isinstance(node.value, dict):
            node.expected(shape)
            return None
        key_names = (*keys, *left_out)
        members = known_members(node, key_names, elsewhere=elsewhere, aliases=aliases)
        return _built(make, keys, node, members)

    described: checks.Schema = {"description": about} if about else {}
    schema: checks.Schema = {**described, **_object_schema(keys), **(rules or {})}
    return checks.Kind(read, schema)


def _built(make: Callable[..., T], keys: Keys, node: Node, members: Mapping[str, Node]) -> T | None:
    """Return what ``make`` builds from the members of an object, or note faults."""
    values = {name: keys[name].kind.read(value) for name, value in members.items() if name in keys}
    _note_missing(node, keys, values)
    if not node.is_right():
        return None
    try:
        return make(**values)
    except ConfigError as error:
        _place(str(error), node, members)
        return None


def _object_schema(keys: Keys) -> checks.Schema:
    described: checks.Schema = {
        name: {**({"description": key.about} if key.about else {}), **key.kind.schema}
        for name, key in keys.items()
    }
    schema: checks.Schema = {
        "type": "object",
        "properties": described,
        "additionalProperties": False,
    }
    needed: list[Json] = [name for name, key in keys.items() if key.required]
    return {**schema, "required": needed} if needed else schema


def _place(fault: str, node: Node, members: Mapping[str, Node]) -> None:
    # At the member that the class names, if it names one.
    for name, member in members.items():
        if (rest := without_name(fault, name)) != fault:
            member.fault(rest)
            return
    node.fault(fault)


def _note_missing(node: Node, keys: Keys, values: Mapping[str, object]) -> None:
    missing = [name for name, key in keys.items() if key.required and name not in values]
    if not missing or not isinstance(node.value, dict):
        return
    unknown = [name for name in node.value if snake_case(name) not in keys]
    for name in missing:
        if not nearest(name, unknown, cutoff=_TYPING_MISTAKE):
            about = f" ({keys[name].about.rstrip('.')})" if keys[name].about else ""
            node.fault(f"expected the key `{name}`{about}, found none")


def either(what: str, *kinds: tuple[type | tuple[type, ...], checks.Kind[T]]) -> checks.Kind[T]:
    """Return the union of several kinds, distinguished by the type of the plain value."""

    def read(node: Node) -> T | None:
        for shape, kind in kinds:
            if isinstance(node.value, shape):
                return kind.read(node)
        node.expected(what)
        return None

    schema: checks.Schema = {"anyOf": [kind.schema for _, kind in kinds]}
    return checks.Kind(read, schema)


def record_of(
    kind: type[T],
    *,
    make: Callable[..., T] | None = None,
    skip: Collection[str] = (),
    special: Mapping[str, checks.Kind[object]] | None = None,
    elsewhere: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
    left_out: Collection[str] = (),
    about: str = "",
    rules: checks.Schema | None = None,
) -> checks.Kind[T]:
    """Return the kind of objects from which an attrs class is built; see :func:`keys_of`."""
    keys = keys_of(kind, skip=skip, special=special)
    return record(
        make or kind,
        keys,
        elsewhere=elsewhere,
        aliases=aliases,
        left_out=left_out,
        about=about,
        rules=rules,
    )


def keys_of(
    kind: type,
    *,
    skip: Collection[str] = (),
    special: Mapping[str, checks.Kind[object]] | None = None,
) -> Keys:
    """Return a key for each field of an attrs class, checked by the validators of the class.

    Descriptions come from the docstring of the class; ``special`` overrides the kinds of fields.
    Raises ``ConfigError`` if ``kind`` is not an attrs class.
    """
    abouts = abouts_of(kind)
    return {
        field.name: Key(
            (special or {}).get(field.name) or _kind_of(field),
            abouts.get(field.name, ""),
            required=field.default is attrs.NOTHING,
        )
        for field in _fields_of(kind)
        if field.init and field.name not in skip
    }


def _fields_of(kind: type) -> tuple[attrs.Attribute[Any], ...]:
    if not attrs.has(kind):
        raise ConfigError(f"expected an attrs class, found {shown(kind)}")
    fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(attrs.resolve_types(kind))
    return fields


def abouts_of(kind: type) -> dict[str, str]:
    """Return the descriptions of fields in the docstring of a class, each in one line."""
    # Base classes first, because an entry of a subclass replaces theirs.
    docs = "\n".join(inspect.cleandoc(base.__doc__ or "") for base in reversed(kind.__mro__))
    return {name: " ".join(text.split()).replace("``", "`") for name, text in _ENTRY.findall(docs)}


def kind_for(hint: object) -> checks.Kind[object]:
    """Return the kind of values of a type annotation; for unsupported ones, a kind that refuses."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin in (Union, types.UnionType):
        rest = [member for member in inner if member is not type(None)]
        return kind_for(rest[0]) if len(rest) == 1 else class_of(*rest)
    if origin is Literal:
        return checks.one_of(*map(str, inner))
    if origin in (tuple, collections.abc.Sequence):
        return listed(kind_for(inner[0]))
    if origin is collections.abc.Mapping:
        return checks.OBJECT if inner[1] is object else named(kind_for(inner[1]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return checks.one_of(*(str(member.value) for member in hint))
    if isinstance(hint, type) and attrs.has(hint):
        return record_of(hint)
    return checks.Kind(
        lambda node: node.fault(f"no value of a file can be {shown(hint)}; leave it out")
    )


def class_of(*classes: type[T]) -> checks.Kind[T]:
    """Return the kind of objects that name their class: ``{max_proposals: {...}}``.

    A class without required fields may be written as its name alone: ``strict``.
    """
    by_name = {_WORD.sub("_", member.__name__).lower(): member for member in classes}
    kinds = {name: record_of(member) for name, member in by_name.items()}
    needed = {
        name: [field.name for field in _fields_of(member) if field.default is attrs.NOTHING]
        for name, member in by_name.items()
    }
    spelled = (
        f"`{name}: {{{', '.join(f'{field}: ...' for field in fields)}}}`" if fields else f"`{name}`"
        for name, fields in needed.items()
    )
    what = f"one of {', '.join(spelled)}"
    bare = {name: member for name, member in by_name.items() if not needed[name]}

    def read(node: Node) -> T | None:
        if isinstance(node.value, str) and node.value in bare:
            return bare[node.value]()
        if not isinstance(node.value, dict) or len(node.value) != 1:
            node.expected(what)
            return None
        (tag,) = node.value
        inner = node.member(tag)
        if tag not in kinds:
            inner.fault(f"unknown{did_you_mean(tag, list(kinds))}; expected {what}")
            return None
        return kinds[tag].read(inner)

    alone: list[Json] = [{"enum": list(bare)}] if bare else []
    objects = [_object_schema({tag: Key(kind, required=True)}) for tag, kind in kinds.items()]

    return checks.Kind(read, {"anyOf": [*alone, *objects]})


def _kind_of(field: attrs.Attribute[Any]) -> checks.Kind[object]:
    """Return the kind of a field: its check, or the kind of its type with its validator."""
    validator = field.validator
    # Checks without a schema are for Python objects.
    if isinstance(validator, checks.Check) and validator.schema:
        # A path stays one, however its check is written.
        is_path = Path in (field.type, *get_args(field.type))
        return validator.reaching(checks.Reach.FILE) if is_path else validator
    kind = checks.ANYTHING if field.metadata.get("plain") else kind_for(field.type)
    if validator is None:
        return kind
    # Without an owner the message begins with the field's name, which is then removed.
    return checked(kind, functools.partial(validator, None, field))
