"""JSON Schema of users' classes with descriptions of fields, and renaming of fields in data."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from itertools import repeat
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin
from uuid import UUID

import attrs

from promptgraft.errors import DataFormatError, PromptDefinitionError
from promptgraft.ground.serde import (
    Json,
    canonical_json,
    is_pydantic,
    parse_json,
    shown,
    unstructure,
)
from promptgraft.ground.strict import check_readable
from promptgraft.overrides.parts.descriptors import PromptDescriptor, fold_name
from promptgraft.overrides.parts.entry import EffectiveParts
from promptgraft.prompt.fields import (
    Described,
    FieldInfo,
    classes_in,
    fields_of,
    members_of,
    options_of,
    options_within,
    with_made_defaults,
    without_annotation,
)

JsonObject = dict[str, Json]

NOTHING_SAID = Described()
_REFERENCE = "#/$defs/"


def is_object(schema: JsonObject) -> bool:
    """Return whether the root of a schema is an object, not a choice or a reference."""
    return schema.get("type") == "object"


def schema_of(kind: Any, described: Mapping[str, Described] | None = None) -> JsonObject:
    """Return the JSON Schema of an attrs class, a dataclass or a choice.

    Args:
        kind: the type.
        described: descriptions by the key of a field (``Review.severity``) that replace those of
            annotations; a choice has its type's name as its key.

    The first alias of a field replaces its name in the schema. The meanings of options become part
    of the description of a choice, because providers differ in which other keywords they accept.

    Raises:
        PromptDefinitionError: the type has no JSON Schema, or two types inside share a name.
    """
    notes = described or {}
    owners = classes_in(kind)
    root, definitions = _components(kind)
    for owner in owners:
        # msgspec adds the module to the names that two types share.
        if owner.__name__ not in definitions:
            raise PromptDefinitionError(
                f"type `{type_name(kind)}`: two types are named `{owner.__name__}`; rename one"
            )
        _decorate(definitions[owner.__name__], owner, notes, definitions)
    if options := options_of(kind):
        text = describe(notes.get(type_name(kind), NOTHING_SAID), options)
        return {**_inlined(root, definitions), **({"description": text} if text else {})}
    return _assembled(root, definitions)


def check_round_trip(kind: Any, where: str) -> None:
    """Refuse a type whose values do not survive a round trip through JSON.

    Raises:
        PromptDefinitionError: naming the field with that type.
    """
    place = where
    try:
        for owner in reversed(classes_in(kind)):  # innermost first, to name the field at fault
            for field in fields_of(owner):
                place = f"{where}: field `{field.key}`"
                check_readable(field.kind, where=place)
                # Inside of a class, unions of classes have no schema.
                is_union = len(members_of(field.kind)) > 1
                _components(GenericAlias(list, (field.kind,)) if is_union else field.kind)
        place = where
        check_readable(kind, where=place)
        schema_of(kind)
    except DataFormatError as error:  # its message names the place already
        raise PromptDefinitionError(str(error)) from None
    except PromptDefinitionError as error:
        raise PromptDefinitionError(f"{place}: {error}") from None


def bare_schema(kind: Any) -> object:
    """Return the JSON Schema of a type and all it refers to, without descriptions."""
    root, definitions = _components(kind)
    for body in definitions.values():
        body.pop("description", None)  # the docstring
    return [root, definitions]


def type_name(kind: Any) -> str:
    """Return the name of a type in overrides; a ``Literal`` is called `answer`."""
    is_class = isinstance(kind, type) and not get_args(kind)
    return kind.__name__ if is_class else "answer"


def describe(described: Described, options: Sequence[str] = ()) -> str:
    """Return the description of a field, with the meanings of the options of a choice."""
    meanings = [
        f"{option}: {described.values[option]}" for option in options if option in described.values
    ]
    lines = [described.description, *(f"- {meaning}" for meaning in meanings)]
    return "\n".join(line for line in lines if line)


def _components(kind: Any) -> tuple[JsonObject, dict[str, JsonObject]]:
    """Return copies of the schema of a type and of the definitions that it refers to."""
    try:
        # Only classes are cached: unions may be equal and yet list their members in another order.
        read = _class_schema if isinstance(kind, type) else _raw_schema
        root, definitions = read(kind)
    except TypeError as error:
        name = type_name(kind) if isinstance(kind, type) else shown(kind)
        raise PromptDefinitionError(
            f"type `{name}` has no JSON Schema: {str(error).splitlines()[-1]}"
        ) from None
    except KeyError:  # raised by msgspec for two types with one name in one module
        raise PromptDefinitionError(
            f"type `{type_name(kind)}`: two types share a name; rename one"
        ) from None
    try:
        # Copied, and made plain: defaults may be tuples, or numbers that JSON cannot represent.
        return _plain(root), {name: _plain(body) for name, body in definitions.items()}
    except DataFormatError as error:
        raise PromptDefinitionError(f"type `{type_name(kind)}`: a default: {error}") from None


def _raw_schema(kind: Any) -> tuple[object, Mapping[str, object]]:
    import msgspec

    members = members_of(kind)
    if sum(bool(fields_of(member)) for member in members) > 1:
        # msgspec takes unions of several classes only if they are its own.
        member_schemas = [_raw_schema(member) for member in members]
        merged = {
            name: body for _, definitions in member_schemas for name, body in definitions.items()
        }
        return {"anyOf": [root for root, _ in member_schemas]}, merged
    models: JsonObject = {}
    (root,), definitions = msgspec.json.schema_components(
        (kind,),
        schema_hook=functools.partial(_schema_of_model, models=models),
        ref_template=f"{_REFERENCE}{{name}}",
    )
    # msgspec states some defaults that functions make since version 0.23; a schema, and what is
    # hashed of it, is not to depend on its version.
    for owner in classes_in(kind):
        properties = definitions.get(owner.__name__, {}).get("properties", {})
        for name in with_made_defaults(owner):
            properties.get(name, {}).pop("default", None)
    return _with_numbers(root), {**_with_numbers(definitions), **models}


def _with_numbers(schema: Any) -> Any:
    """Describe a ``Decimal`` as the number that it is written as; msgspec writes a text."""
    if isinstance(schema, Mapping):
        if schema.get("format") == "decimal" and schema.get("type") == "string":
            number = {"type": "number"}
            return number | {key: schema[key] for key in schema if key not in ("type", "format")}
        return {key: _with_numbers(value) for key, value in schema.items()}
    return [_with_numbers(item) for item in schema] if isinstance(schema, list) else schema


def _schema_of_model(kind: Any, *, models: JsonObject) -> JsonObject:
    """Return a reference to a model of pydantic, and add its definition and those inside it."""
    if not is_pydantic(kind):
        raise NotImplementedError  # how msgspec is told that a type has no schema
    template = f"{_REFERENCE}{{model}}"
    schema = kind.model_json_schema(by_alias=False, ref_template=template)
    inner = schema.pop("$defs", {})
    models.update({name: body for name, body in inner.items() if name not in models})
    # A model that holds itself is among its own definitions.
    if kind.__name__ not in inner:
        models[kind.__name__] = schema
    return {"$ref": f"{_REFERENCE}{kind.__name__}"}


# Every rollout asks for a schema; callers do not modify the cached ones.
_class_schema = functools.lru_cache(maxsize=512)(_raw_schema)


def _plain(schema: object) -> JsonObject:
    plain = unstructure(schema)
    return plain if isinstance(plain, dict) else {}


def _decorate(
    schema: JsonObject,
    owner: type,
    notes: Mapping[str, Described],
    definitions: Mapping[str, JsonObject],
) -> None:
    properties = schema.get("properties")
    # Models of pydantic leave it out if nothing is required.
    required = schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return
    decorated: JsonObject = {}
    needed: list[Json] = []
    for field in fields_of(owner):
        description = notes.get(field.key, field.described)
        body = properties.get(field.name)
        body = _inlined(body, definitions) if isinstance(body, dict) else {}
        if text := describe(description, options_within(field.kind)):
            body["description"] = text
        decorated[shown_name(field.name, description)] = body
        if field.name in required:
            needed.append(shown_name(field.name, description))
    schema["properties"] = decorated
    schema["required"] = needed


def shown_name(name: str, described: Described) -> str:
    """Return the name of a field that the model is shown."""
    return described.aliases[0] if described.aliases else name


def _inlined(schema: JsonObject, definitions: Mapping[str, JsonObject]) -> JsonObject:
    """Replace a reference to a choice by the choice, because a reference takes no description."""
    name = _referred(schema)
    target = definitions.get(name) if name else None
    if target is None or "enum" not in target:
        return dict(schema)
    choice = {key: value for key, value in target.items() if key != "title"}
    return {**choice, **{key: value for key, value in schema.items() if key != "$ref"}}


def _referred(schema: JsonObject) -> str | None:
    reference = schema.get("$ref")
    return reference.removeprefix(_REFERENCE) if isinstance(reference, str) else None


def _assembled(root: JsonObject, definitions: Mapping[str, JsonObject]) -> JsonObject:
    """Return one schema: the root, inlined unless it is recursive, and its definitions."""
    name = _referred(root)
    if name is None:
        return {**root, **({"$defs": dict(definitions)} if definitions else {})}
    definitions_left = {key: value for key, value in definitions.items() if key != name}
    if f'"{_REFERENCE}{name}"' in canonical_json(definitions):
        return {"$ref": f"{_REFERENCE}{name}", "$defs": dict(definitions)}
    body = {**definitions[name]}
    needed = _reachable(body, definitions_left)
    return {**body, **({"$defs": needed} if needed else {})}


def _reachable(schema: Json, definitions: Mapping[str, JsonObject]) -> JsonObject:
    reachable: JsonObject = {}
    waiting = [schema]
    while waiting:
        text = canonical_json(waiting.pop())
        for name, body in definitions.items():
            if name not in reachable and f'"{_REFERENCE}{name}"' in text:
                reachable[name] = body
                waiting.append(body)
    return reachable


FieldTexts: TypeAlias = Mapping[str, Described]
"""Descriptions of fields that replace those of annotations, by key (``Review.severity``)."""

_Renamed: TypeAlias = "tuple[str, Json, Any]"  # the new key, the value, and its type
_Rename: TypeAlias = "Callable[[dict[str, Json], Sequence[FieldInfo]], Iterable[_Renamed]]"


def output_descriptions(descriptor: PromptDescriptor, parts: EffectiveParts) -> FieldTexts:
    """Return the descriptions of the answer's fields that overrides changed, and of a choice."""
    descriptions = {}
    for field in descriptor.output_fields:
        now = parts.fields[field.field]
        as_source = (now.description, now.aliases, now.values) == (
            field.description,
            field.aliases,
            field.values,
        )
        # The type of a choice carries no annotations that a schema could take its descriptions
        # from.
        if not as_source or (not field.name and (now.description or now.values)):
            descriptions[field.field] = Described(
                now.description, aliases=now.aliases, values=now.values
            )
    return descriptions


