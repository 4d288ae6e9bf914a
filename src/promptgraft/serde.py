"""Plain data in and out: one strict converter, one canonical JSON, one digest."""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import json
import math
import types
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, NewType, TypeAlias, TypeVar, get_args, get_origin

import attrs
from cattrs import Converter, transform_error
from cattrs.errors import (
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
    StructureHandlerNotFoundError,
)

from promptgraft.errors import DataFormatError
from promptgraft.frozenmap import FrozenMap

HexDigest = NewType("HexDigest", str)
"""64 lower-case hexadecimal digits: a SHA-256."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

T = TypeVar("T")

_SHOWN_CHARS = 80


def structure(data: object, kind: type[T], *, where: str) -> T:
    """Build a ``kind`` (an attrs class, tuple, enum, ...) from plain data.

    Nothing is coerced: ``"4"`` is not an integer, ``1`` is not true, and unknown keys
    are refused. ``where`` names the source of the data in the message.

    Raises:
        DataFormatError: with one fault for each place that does not fit.
    """
    try:
        return _converter().structure(data, kind)
    except (ClassValidationError, IterableValidationError, _MismatchError) as error:
        faults = transform_error(error, "$", _describe)
        lines = tuple(f"{where}: {fault}" for fault in faults)
        raise DataFormatError("; ".join(lines), lines) from None


def unstructure(value: object) -> Json:
    """Return ``value`` as plain data that JSON can hold.

    attrs classes, dataclasses, enums, mappings, sequences, sets and dates are taken.

    Raises:
        DataFormatError: when some part of ``value`` has no plain form.
    """
    return _plain(value, "$")


def canonical_json(value: object) -> str:
    """Return the one JSON text of ``value``: sorted keys, no spaces, no NaN.

    Raises:
        DataFormatError: when ``value`` has no plain form.
    """
    return json.dumps(unstructure(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: object) -> HexDigest:
    """Return the SHA-256 of the canonical JSON of ``value``."""
    return digest_text(canonical_json(value))


def digest_text(text: str) -> HexDigest:
    """Return the SHA-256 of ``text`` in UTF-8."""
    return HexDigest(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def parse_json(text: str | bytes, *, where: str) -> Json:
    """Parse JSON strictly: UTF-8, no NaN, no duplicate keys.

    Raises:
        DataFormatError: naming line and column.
    """
    try:
        return _loads(text)
    except json.JSONDecodeError as error:
        raise DataFormatError(f"{where}:{error.lineno}:{error.colno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise DataFormatError(
            f"{where}: expected UTF-8, found byte {error.object[error.start]:#04x} "
            f"at offset {error.start}"
        ) from None
    except _MismatchError as error:
        raise DataFormatError(f"{where}: {error}") from None
    except RecursionError:
        raise DataFormatError(f"{where}: the JSON is nested too deeply") from None


def shown(value: object) -> str:
    """Return a short ``repr`` for messages."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def did_you_mean(word: str, known: list[str]) -> str:
    """Return `` (did you mean `x`?)`` for the nearest known word, or nothing."""
    near = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean `{near[0]}`?)" if near else ""


class _MismatchError(ValueError):
    """Raised by the strict hooks; its text is already what the user should read."""


def _loads(text: str | bytes) -> Json:
    decoded = text.decode("utf-8") if isinstance(text, bytes) else text
    parsed: Json = json.loads(
        decoded, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant
    )
    return parsed


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in pairs:
        if key in found:
            raise _MismatchError(f"the key {shown(key)} occurs twice in one object")
        found[key] = value
    return found


def _refuse_constant(name: str) -> Json:
    raise _MismatchError(f"expected a finite number, found {name}")


