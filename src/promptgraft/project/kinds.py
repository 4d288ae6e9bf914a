"""What may stand in a project file: each kind reads a value and has a JSON Schema.

A reader notes every fault at its place and returns None when there is one, so that one look
at a file shows all that is wrong with it.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Generic, TypeAlias, TypeVar

import attrs

from promptgraft.errors import ConfigError, InvalidIdentifierError
from promptgraft.project.nodes import Node
from promptgraft.serde import Json, did_you_mean, shown

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Schema: TypeAlias = "dict[str, Json]"

_MOST_NAMED = 10
# A key that is this near to one that is missing is that one.
_TYPING_MISTAKE = 0.8


@attrs.frozen
class Kind(Generic[T_co]):
    """A kind of value.

    Attributes:
        read: returns the value of a node, or notes its faults and returns None.
        schema: the JSON Schema of such values.
    """

    read: Callable[[Node], T_co | None]
    schema: Schema = attrs.field(repr=False)


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


def _simple(what: str, schema: Schema, fits: Callable[[Json], T | None]) -> Kind[T]:
    def read(node: Node) -> T | None:
        value = fits(node.value)
        if value is None:
            node.expected(what)
        return value

    return Kind(read, schema)


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _flag(value: Json) -> bool | None:
    return value if isinstance(value, bool) else None


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if abs(value) <= sys.float_info.max else None


def _dollars(value: Json) -> Decimal | None:
    number = _number(value)
    return None if number is None or number <= 0 else Decimal(str(number))


TEXT: Kind[str] = _simple("a text", {"type": "string", "minLength": 1}, _text)
FLAG: Kind[bool] = _simple("true or false", {"type": "boolean"}, _flag)
NUMBER: Kind[float] = _simple("a number", {"type": "number"}, _number)
DOLLARS: Kind[Decimal] = _simple(
    "US dollars above 0, such as 2.50", {"type": "number", "exclusiveMinimum": 0}, _dollars
)
ANYTHING: Kind[Json] = Kind(lambda node: node.value, {})


def whole(least: int | None = None) -> Kind[int]:
    """Return the kind of integers, not smaller than ``least``."""

    def fits(value: Json) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        return value if least is None or value >= least else None

    bound = "" if least is None else f" of at least {least}"
    schema: Schema = {"type": "integer", **({} if least is None else {"minimum": least})}
    return _simple(f"an integer{bound}", schema, fits)


def choice(*names: str) -> Kind[str]:
    """Return the kind of texts that are one of some names."""

    def read(node: Node) -> str | None:
        if isinstance(node.value, str) and node.value in names:
            return node.value
        node.expected(f"one of {', '.join(f'`{name}`' for name in names)}")
        return None

    return Kind(read, {"enum": list(names)})


def checked(kind: Kind[T], check: Callable[[T], object], schema: Schema | None = None) -> Kind[T]:
    """Return a kind whose values ``check`` may refuse with an error."""

    def read(node: Node) -> T | None:
        value = kind.read(node)
        if value is None:
            return None
        try:
            check(value)
        except (ConfigError, InvalidIdentifierError) as error:
            node.fault(without_name(str(error), str(node.path[-1])))
            return None
        return value

    return Kind(read, {**kind.schema, **(schema or {})})


def without_name(message: str, name: str) -> str:
    """Return a message of a class without the names in front, which the place tells already."""
    before, sign, rest = message.partition(f"{name}: ")
    return rest if sign and (not before or before.endswith(": ")) else message


def listed(kind: Kind[T], what: str = "a list") -> Kind[tuple[T, ...]]:
    """Return the kind of lists."""

    def read(node: Node) -> tuple[T, ...] | None:
        if not isinstance(node.value, list):
            node.expected(what)
            return None
        found = [kind.read(item) for item in node.items()]
        values = tuple(item for item in found if item is not None)
        return values if len(values) == len(found) else None

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
        found = {name: kind.read(member) for name, member in node.members().items()}
        if check is not None:
            for name in found:
                _check_name(node.member(name), name, check)
        values = {name: value for name, value in found.items() if value is not None}
        return values if len(values) == len(found) else None

    schema: Schema = {"type": "object", "additionalProperties": kind.schema}
    bound: Schema = {"minProperties": least} if least else {}
    names: Schema = {"propertyNames": {"pattern": pattern}} if pattern else {}
    return Kind(read, {**schema, **bound, **names})


def _check_name(node: Node, name: str, check: Callable[[str], object]) -> None:
    try:
        check(name)
    except InvalidIdentifierError as error:
        node.fault(str(error))


def _check_reference(spec: str) -> None:
    where, _, attribute = spec.rpartition(":")
    if not where or not attribute:
        raise ConfigError(f"expected `file.py:NAME` or `module:NAME`, found {shown(spec)}")


REFERENCE: Kind[str] = checked(TEXT, _check_reference, {"pattern": ".:."})
"""Something in Python: ``file.py:NAME`` or ``module:NAME``."""


def record(
    make: Callable[..., T],
    keys: Keys,
    *,
    elsewhere: Mapping[str, str] | None = None,
    about: str = "",
    rules: Schema | None = None,
) -> Kind[T]:
    """Return the kind of objects with given keys.

    Args:
        make: makes the value of what the keys hold; called with those that are there.
        keys: what may stand in it.
        elsewhere: what is said of keys that users may look for here; they are refused.
        about: what it is, in one line.
        rules: what ``make`` demands of the keys together, for the JSON Schema.
    """
    needed = [name for name, key in keys.items() if key.required]
    what = f"an object with {', '.join(f'`{name}`' for name in needed)}" if needed else "an object"

    def read(node: Node) -> T | None:
        if not isinstance(node.value, dict):
            node.expected(what)
            return None
        values = _values(node, keys, elsewhere or {})
        if not node.file.is_right(node.path):
            return None
        try:
            return make(**values)
        except ConfigError as error:
            name, sign, rest = str(error).partition(": ")
            inner = node.members().get(name) if sign else None
            if inner is None:
                node.fault(str(error))
            else:
                inner.fault(rest)
            return None

    schema: Schema = {
        "type": "object",
        "properties": {name: _described(key) for name, key in keys.items()},
        "additionalProperties": False,
    }
    told: Schema = {"description": about} if about else {}
    required: Schema = {"required": list(needed)} if needed else {}
    return Kind(read, {**told, **schema, **required, **(rules or {})})


def _values(node: Node, keys: Keys, elsewhere: Mapping[str, str]) -> dict[str, object]:
    values: dict[str, object] = {}
    meant: set[str] = set()
    for name in node.value if isinstance(node.value, dict) else ():
        member = node.member(name)
        if name not in keys:
            member.fault(elsewhere.get(name) or f"unknown key{_known(name, list(keys))}")
            meant.update(difflib.get_close_matches(name, list(keys), 1, _TYPING_MISTAKE))
        elif member.value is not None:
            values[name] = keys[name].kind.read(member)
    for name, key in keys.items():
        if key.required and name not in values and name not in meant:
            about = f" ({key.about.rstrip('.')})" if key.about else ""
            node.fault(f"expected the key `{name}`{about}, found none")
    return values


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
