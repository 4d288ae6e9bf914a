"""JSON Schema of users' classes, with what people and overrides say about their fields."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from promptgraft.errors import DataFormatError, PromptDefinitionError
from promptgraft.prompt.fields import Described, classes_in, fields_of, options_of, options_within
from promptgraft.serde import Json, canonical_json, shown, unstructure
from promptgraft.strict import check_readable

JsonObject = dict[str, Json]

NOTHING_SAID = Described()
_REFERENCE = "#/$defs/"


def schema_of(kind: Any, described: Mapping[str, Described] | None = None) -> JsonObject:
    """Return the JSON Schema of an attrs class, a dataclass or a choice.

    Args:
        kind: the type.
        described: what is said of a field by its key (``Review.severity``) instead of what
            its annotation says; a choice has its type's name as its key.

    The first alias of a field replaces its name in the schema, and the meanings of the
    options of a choice become part of its description, because providers differ in what else
    they accept.

    Raises:
        PromptDefinitionError: the type has no JSON Schema, or two of its types share a name.
    """
    notes = described or {}
    owners = classes_in(kind)
    root, definitions = _components(kind)
    for owner in owners:
        if owner.__name__ not in definitions:
            raise PromptDefinitionError(
                f"type `{type_name(kind)}`: two types are named `{owner.__name__}`; rename one"
            )
        _decorate(definitions[owner.__name__], owner, notes, definitions)
    if options := options_of(kind):
        text = describe(notes.get(type_name(kind), NOTHING_SAID), options)
        return {**_inlined(root, definitions), **({"description": text} if text else {})}
    return _assembled(root, definitions)


def check_carried(kind: Any, where: str) -> None:
    """Refuse a type whose values JSON cannot carry there and back.

    Raises:
        PromptDefinitionError: naming the field whose type it is.
    """
    place = where
    try:
        for owner in reversed(classes_in(kind)):  # the innermost first, whose field is at fault
            for field in fields_of(owner):
                place = f"{where}: field `{field.key}`"
                check_readable(field.kind, where=place)
                _components(field.kind)
        place = where
        check_readable(kind, where=place)
        schema_of(kind)
    except DataFormatError as error:  # names the place itself
        raise PromptDefinitionError(str(error)) from None
    except PromptDefinitionError as error:
        raise PromptDefinitionError(f"{place}: {error}") from None


def bare_schema(kind: Any) -> object:
    """Return the JSON Schema of a type and all it refers to, without what people say of it."""
    root, definitions = _components(kind)
    for body in definitions.values():
        body.pop("description", None)  # the docstring
    return [root, definitions]


def type_name(kind: Any) -> str:
    """Return the name of a type, as overrides use it; a ``Literal`` is called `answer`."""
    return kind.__name__ if isinstance(kind, type) else "answer"


def describe(said: Described, options: Sequence[str] = ()) -> str:
    """Return the description of a field, with the meanings of the options of a choice."""
    meanings = [f"{option}: {said.values[option]}" for option in options if option in said.values]
    lines = [said.description, *(f"- {meaning}" for meaning in meanings)]
    return "\n".join(line for line in lines if line)


def _components(kind: Any) -> tuple[JsonObject, dict[str, JsonObject]]:
    """Return the schema of a type and the definitions it refers to, both free to change."""
    try:
        # Other types than classes may be equal and yet have their members in another order.
        read = _class_schema if isinstance(kind, type) else _raw_schema
        root, definitions = read(kind)
    except TypeError as error:
        name = type_name(kind) if isinstance(kind, type) else shown(kind)
        raise PromptDefinitionError(
            f"type `{name}` has no JSON Schema: {str(error).splitlines()[-1]}"
        ) from None
    except KeyError:  # what msgspec says of two types with one name in one module
        raise PromptDefinitionError(
            f"type `{type_name(kind)}`: two types share a name; rename one"
        ) from None
    try:
        # Copies; and defaults may be tuples, or numbers that JSON cannot hold.
        return _plain(root), {name: _plain(body) for name, body in definitions.items()}
    except DataFormatError as error:
        raise PromptDefinitionError(f"type `{type_name(kind)}`: a default: {error}") from None


def _raw_schema(kind: Any) -> tuple[object, Mapping[str, object]]:
    import msgspec

    (root,), definitions = msgspec.json.schema_components(
        (kind,), ref_template=f"{_REFERENCE}{{name}}"
    )
    return root, definitions


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
    required = schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return
    shown: JsonObject = {}
    needed: list[Json] = []
    for field in fields_of(owner):
        said = notes.get(field.key, field.described)
        body = properties.get(field.name)
        body = _inlined(body, definitions) if isinstance(body, dict) else {}
        if text := describe(said, options_within(field.kind)):
            body["description"] = text
        shown[shown_name(field.name, said)] = body
        if field.name in required:
            needed.append(shown_name(field.name, said))
    schema["properties"] = shown
    schema["required"] = needed


def shown_name(name: str, said: Described) -> str:
    """Return the name of a field as the model is shown it."""
    return said.aliases[0] if said.aliases else name


def _inlined(schema: JsonObject, definitions: Mapping[str, JsonObject]) -> JsonObject:
    """Replace a reference to a choice by the choice: a reference takes no description."""
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
    """Return one schema: the root itself where nothing refers to it, and what it refers to."""
    name = _referred(root)
    if name is None:
        return {**root, **({"$defs": dict(definitions)} if definitions else {})}
    others = {key: value for key, value in definitions.items() if key != name}
    if f'"{_REFERENCE}{name}"' in canonical_json(definitions):
        return {"$ref": f"{_REFERENCE}{name}", "$defs": dict(definitions)}
    body = {**definitions[name]}
    needed = _reachable(body, others)
    return {**body, **({"$defs": needed} if needed else {})}


def _reachable(schema: Json, definitions: Mapping[str, JsonObject]) -> JsonObject:
    found: JsonObject = {}
    waiting = [schema]
    while waiting:
        text = canonical_json(waiting.pop())
        for name, body in definitions.items():
            if name not in found and f'"{_REFERENCE}{name}"' in text:
                found[name] = body
                waiting.append(body)
    return found
