"""Kinds that follow from attrs classes: what a class takes, a file may say."""

from __future__ import annotations

import collections.abc
import inspect
import re
import types
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import attrs

from promptgraft.errors import ConfigError
from promptgraft.serde import shown
from promptgraft.strict.checks import (
    ANYTHING,
    DOLLARS,
    FLAG,
    INTEGER,
    MOMENT,
    NUMBER,
    OBJECT,
    STRING,
    TEXT,
    Check,
    Kind,
    Schema,
    one_of,
)
from promptgraft.strict.kinds import Key, Keys, listed, named, record, refusing, tagged
from promptgraft.strict.nodes import Node

T = TypeVar("T")

_ENTRY = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)
_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_SCALARS: Mapping[object, Kind[object]] = {
    bool: FLAG,
    int: INTEGER,
    float: NUMBER,
    str: STRING,
    datetime: MOMENT,
    Decimal: DOLLARS,
    Path: TEXT,
}


def record_of(
    kind: type[T],
    *,
    make: Callable[..., T] | None = None,
    skip: Collection[str] = (),
    special: Mapping[str, Kind[object]] | None = None,
    aliases: Mapping[str, str] | None = None,
    left_out: Collection[str] = (),
    about: str = "",
    rules: Schema | None = None,
) -> Kind[T]:
    """Return the kind of objects that an attrs class is made of.

    See :func:`keys_of` and :func:`~promptgraft.strict.kinds.record`.
    """
    keys = keys_of(kind, skip=skip, special=special)
    return record(make or kind, keys, aliases=aliases, left_out=left_out, about=about, rules=rules)


def keys_of(
    kind: type, *, skip: Collection[str] = (), special: Mapping[str, Kind[object]] | None = None
) -> Keys:
    """Return a key for each field of an attrs class, held against the validators of the class.

    Args:
        kind: the class; its docstring says what the fields are for.
        skip: fields that are left out.
        special: kinds of fields whose types say too little.

    Raises:
        ConfigError: it is no attrs class.
    """
    told = abouts_of(kind)
    return {
        field.name: Key(
            (special or {}).get(field.name) or _kind_of(field),
            told.get(field.name, ""),
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
    """Return what the docstring of a class says of its fields, by name, each in one line."""
    said = "\n".join(inspect.cleandoc(one.__doc__ or "") for one in reversed(kind.__mro__))
    return {name: " ".join(text.split()).replace("``", "`") for name, text in _ENTRY.findall(said)}


def kind_for(hint: object) -> Kind[object]:
    """Return the kind of values that a type annotation stands for; one of none refuses them all."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin in (Union, types.UnionType):
        rest = [one for one in inner if one is not type(None)]
        return kind_for(rest[0]) if len(rest) == 1 else class_of(*rest)
    if origin is Literal:
        return one_of(*map(str, inner))
    if origin in (tuple, collections.abc.Sequence):
        return listed(kind_for(inner[0]))
    if origin is collections.abc.Mapping:
        return OBJECT if inner[1] is object else named(kind_for(inner[1]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return one_of(*(str(member.value) for member in hint))
    if isinstance(hint, type) and attrs.has(hint):
        return record_of(hint)
    return _no_kind(hint)


def _no_kind(hint: object) -> Kind[object]:
    def read(node: Node) -> None:
        node.fault(f"no value of a file can be {shown(hint)}; leave it out")

    return Kind(read)


def class_of(*classes: type[T]) -> Kind[T]:
    """Return the kind of values that are named as their class: ``{max_proposals: {...}}``.

    A class that needs nothing may stand alone: ``strict``.
    """
    made = {_WORD.sub("_", one.__name__).lower(): one for one in classes}
    needed = {
        name: [field.name for field in _fields_of(one) if field.default is attrs.NOTHING]
        for name, one in made.items()
    }
    spelled = (
        f"`{name}: {{{', '.join(f'{field}: ...' for field in fields)}}}`" if fields else f"`{name}`"
        for name, fields in needed.items()
    )
    return tagged(
        {name: record_of(one) for name, one in made.items()},
        bare={name: one for name, one in made.items() if not needed[name]},
        what=f"one of {', '.join(spelled)}",
    )


def _kind_of(field: attrs.Attribute[Any]) -> Kind[object]:
    """Return the kind of a field: its check, or its type with what its validator refuses."""
    validator = field.validator
    if isinstance(validator, Check) and validator.schema:  # other checks hold objects of Python
        return validator
    kind = ANYTHING if field.metadata.get("plain") else kind_for(field.type)
    if validator is None:
        return kind
    hold = validator

    def read(node: Node) -> object:
        value = kind.read(node)
        if value is not None:
            refusing(lambda given: hold(None, field, given), value, node)
        return value

    return Kind(read, kind.schema)
