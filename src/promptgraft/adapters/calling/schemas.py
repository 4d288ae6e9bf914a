"""JSON Schema in the strict form that providers require for structured output."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal, Self

import attrs

from promptgraft.adapters.facts import ModelFacts, Vision
from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import Json, parse_json
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.schema import JsonObject, is_object

_FIELD = "answer"
_KEPT = frozenset({"type", "enum", "const"})
_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}

THOUGHTS = 500
"""Expected tokens of thinking before an answer, at the usual effort of a model that thinks."""


@attrs.frozen(kw_only=True)
class SchemaRules:
    """What a provider accepts in a schema for structured output.

    Attributes:
        keywords: keywords that it accepts besides those for structure, types and choices.
        all_required: whether every property must be required.
        recursive: whether a definition may refer to itself.
    """

    keywords: frozenset[str]
    all_required: bool
    recursive: bool


@attrs.frozen(kw_only=True)
class ModelProfile:
    """The capabilities of a model that all providers have in common.

    Attributes:
        structured_output: `native` if the API enforces a JSON Schema; `text` if the schema must be
            stated in the prompt.
        seller: the provider whose prices apply, as `genai-prices` names it; None if unknown.
        thinking: expected tokens of thinking before an answer, for plans.
        assumed: whether it is not known that the model thinks, but assumed.
        efforts: the thinking efforts that the provider knows; empty if they are not known.
        cached_from: tokens of the shortest beginning of a prompt that is cached; 0 for none.
        vision: how the model reads images, ``none`` if it sees none; None if that is not known.
        image_rate: the factor of the rule for the tokens of an image.
    """

    schema_rules: ClassVar[SchemaRules]

    structured_output: Literal["native", "text"] = "text"
    seller: str | None = None
    thinking: int = 0
    # Not part of the repr, which identifies the runs of users with a profile of their own.
    assumed: bool = attrs.field(default=False, repr=False)
    efforts: tuple[str, ...] = attrs.field(default=(), repr=False)
    cached_from: int = attrs.field(default=0, repr=False)
    vision: Vision | None = attrs.field(default=None, repr=False)
    image_rate: float = attrs.field(default=1.0, repr=False)

    @classmethod
    def of(cls, facts: ModelFacts | None, **further: Any) -> Self:
        """Return the profile of a model; None as ``facts`` for one of which nothing is known."""
        if facts is None:
            return cls(thinking=THOUGHTS, assumed=True)
        fields = {
            "structured_output": "native" if facts.structured else "text",
            "thinking": THOUGHTS if facts.may_think else 0,
            "assumed": facts.thinks is None,
            "efforts": facts.efforts,
            "vision": facts.vision,
            "image_rate": facts.image_rate,
        }
        return cls(**{**fields, **further})

    def seeing(self, vision: bool | None) -> Self:
        """Return the same with what a user says of whether the model sees; None for nothing."""
        if vision is None or vision == self.sees:
            return self
        return attrs.evolve(self, vision="some" if vision else "none")

    @property
    def sees(self) -> bool | None:
        """Whether the model sees images; None if that is not known."""
        return None if self.vision is None else self.vision != "none"

    @property
    def rules(self) -> SchemaRules | None:
        """What the model accepts as the schema of its answer; None if it accepts none."""
        return self.schema_rules if self.structured_output == "native" else None


class InexpressibleError(ValueError):
    """A schema contains something that a provider cannot enforce."""


def native_schema(rendered: RenderedPrompt[object], rules: SchemaRules | None) -> JsonObject | None:
    """Return the schema for structured output; None if it is stated in the text instead."""
    schema = rendered.output_schema
    return None if schema is None or rules is None else strict_schema(schema, rules)


def strict_schema(schema: JsonObject, rules: SchemaRules) -> JsonObject | None:
    """Return an equivalent schema that follows the rules; None if there is none.

    Objects with arbitrary keys, tuples, and values of any type cannot be enforced. A root that is
    not an object is wrapped in the field ``answer`` of one. Keywords that the provider does not
    accept move to the description.
    """
    if not rules.recursive and _is_recursive(schema):
        return None
    try:
        return _strict(schema if is_object(schema) else _wrapped(schema), rules)
    except InexpressibleError:
        return None


def with_object_root(schema: JsonObject) -> JsonObject:
    """Return a schema with the definition of its root in place of a reference."""
    definitions = schema.get("$defs")
    reference = schema.get("$ref")
    if isinstance(definitions, dict) and isinstance(reference, str):
        body = definitions.get(reference.rpartition("/")[2])
        if isinstance(body, dict):
            return {**body, "$defs": definitions}
    return schema


def answer_in(rendered: RenderedPrompt[object], rules: SchemaRules | None, text: str) -> str:
    """Return the text of an answer, unwrapped from the field ``answer`` if the schema wraps it."""
    schema = rendered.output_schema
    if schema is None or is_object(schema) or native_schema(rendered, rules) is None:
        return text
    try:
        data = parse_json(text, where="answer")
    except DataFormatError:
        return text
    # Anything else goes on as it is, so that the parser of the output type says what is wrong.
    if not isinstance(data, dict) or set(data) != {_FIELD}:
        return text
    answer = data[_FIELD]
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def _wrapped(schema: JsonObject) -> JsonObject:
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {"type": "object", "properties": {_FIELD: inner}, "required": [_FIELD], **definitions}


def _strict(schema: Json, rules: SchemaRules) -> JsonObject:
    if not isinstance(schema, dict):
        raise InexpressibleError
    members = {key: value for key, value in schema.items() if key not in {"title", "description"}}
    strict: JsonObject = {}
    if "$defs" in members:
        strict["$defs"] = _each(members.pop("$defs"), rules)
    for key in ("anyOf", "oneOf"):
        if key in members:
            choices = members.pop(key)
            strict["anyOf"] = (
                [_strict(choice, rules) for choice in choices] if isinstance(choices, list) else []
            )
    if "$ref" in members:
        # Wrapped, because the strict form allows no description beside a reference.
        strict["anyOf"] = [{"$ref": members.pop("$ref")}]
    strict.update({key: members.pop(key) for key in sorted(_KEPT & members.keys())})
    if "enum" in strict and "type" not in strict:
        strict["type"] = _kind_of(strict["enum"])
    match strict.get("type"):
        case "object":
            _add_object(strict, members, rules)
        case "array":
            strict["items"] = _strict(members.pop("items", None), rules)
        case None if "anyOf" not in strict and "const" not in strict:
            raise InexpressibleError
    strict.update({key: members.pop(key) for key in sorted(rules.keywords & members.keys())})
    return _bare_reference(_described(strict, schema.get("description"), members))


def _add_object(strict: JsonObject, unsupported: JsonObject, rules: SchemaRules) -> None:
    if unsupported.pop("additionalProperties", False) is not False:
        raise InexpressibleError
    properties = _each(unsupported.pop("properties", {}), rules)
    required = unsupported.pop("required", [])
    strict["properties"] = properties
    # OpenAI knows no optional fields; a class accepts a value for each of its own.
    strict["required"] = list(properties) if rules.all_required else required
    strict["additionalProperties"] = False


def _each(schemas: Json, rules: SchemaRules) -> JsonObject:
    if not isinstance(schemas, dict):
        raise InexpressibleError
    return {name: _strict(body, rules) for name, body in schemas.items()}


def _kind_of(options: Json) -> Json:
    values = options if isinstance(options, list) else []
    kinds = sorted({_KINDS[type(value)] for value in values})
    return kinds[0] if len(kinds) == 1 else [*kinds]


def _described(strict: JsonObject, description: Json, unsupported: JsonObject) -> JsonObject:
    """Return a schema with its description, to which unsupported keywords are added."""
    notes = [
        f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in unsupported.items()
    ]
    sentences = [description] if isinstance(description, str) and description else []
    text = "\n".join([*sentences, *([f"({', '.join(notes)})"] if notes else [])])
    return {**strict, "description": text} if text else strict


def _bare_reference(schema: JsonObject) -> JsonObject:
    """Return a plain reference instead of an ``anyOf`` that holds nothing else."""
    match schema:
        case {"anyOf": [{"$ref": reference, **inner}], **others} if not inner and not others:
            return {"$ref": reference}
    return schema


def _is_recursive(schema: JsonObject) -> bool:
    definitions = schema.get("$defs")
    if not isinstance(definitions, dict):
        return False
    refers = {name: _references(body) for name, body in definitions.items()}
    reached = dict(refers)
    # A chain of references is at most as long as there are definitions.
    for _ in refers:
        reached = {
            name: reached_names.union(*(refers[name] for name in reached_names if name in refers))
            for name, reached_names in reached.items()
        }
    return any(name in reached_names for name, reached_names in reached.items())


def _references(schema: Json) -> frozenset[str]:
    match schema:
        case {"$ref": str(reference)}:
            return frozenset({reference.rpartition("/")[2]})
        case dict():
            return frozenset().union(*(_references(inner) for inner in schema.values()))
        case list():
            return frozenset().union(*(_references(inner) for inner in schema))
    return frozenset()