def _plain(value: object, path: str) -> Json:
    if isinstance(value, Enum):
        return _plain(value.value, path)
    if isinstance(value, float) and not math.isfinite(value):
        raise DataFormatError(f"{path}: expected a finite number, found {value!r}")
    if value is None or isinstance(value, (bool, str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {_plain_key(k, path): _plain(v, f"{path}.{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item, path) for item in value), key=canonical_json)
    return _plain_object(value, path)


def _plain_key(key: object, path: str) -> str:
    plain = key.value if isinstance(key, Enum) else key
    if isinstance(plain, str):
        return plain
    raise DataFormatError(f"{path}: expected string keys, found {shown(key)}")


def _plain_object(value: object, path: str) -> Json:
    if isinstance(value, datetime):
        return value.isoformat()
    kind: type[Any] = type(value)
    names = field_names(kind)
    if names is not None and not isinstance(value, type):
        return {name: _plain(getattr(value, name), f"{path}.{name}") for name in names}
    raise DataFormatError(
        f"{path}: expected plain data, an attrs class or a dataclass, found {shown(value)}"
    )


def field_names(kind: type[Any]) -> tuple[str, ...] | None:
    """Return the field names of an attrs class or dataclass; None for other types."""
    names = _FIELD_NAMES.get(kind, ())
    if names == ():
        names = _FIELD_NAMES.setdefault(kind, _find_field_names(kind))
    return names


# Classes live as long as the process does; so may their field names.
_FIELD_NAMES: dict[type, tuple[str, ...] | None] = {}


def _find_field_names(kind: type[Any]) -> tuple[str, ...] | None:
    if attrs.has(kind):
        return tuple(attribute.name for attribute in attrs.fields(kind))
    fields: Mapping[str, object] | None = getattr(kind, "__dataclass_fields__", None)
    return tuple(fields) if fields is not None else None


def _describe(error: BaseException, kind: type | None) -> str:
    if isinstance(error, ForbiddenExtraKeysError):
        known = list(field_names(error.cl) or ())
        return ", ".join(
            f"unknown key `{name}`{did_you_mean(name, known)}"
            for name in sorted(error.extra_fields)
        )
    if isinstance(error, KeyError):
        return "required key missing"
    if isinstance(error, StructureHandlerNotFoundError):
        return f"expected another type of value ({error})"
    text = str(error)
    return text or f"expected {getattr(kind, '__name__', kind)}"


def _strict(expected: type, name: str) -> Callable[[object, object], object]:
    def hook(value: object, _: object) -> object:
        if isinstance(value, expected) and (expected is bool or not isinstance(value, bool)):
            return value
        raise _MismatchError(f"expected {name}, found {shown(value)}")

    return hook


def _float_hook(value: object, _: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise _MismatchError(f"expected a number, found {shown(value)}")


def _datetime_hook(value: object, _: object) -> datetime:
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            parsed = datetime.fromisoformat(value)
            if parsed.tzinfo is not None:
                return parsed
    raise _MismatchError(f"expected an ISO 8601 time with its offset, found {shown(value)}")


def _enum_hook(value: object, kind: type[Enum]) -> Enum:
    for member in kind:
        if member.value == value and type(member.value) is type(value):
            return member
    allowed = ", ".join(repr(member.value) for member in kind)
    raise _MismatchError(f"expected one of {allowed}, found {shown(value)}")


# cattrs passes types and hooks around untyped: `Any` stays inside the functions below.
def _guarded(
    shape: type | tuple[type, ...],
    name: str,
    inner: Callable[[Any, Any], Any],
    finish: Callable[[Any], object] = lambda value: value,
) -> Callable[[Any, Any], Any]:
    def hook(value: Any, kind: Any) -> Any:
        if not isinstance(value, shape):
            raise _MismatchError(f"expected {name}, found {shown(value)}")
        return finish(inner(value, kind))

    return hook


def _tuple_factory(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    items = types.GenericAlias(list, get_args(kind)[:1])
    inner = converter.get_structure_hook(items)
    return _guarded((list, tuple), "a list", lambda value, _: inner(value, items), tuple)


def _frozen_map_factory(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    plain = types.GenericAlias(dict, get_args(kind))
    inner = converter.get_structure_hook(plain)
    return _guarded(Mapping, "an object", lambda value, _: inner(value, plain), FrozenMap)


def _class_factory(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    return _guarded(Mapping, "an object", converter.gen_structure_attrs_fromdict(kind))


def _is_homogeneous_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple and get_args(kind)[1:] == (...,)


def _is_frozen_map(kind: Any) -> bool:
    return get_origin(kind) is FrozenMap


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _is_class(kind: Any) -> bool:
    return isinstance(kind, type) and field_names(kind) is not None


@functools.lru_cache(maxsize=1)
def _converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    for kind, name in ((str, "a string"), (int, "an integer"), (bool, "true or false")):
        converter.register_structure_hook(kind, _strict(kind, name))
    converter.register_structure_hook(float, _float_hook)
    converter.register_structure_hook(datetime, _datetime_hook)
    converter.register_structure_hook_func(_is_enum, _enum_hook)
    converter.register_structure_hook_factory(_is_class, _class_factory)
    converter.register_structure_hook_factory(_is_homogeneous_tuple, _tuple_factory)
    converter.register_structure_hook_factory(_is_frozen_map, _frozen_map_factory)
    return converter