def params_descriptions(params_type: Any, descriptions: Mapping[str, str]) -> FieldTexts:
    """Return descriptions of a tool's parameters, given by field name, by field key."""
    return {
        field.key: attrs.evolve(field.described, description=descriptions[field.name])
        for field in fields_of(params_type)
    }


def shown_names(data: Json, kind: Any, field_texts: FieldTexts) -> Json:
    """Rename the fields in a value of type ``kind`` to the names that the model is shown."""

    def rename(members: dict[str, Json], fields: Sequence[FieldInfo]) -> Iterator[_Renamed]:
        by_name = {field.name: field for field in fields}
        for key, value in members.items():
            if field := by_name.get(key):
                name = shown_name(field.name, field_texts.get(field.key, field.described))
                yield name, value, field.kind
            else:
                yield key, value, None

    return _renamed(data, kind, rename)


def own_names(data: Json, kind: Any, field_texts: FieldTexts, *, where: str | None = None) -> Json:
    """Rename the fields in an answer of type ``kind`` to their own names, at every depth.

    Keys may be names or aliases, in any case and with any of ``_``, ``-`` and spaces; options
    may be in any case. Unknown keys and repeated names of a field are dropped, unless ``where``,
    a name for messages, is given: then unknown keys are kept.

    Raises:
        DataFormatError: ``where`` is given, and two keys name one field.
    """

    def rename(members: dict[str, Json], fields: Sequence[FieldInfo]) -> Iterator[_Renamed]:
        names = _names(fields, field_texts)
        kinds = {field.name: field.kind for field in fields}
        names_seen: dict[str, str] = {}
        for key, value in members.items():
            name = key if key in kinds else names.get(fold_name(key))
            if name is None:
                if where is not None:
                    yield key, value, None
            elif name not in names_seen:
                names_seen[name] = key
                yield name, value, kinds[name]
            elif where is not None:
                raise DataFormatError(
                    f"{where}: `{names_seen[name]}` and `{key}` name one field; give it once"
                )

    return _renamed(data, kind, rename)


