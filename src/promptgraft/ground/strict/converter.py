"""The strict cattrs converter behind :func:`promptgraft.ground.strict.structure`.

cattrs coerces where it can; the hooks here refuse. This is a separate module so that cattrs is
loaded only when data is read.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import functools
import json
import re
import types
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, ForwardRef, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import attrs
from cattrs import Converter, transform_error
from cattrs.cols import list_structure_factory
from cattrs.errors import (
    AttributeValidationNote,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
    StructureHandlerNotFoundError,
)
from cattrs.gen import (
    make_dict_structure_fn,
    make_dict_structure_fn_from_attrs,
    make_mapping_structure_fn,
    override,
)

from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import MismatchError, did_you_mean, field_names, is_pydantic, shown
from promptgraft.ground.strict.checks import (
    ANY_INTEGER,
    FINITE,
    FLAG,
    MOMENT,
    NUMBER,
    STRING,
    Check,
    check,
)

T = TypeVar("T")

_LONGEST_NAME = 80
_MOST_NAMED = 20

# Raised by cattrs, and by the constructors that it calls, for invalid data.
UNFIT = (
    ClassValidationError,
    IterableValidationError,
    StructureHandlerNotFoundError,
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)


_TOO_DEEP = "the data is nested too deeply"


@functools.lru_cache(maxsize=1)
def get() -> Converter:
    """Return the converter, created on first use."""
    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    for kind, read in _SCALARS.items():
        converter.register_structure_hook(kind, _scalar_hook(kind, read))
    converter.register_structure_hook_func(lambda kind: kind in (None, type(None)), _none_hook)
    converter.register_structure_hook_func(_is_enum, _enum_hook)
    converter.register_structure_hook_func(_is_literal, _literal_hook)
    add = converter.register_structure_hook_factory
    add(_is_class, _class_factory)
    add(lambda kind: _bare(kind) in _COLLECTIONS, _collection_factory)
    # After that of collections, because later factories are tried first.
    add(_is_fixed_tuple, _fixed_tuple_factory)
    add(lambda kind: _bare(kind) in _MAPPINGS, _mapping_factory)
    add(_is_union, _union_factory)
    # Last, because models of pydantic have fields as other classes do.
    add(is_pydantic, _pydantic_factory)
    return converter


def check_type(kind: Any) -> None:
    """Raise one of :data:`UNFIT`, or ``NameError``, for a type that cannot be built from data."""
    if _holds(bytes, kind):  # cattrs would make them from integers
        raise StructureHandlerNotFoundError("", bytes)
    get().get_structure_hook(kind)


def _holds(part: object, kind: object) -> bool:
    return kind is part or any(_holds(part, value) for value in get_args(kind))


def describe_all(error: BaseException) -> list[str]:
    """Return one line per fault in ``error``, with the path to it."""
    lines = transform_error(error, "$", describe)
    # Several members fail where the stack ends, and which of them depends on the caller.
    again = [line for line in lines if line.startswith(_TOO_DEEP)][1:]
    return [line for line in lines if line not in again]


def describe(error: BaseException, kind: type | None = None) -> str:
    """Return the fault in one line, without the path to it."""
    text = _text(error) or f"expected {getattr(kind, '__name__', kind)}"
    return " ".join(text.splitlines())


def _text(error: BaseException) -> str:
    if isinstance(error, ForbiddenExtraKeysError):
        fields = list(field_names(error.cl) or ())
        names = sorted(str(extra) for extra in error.extra_fields)
        more = len(names) - _MOST_NAMED
        unknown_keys = ", ".join(
            f"unknown key `{name[:_LONGEST_NAME]}`{did_you_mean(name, fields)}"
            for name in names[:_MOST_NAMED]
        )
        return f"{unknown_keys}, and {more:,} more" if more > 0 else unknown_keys
    if isinstance(error, KeyError):
        return "required key missing"
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    if isinstance(error, StructureHandlerNotFoundError):
        return f"no plain data can become {shown(error.type_)}"
    return str(error)


def _held(check: Check[T]) -> Callable[[object], T]:
    def read(value: object) -> T:
        fit = check.fits(value)
        if fit is None:
            raise MismatchError(check.fault(shown(value), value))
        return fit

    return read


def _float(value: object) -> float:
    # Only for a number that is not finite does the message ask for a finite one.
    kind = FINITE if isinstance(value, float) or ANY_INTEGER.fits(value) is not None else NUMBER
    return float(_held(kind)(value))


def _decimal(value: object) -> Decimal | None:
    # The shortest digits of a float, not its binary value.
    text = value if isinstance(value, str) else "" if isinstance(value, bool) else repr(value)
    with contextlib.suppress(ArithmeticError):
        return number if (number := Decimal(text)).is_finite() else None
    return None


def _read(parse: Callable[[str], T]) -> Callable[[object], T | None]:
    def fits(value: object) -> T | None:
        with contextlib.suppress(ValueError):
            return parse(value) if isinstance(value, str) else None
        return None

    return fits


_SCALARS: dict[type, Callable[[object], object]] = {
    str: _held(check("a string", STRING.fits)),
    int: _held(ANY_INTEGER),
    bool: _held(FLAG),
    float: _float,
    date: _held(check("an ISO 8601 date", _read(date.fromisoformat))),
    datetime: _held(MOMENT),
    time: _held(check("an ISO 8601 time of day", _read(time.fromisoformat))),
    Decimal: _held(check("a number", _decimal)),
    UUID: _held(check("a UUID", _read(UUID))),
}


def _scalar_hook(base: type, read: Callable[[object], object]) -> Callable[[object, Any], object]:
    def hook(value: object, kind: Any) -> object:
        if kind is base:
            return read(value)
        # cattrs uses the hook of a class for its subclasses too, such as `StrEnum` for `str`.
        return _enum_hook(value, kind) if issubclass(kind, Enum) else kind(read(value))

    return hook


def _none_hook(value: object, kind: object) -> None:
    del kind
    if value is not None:
        raise MismatchError(f"expected null, found {shown(value)}")


def _enum_hook(value: object, kind: type[Enum]) -> Enum:
    return _choose(value, {member: member.value for member in kind})


def _literal_hook(value: object, kind: object) -> object:
    options = get_args(kind)
    return _choose(value, {o: o.value if isinstance(o, Enum) else o for o in options})


def _choose(value: object, options: Mapping[T, object]) -> T:
    for option, plain in options.items():
        # With the type, because True == 1 and 1 == 1.0.
        if plain == value and type(plain) is type(value):
            return option
    allowed = ", ".join(repr(plain) for plain in options.values())
    raise MismatchError(f"expected one of {allowed}, found {shown(value)}")


# cattrs passes types and hooks around untyped: `Any` stays inside the functions below.
def _guarded(
    shape: type | tuple[type, ...],
    name: str,
    inner: Callable[[Any, Any], Any],
    finish: Callable[[Any], object] = lambda value: value,
) -> Callable[[Any, Any], Any]:
    def hook(value: Any, kind: Any) -> Any:
        if not isinstance(value, shape):
            raise MismatchError(f"expected {name}, found {shown(value)}")
        return finish(inner(value, kind))

    return hook


# The result for each kind of collection; cattrs alone would accept any iterable.
_COLLECTIONS: dict[Any, Callable[[list[Any]], object]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: tuple,
    collections.abc.MutableSequence: list,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
}
_NO_KEYS = (int, float, bool)
_MAPPINGS = {dict, FrozenMap, collections.abc.Mapping, collections.abc.MutableMapping}


def _collection_factory(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    items: Any = types.GenericAlias(list, get_args(kind)[:1] or (Any,))
    inner = list_structure_factory(items, converter)
    finish = _COLLECTIONS[_bare(kind)]
    return _guarded((list, tuple), "a list", lambda value, _: inner(value, items), finish)


def _fixed_tuple_factory(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    items = get_args(kind)

    def inner(values: Any, _: Any) -> Any:
        if len(values) != len(items):
            raise MismatchError(f"expected {len(items)} items, found {len(values)}")
        built, errors = [], []
        for index, (item, value) in enumerate(zip(items, values, strict=True)):
            try:
                built.append(converter.structure(value, item))
            except UNFIT as error:
                error.add_note(IterableValidationNote(f"item {index}", index, item))
                errors.append(error)
        if errors:
            raise IterableValidationError("items", errors, kind)
        return tuple(built)

    return _guarded((list, tuple), "a list", inner)


def _mapping_factory(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    keys, values = get_args(kind) or (Any, Any)
    if keys in _NO_KEYS:
        raise MismatchError(f"the keys of an object are strings, found {shown(kind)}")
    plain: Any = types.GenericAlias(dict, (keys, values))
    # Not `converter.gen_structure_mapping`, which clears the cache of all other hooks.
    inner: Any = make_mapping_structure_fn(plain, converter, detailed_validation=True)
    finish = FrozenMap if _bare(kind) is FrozenMap else dict
    return _guarded(Mapping, "an object", lambda value, _: inner(value, plain), finish)


def _class_factory(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    bare = _bare(kind)
    fields = attrs.fields(bare) if attrs.has(bare) else dataclasses.fields(bare)
    # cattrs resolves a type written as a text, but not a text inside a type: `list["Node"]`.
    string_type = [field.name for field in fields if _holds_text(field.type)]
    if not string_type or any(isinstance(field.type, str) for field in fields):
        if not all(re.fullmatch(r"\w+", field.name, re.ASCII) for field in fields):
            return _guarded(Mapping, "an object", _by_alias(bare, converter))
        return _guarded(Mapping, "an object", converter.gen_structure_attrs_fromdict(kind))
    hints = get_type_hints(bare, include_extras=True)
    resolved: Any = {name: _resolved(hints[name], converter) for name in string_type}
    return _guarded(Mapping, "an object", make_dict_structure_fn(kind, converter, **resolved))


def _by_alias(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    """Read a class whose attributes may have names that generated code cannot contain."""
    names = {field.alias: field.name for field in attrs.fields(kind)}
    renamed: Any = {alias: override(rename=name) for alias, name in names.items()}
    read_fields = make_dict_structure_fn_from_attrs(
        [field.evolve(name=field.alias) for field in attrs.fields(kind)], kind, converter, **renamed
    )

    def inner(value: Any, _: Any) -> Any:
        try:
            return read_fields(value, kind)
        except ClassValidationError as error:
            for fault in error.exceptions:
                for note in getattr(fault, "__notes__", ()):
                    if isinstance(note, AttributeValidationNote):
                        note.name = names[note.name]
            raise

    return inner


def _pydantic_factory(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    del converter

    def inner(value: Any, _: Any) -> Any:
        from pydantic import ValidationError

        try:
            # Through JSON, where a date is a text; by field names, not aliases, as everywhere here.
            text = json.dumps(value)
            return kind.model_validate_json(text, strict=True, by_alias=False, by_name=True)
        except ValidationError as error:
            faults = (_said_by_pydantic(fault) for fault in error.errors(include_url=False))
            raise MismatchError("; ".join(faults)) from None

    return _guarded(Mapping, "an object", inner)


def _said_by_pydantic(error: Any) -> str:
    place = ".".join(map(str, error["loc"]))
    return f"{place}: {error['msg']}" if place else str(error["msg"])


def _holds_text(hint: Any) -> bool:
    return isinstance(hint, (str, ForwardRef)) or any(map(_holds_text, get_args(hint)))


def _resolved(hint: Any, converter: Converter) -> Any:
    return override(struct_hook=lambda value, _: converter.structure(value, hint))


def _union_factory(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    # `float` is tried last, so that integers stay integers.
    members = sorted(get_args(kind), key=lambda member: member is float)
    hooks = [(member, converter.get_structure_hook(member)) for member in members]

    def hook(value: Any, _: Any) -> Any:
        inside = []
        for member, read in hooks:
            try:
                return read(value, member)
            except UNFIT as error:
                if isinstance(error, (ClassValidationError, IterableValidationError)):
                    inside.append(error)
        # The value has the shape of one member, whose faults say where they are.
        if len(inside) == 1:
            raise inside[0]
        named = " or ".join(getattr(member, "__name__", str(member)) for member in members)
        raise MismatchError(f"expected {named}, found {shown(value)}")

    return hook


def _bare(kind: Any) -> Any:
    return get_origin(kind) or kind


def _is_fixed_tuple(kind: Any) -> bool:
    return _bare(kind) is tuple and bool(get_args(kind)) and get_args(kind)[1:] != (...,)


def _is_union(kind: Any) -> bool:
    several = [member for member in get_args(kind) if member is not type(None)]
    return get_origin(kind) in (Union, types.UnionType) and len(several) > 1


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _is_class(kind: Any) -> bool:
    return isinstance(_bare(kind), type) and field_names(_bare(kind)) is not None
