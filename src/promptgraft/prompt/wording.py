"""Names and descriptions of fields as models see them, and the mapping back.

Code, stores and examples keep the own names of fields. Models are shown the first alias of a
field instead, in schemas and in examples alike, and may answer with any of its names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from types import UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.parts.descriptors import PromptDescriptor, fold_name
from promptgraft.parts.entry import EffectiveParts
from promptgraft.prompt.fields import Described, FieldInfo, fields_of, options_of
from promptgraft.prompt.schema import shown_name
from promptgraft.serde import Json, parse_json

Said: TypeAlias = Mapping[str, Described]
"""What is said of fields instead of what their annotations say, by key (``Review.severity``)."""

_Renamed: TypeAlias = "tuple[str, Json, Any]"  # the new key, the value, and its type
_Rename: TypeAlias = "Callable[[dict[str, Json], Sequence[FieldInfo]], Iterable[_Renamed]]"


def said_of_output(descriptor: PromptDescriptor, parts: EffectiveParts) -> Said:
    """Return what overrides say of the answer's fields, and what source or override of a choice.

    Fields of classes of which they say the same as the annotations are left out.
    """
    said = {}
    for field in descriptor.output_fields:
        now = parts.fields[field.field]
        as_source = (now.description, now.aliases, now.values) == (
            field.description,
            field.aliases,
            field.values,
        )
        if not as_source or (not field.name and (now.description or now.values)):
            said[field.field] = Described(now.description, aliases=now.aliases, values=now.values)
    return said


def said_of_params(params_type: Any, descriptions: Mapping[str, str]) -> Said:
    """Return what is said of a tool's parameters, with ``descriptions`` by own name."""
    return {
        field.key: attrs.evolve(field.described, description=descriptions[field.name])
        for field in fields_of(params_type)
    }


def shown_names(data: Json, kind: Any, said: Said) -> Json:
    """Return a value of type ``kind`` with the names that its schema shows for its fields."""

    def rename(found: dict[str, Json], fields: Sequence[FieldInfo]) -> Iterator[_Renamed]:
        by_name = {field.name: field for field in fields}
        for key, value in found.items():
            if field := by_name.get(key):
                name = shown_name(field.name, said.get(field.key, field.described))
                yield name, value, field.kind
            else:
                yield key, value, None

    return _renamed(data, kind, rename)


def own_names(data: Json, kind: Any, said: Said, *, where: str | None = None) -> Json:
    """Return an answer of type ``kind`` with the own names of its fields, at every depth.

    Keys may be names or aliases, in any case and with any of ``_``, ``-`` and spaces; options
    may be in any case. Keys of no field, and further names of one that is there already, are
    passed over; with ``where``, which names the data, nothing is.

    Raises:
        DataFormatError: there is a ``where``, and two keys name one field.
    """

    def rename(found: dict[str, Json], fields: Sequence[FieldInfo]) -> Iterator[_Renamed]:
        names = _names(fields, said)
        kinds = {field.name: field.kind for field in fields}
        seen: dict[str, str] = {}
        for key, value in found.items():
            name = key if key in kinds else names.get(fold_name(key))
            if name is None:
                if where is not None:
                    yield key, value, None
            elif name not in seen:
                seen[name] = key
                yield name, value, kinds[name]
            elif where is not None:
                raise DataFormatError(
                    f"{where}: `{seen[name]}` and `{key}` name one field; give it once"
                )

    return _renamed(data, kind, rename)


def shown_outcome(outcome_json: str, kind: Any, said: Said) -> str:
    """Return the outcome of a task example as an answer of type ``kind`` would be written."""
    value = parse_json(outcome_json, where="outcome")
    if isinstance(value, str):
        return value
    return json.dumps(shown_names(value, kind, said), ensure_ascii=False)


def _renamed(data: Json, kind: Any, rename: _Rename) -> Json:
    """Return data with other keys for the fields of ``kind``, at every depth."""
    if kind is str:  # most fields of most answers
        return data
    if fields := fields_of(kind):
        if not isinstance(data, dict):
            return data
        return {new: _renamed(value, each, rename) for new, value, each in rename(data, fields)}
    if options := options_of(kind):
        return _option(data, options)
    arguments = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        parts = (_renamed(data, part, rename) for part in arguments)
        return next((found for found in parts if found != data), data)
    if isinstance(data, list) and arguments:
        kinds = arguments if _is_fixed(kind) else repeat(arguments[0], len(data))
        renamed = [_renamed(item, each, rename) for item, each in zip(data, kinds)]  # noqa: B905
        return [*renamed, *data[len(renamed) :]]
    if isinstance(data, dict) and len(arguments) == 2:
        return {key: _renamed(value, arguments[1], rename) for key, value in data.items()}
    return data


def _is_fixed(kind: Any) -> bool:
    return get_origin(kind) is tuple and get_args(kind)[1:] != (...,)


def _names(fields: Sequence[FieldInfo], said: Said) -> dict[str, str]:
    """Return the field for each folded name; a field's own name goes before any alias."""
    names: dict[str, str] = {}
    for field in fields:
        for alias in said.get(field.key, field.described).aliases:
            names.setdefault(fold_name(alias), field.name)
    for field in fields:
        names[fold_name(field.name)] = field.name
    return names


def _option(data: Json, options: tuple[str, ...]) -> Json:
    if not isinstance(data, str):
        return data
    near = [option for option in options if fold_name(option) == fold_name(data)]
    return near[0] if len(near) == 1 else data