def shown_outcome(outcome_json: str, kind: Any, field_texts: FieldTexts) -> str:
    """Return the outcome of a task example as a model would write it."""
    value = parse_json(outcome_json, where="outcome")
    if isinstance(value, str):
        return value
    return json.dumps(shown_names(value, kind, field_texts), ensure_ascii=False)


def _renamed(data: Json, kind: Any, rename: _Rename) -> Json:
    """Return data with other keys for the fields of ``kind``, at every depth."""
    if kind is str:  # the most common case
        return data
    if get_origin(kind) is Annotated:
        return _renamed(data, get_args(kind)[0], rename)
    if fields := fields_of(kind):
        if not isinstance(data, dict):
            return data
        return {new: _renamed(value, each, rename) for new, value, each in rename(data, fields)}
    if options := options_of(kind):
        return _option(data, options)
    arguments = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        classes = [part for part in arguments if fields_of(part)]
        if isinstance(data, dict) and len(classes) > 1:
            # The member of the union that knows most of its keys.
            renamings = [_renamed(data, part, rename) for part in classes]
            objects = [renaming for renaming in renamings if isinstance(renaming, dict)]
            return max(objects, key=lambda one: (len(one), one != data))
        # The first member that renames anything is taken for the type of the value.
        parts = (_renamed(data, part, rename) for part in arguments)
        return next((renaming for renaming in parts if renaming != data), data)
    if isinstance(data, list) and arguments:
        is_fixed = get_origin(kind) is tuple and arguments[1:] != (...,)
        kinds = arguments if is_fixed else repeat(arguments[0], len(data))
        # Not strict: a tuple of the wrong length is left to the converter, which names the fault.
        renamed = [_renamed(item, each, rename) for item, each in zip(data, kinds)]  # noqa: B905
        return [*renamed, *data[len(renamed) :]]
    if isinstance(data, dict) and len(arguments) == 2:
        return {key: _renamed(value, arguments[1], rename) for key, value in data.items()}
    return data


