"""The documented shapes of requests, as the providers' own SDKs declare them."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator

import jsonschema
import pydantic
from jsonschema.exceptions import ValidationError, best_match

from promptgraft.ground.serde import Json, shown
from servers.behaviour import JsonObject

_DEEPEST = 10


@functools.cache
def shape_of(kind: type) -> jsonschema.Draft202012Validator:
    """Return what checks requests of a TypedDict of an SDK; keys it does not have are refused."""
    return jsonschema.Draft202012Validator(_closed(pydantic.TypeAdapter(kind).json_schema()))


def _closed(schema: JsonObject) -> JsonObject:
    closed = {key: _closed_value(value) for key, value in schema.items()}
    return {"additionalProperties": False, **closed} if "properties" in schema else closed


def _closed_value(value: Json) -> Json:
    if isinstance(value, list):
        return [_closed_value(item) for item in value]
    return _closed(value) if isinstance(value, dict) else value


def misfit(kind: type, body: JsonObject) -> tuple[str, str] | None:
    """Return place and fault of a body that does not have its documented shape; else None."""
    error = best_match(shape_of(kind).iter_errors(body))
    if error is None:
        return None
    error = _deepest(error)
    place = ".".join(str(step) for step in error.absolute_path)
    return place or "body", shown(error.message)


def _deepest(error: ValidationError) -> ValidationError:
    while error.context:
        error = max(error.context, key=lambda inner: len(inner.absolute_path))
    return error


def loose_places(
    schema: Json, *, keywords: Collection[str], all_required: bool
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield places and faults of a JSON Schema that a provider does not take as strict.

    Args:
        schema: the schema.
        keywords: what it may hold beside what every provider takes.
        all_required: whether every property must be required.
    """
    yield from _loose(schema, (), frozenset(keywords) | _COMMON, all_required)


_COMMON = frozenset(
    {
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "description",
        "enum",
        "format",
        "items",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
    }
)


def _loose(
    schema: Json, place: tuple[str, ...], keywords: frozenset[str], all_required: bool
) -> Iterator[tuple[tuple[str, ...], str]]:
    if not isinstance(schema, dict):
        yield place, "schema must be an object"
        return
    if len(place) > 2 * _DEEPEST:
        yield place, f"schema is nested deeper than {_DEEPEST} levels"
        return
    for keyword in sorted(set(schema) - keywords):
        yield place, f"'{keyword}' is not supported"
    if not {"type", "anyOf", "$ref", "enum", "const"} & set(schema):
        yield place, "schema must have a 'type' key"
    if "$ref" in schema and set(schema) - {"$ref", "$defs"}:
        others = sorted(set(schema) - {"$ref", "$defs"})
        yield place, f"$ref cannot have keywords {others}"
    yield from ((place, fault) for fault in _loose_object(schema, all_required))
    for name, inner in _inner(schema):
        yield from _loose(inner, (*place, *name), keywords, all_required)


def _loose_object(schema: JsonObject, all_required: bool) -> Iterator[str]:
    if schema.get("type") != "object":
        return
    if schema.get("additionalProperties") is not False:
        yield "'additionalProperties' is required to be supplied and to be false"
    properties, required = schema.get("properties"), schema.get("required")
    if not all_required or not isinstance(properties, dict):
        return
    if not isinstance(required, list) or set(properties) != set(map(str, required)):
        yield (
            "'required' is required to be supplied and to be an array including every key in "
            "properties"
        )


def _inner(schema: JsonObject) -> Iterator[tuple[tuple[str, ...], Json]]:
    for key in ("properties", "$defs"):
        named = schema.get(key)
        if isinstance(named, dict):
            yield from (((key, name), inner) for name, inner in named.items())
    listed = schema.get("anyOf")
    if isinstance(listed, list):
        yield from ((("anyOf", str(index)), inner) for index, inner in enumerate(listed))
    if "items" in schema:
        yield ("items",), schema["items"]


def is_recursive(schema: JsonObject) -> bool:
    """Tell whether a definition of a schema refers to itself, directly or not."""
    definitions = schema.get("$defs")
    if not isinstance(definitions, dict):
        return False
    refers = {name: set(_references(body)) for name, body in definitions.items()}
    return any(name in _reached(name, refers) for name in refers)


def _references(value: Json) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str):
            yield reference.rpartition("/")[2]
        for item in value.values():
            yield from _references(item)


def _reached(name: str, refers: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = refers.get(waiting.pop(), set()) - found
        found |= new
        waiting.extend(new)
    return found
