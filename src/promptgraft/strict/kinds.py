"""Kinds of lists and objects: what may stand in a file."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeAlias, TypeVar

import attrs

from promptgraft.errors import ConfigError, InvalidIdentifierError
from promptgraft.serde import Json, did_you_mean
from promptgraft.strict.checks import Kind, Schema
from promptgraft.strict.nodes import Node

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_MOST_NAMED = 10
# A key that is this near to one that is missing is that one.
_TYPING_MISTAKE = 0.8


def listed(kind: Kind[T], what: str = "a list") -> Kind[tuple[T, ...]]:
    """Return the kind of lists."""

    def read(node: Node) -> tuple[T, ...] | None:
        if not isinstance(node.value, list):
            node.expected(what)
            return None
        items = [kind.read(item) for item in node.items()]
        values = tuple(item for item in items if item is not None)
        return values if len(values) == len(items) else None

    return Kind(read, {"type": "array", "items": kind.schema})


def named(
    kind: Kind[T],
    what: str = "an object",
    *,
    least: int = 0,
    check: Callable[[str], object] | None = None,
    pattern: str = "",
) -> Kind[dict[str, T]]:
    """Return the kind of objects whose keys are names that the user chooses.

    Args:
        kind: the values.
        what: what is expected, for messages.
        least: how many there must be.
        check: refuses a name with an error.
        pattern: what ``check`` demands, for the JSON Schema.
    """

    def read(node: Node) -> dict[str, T] | None:
        if not isinstance(node.value, dict) or len(node.value) < least:
            node.expected(what)
            return None
        members = {name: kind.read(member) for name, member in node.members().items()}
        for name in members if check is not None else ():
            refusing(check, name, node.member(name))
        values = {name: value for name, value in members.items() if value is not None}
        return values if len(values) == len(members) else None

    schema: Schema = {"type": "object", "additionalProperties": kind.schema}
    bound: Schema = {"minProperties": least} if least else {}
    names: Schema = {"propertyNames": {"pattern": pattern}} if pattern else {}
    return Kind(read, {**schema, **bound, **names})


def refusing(check: Callable[[T], object] | None, value: T, node: Node) -> None:
    """Note what ``check`` says of a value that it refuses with an error."""
    try:
        if check is not None:
            check(value)
    except (ConfigError, InvalidIdentifierError) as error:
        node.fault(without_name(str(error), str(node.path[-1]) if node.path else ""))


def checked(kind: Kind[T], check: Callable[[T], object], schema: Schema | None = None) -> Kind[T]:
    """Return a kind whose values ``check`` may refuse with an error."""

    def read(node: Node) -> T | None:
        value = kind.read(node)
        if value is not None:
            refusing(check, value, node)
        return value if node.is_right() else None

    return Kind(read, {**kind.schema, **(schema or {})})


def without_name(message: str, name: str) -> str:
    """Return a message of a class without the names in front, which the place tells already."""
    before, sign, rest = message.partition(f"{name}: ")
    return rest if sign and (not before or before.endswith(": ")) else message


@attrs.frozen
class Key(Generic[T_co]):
    """A key of an object.

    Attributes:
        kind: its value.
        about: what it is for, in one line; empty where its name says it.
        required: whether it must be there.
    """

    kind: Kind[T_co]
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
    rules: Schema | None = None,
) -> Kind[T]:
    """Return the kind of objects with given keys; a key whose value is null counts as absent.

    Args:
        make: makes the value of what the keys hold; called with those that are there.
        keys: what may stand in it.
        elsewhere: what is said of keys that users may look for here; they are refused.
        aliases: other names of keys. Where they are given, even none, keys may be written in
            camelCase too.
        left_out: keys that may stand in it and are not read.
        about: what it is, in one line.
        rules: what ``make`` demands of the keys together, for the JSON Schema.
    """
    needed = [name for name, key in keys.items() if key.required]
    what = f"an object with {', '.join(f'`{name}`' for name in needed)}" if needed else "an object"

    def read(node: Node) -> T | None:
        if not isinstance(node.value, dict):
            node.expected(what)
            return None
        known = (*keys, *left_out)
        members = known_members(node, known, elsewhere=elsewhere, aliases=aliases)
        values = {name: keys[name].kind.read(one) for name, one in members.items() if name in keys}
        _note_missing(node, keys, values)
        if not node.is_right():
            return None
        try:
            return make(**values)
        except ConfigError as error:
            _place(str(error), node, members)
            return None

    schema: Schema = {
        "type": "object",
        "properties": {name: _described(key) for name, key in keys.items()},
        "additionalProperties": False,
    }
    told: Schema = {"description": about} if about else {}
    required: Schema = {"required": list(needed)} if needed else {}
    return Kind(read, {**told, **schema, **required, **(rules or {})})


def _place(fault: str, node: Node, members: Mapping[str, Node]) -> None:
    """Note what a class says of its fields at the member that it names, if it names one."""
    for name, member in members.items():
        if (rest := without_name(fault, name)) != fault:
            member.fault(rest)
            return
    node.fault(fault)


def known_members(
    node: Node,
    known: Collection[str],
    *,
    elsewhere: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> dict[str, Node]:
    """Return the members of an object that have a value, by the names of their keys.

    Unknown keys, and those that say again what another one says, are noted. The arguments are
    those of :func:`record`.
    """
    members: dict[str, Node] = {}
    if not isinstance(node.value, dict):
        node.expected("an object")
        return members
    for key, value in node.value.items():
        name = key if aliases is None else aliases.get(snake_case(key), snake_case(key))
        if value is None and aliases is not None:
            continue  # what other tools write for what is not there
        if name not in known:
            said = (elsewhere or {}).get(name)
            node.member(key).fault(said or f"unknown key{_known(name, list(known))}")
        elif name in members:
            node.member(key).fault(f"says again what `{members[name].path[-1]}` says; keep one")
        elif value is not None:
            members[name] = node.member(key)
    return members


def snake_case(key: str) -> str:
    """Return ``finalResponse`` as ``final_response``."""
    if key.islower():
        return key
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in key).removeprefix("_")


def _note_missing(node: Node, keys: Keys, values: Mapping[str, object]) -> None:
    missing = [name for name, key in keys.items() if key.required and name not in values]
    if not missing or not isinstance(node.value, dict):
        return
    unknown = [name for name in node.value if snake_case(name) not in keys]
    for name in missing:
        if not difflib.get_close_matches(name, unknown, 1, _TYPING_MISTAKE):
            about = f" ({keys[name].about.rstrip('.')})" if keys[name].about else ""
            node.fault(f"expected the key `{name}`{about}, found none")


def _known(name: str, keys: list[str]) -> str:
    if near := did_you_mean(name, keys):
        return near
    more = len(keys) - _MOST_NAMED
    listed = ", ".join(f"`{one}`" for one in keys[:_MOST_NAMED])
    return f"; known here: {listed}{f' and {more} more' if more > 0 else ''}"


def _described(key: Key[object]) -> Schema:
    return {**({"description": key.about} if key.about else {}), **key.kind.schema}


def either(what: str, *kinds: tuple[type | tuple[type, ...], Kind[T]]) -> Kind[T]:
    """Return a kind that is one of several, told apart by the type of the plain value."""

    def read(node: Node) -> T | None:
        for types, kind in kinds:
            if isinstance(node.value, types):
                return kind.read(node)
        node.expected(what)
        return None

    return Kind(read, {"anyOf": [kind.schema for _, kind in kinds]})


def tagged(
    kinds: Mapping[str, Kind[T]], *, bare: Mapping[str, Callable[[], T]], what: str
) -> Kind[T]:
    """Return the kind of values that are named: ``{name: {...}}``, or ``name`` for a bare one.

    Args:
        kinds: what stands behind each name.
        bare: makes the value of a name that stands alone.
        what: what is expected, for messages.
    """

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

    objects: list[Json] = [
        {
            "type": "object",
            "properties": {tag: kind.schema},
            "required": [tag],
            "additionalProperties": False,
        }
        for tag, kind in kinds.items()
    ]
    alone: list[Json] = [{"enum": list(bare)}] if bare else []
    return Kind(read, {"anyOf": [*alone, *objects]})