def _names(fields: Sequence[FieldInfo], field_texts: FieldTexts) -> dict[str, str]:
    """Return the field for each folded name; own names take precedence over aliases."""
    names: dict[str, str] = {}
    for field in fields:
        for alias in field_texts.get(field.key, field.described).aliases:
            names.setdefault(fold_name(alias), field.name)
    for field in fields:
        names[fold_name(field.name)] = field.name
    return names


def _option(data: Json, options: tuple[str, ...]) -> Json:
    if not isinstance(data, str):
        return data
    # If several are written alike, none is guessed.
    near = [option for option in options if fold_name(option) == fold_name(data)]
    return near[0] if len(near) == 1 else data


_WRAPPING = " \t\r\n`*\"'"


def takes_bare_text(kind: Any) -> bool:
    """Return whether a text that is no JSON may be a value: a text, a date, a time or a choice."""
    return any(_is_text(member) for member in members_of(kind))


def bare_value(kind: Any, text: str) -> str | None:
    """Return a bare text as a value of a type that takes one; None where it stands for nothing."""
    bare = text.strip(_WRAPPING)
    is_nothing = bare.casefold().rstrip(".") in ("null", "none", "")
    return None if is_nothing and NoneType in members_of(kind) else bare


def _is_text(kind: Any) -> bool:
    bare = without_annotation(kind)
    while made_of := getattr(bare, "__supertype__", None):  # of a NewType, perhaps of another one
        bare = without_annotation(made_of)
    return bool(options_of(bare)) or (
        isinstance(bare, type) and issubclass(bare, (str, date, time, UUID))
    )
