"""The metric that validates answers by a JSON Schema, with a time limit for its patterns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.metrics.base import BaseMetric
from promptgraft.evals.metrics.json_values import some
from promptgraft.evals.metrics.patterns import StuckPatternError, hold_pattern, search
from promptgraft.evals.metrics.reading import answer_data, check_library, spelled
from promptgraft.evals.types import Answer, Case, MetricKind, Verdict
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import Json, canonical_json, parse_json, shown
from promptgraft.ground.strict.checks import FLAG, OBJECT, Kind
from promptgraft.ground.strict.kinds import record_of
from promptgraft.ground.strict.nodes import Node, read_source

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

_Object: TypeAlias = "dict[str, Json]"
Keyword: TypeAlias = "Callable[[Validator, Json, Json, _Object], Iterator[ValidationError]]"
"""A keyword of a schema: maps its value, the instance and the whole schema to faults."""


def _schema(
    _: object, attribute: attrs.Attribute[Mapping[str, Json]], value: Mapping[str, Json]
) -> None:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{attribute.name}: expected an object, found {shown(value)}")
    message = f"{attribute.name}: expected a JSON Schema"
    check_library("jsonschema", "4.23", "json_schema")
    from jsonschema import SchemaError

    text = canonical_json(value)
    if not isinstance(value.get("$schema", ""), str):
        raise ConfigError(f"{message}, found {shown(value['$schema'])} as `$schema`")
    # The library matches those patterns inside of the keyword, where none of ours can replace it.
    if '"unevaluatedProperties"' in text and '"patternProperties"' in text:
        raise ConfigError(
            f"{message} without `unevaluatedProperties` beside `patternProperties`, whose matches "
            "have no time limit; use `additionalProperties`"
        )
    try:
        for pattern in _patterns(_parsed(text)):
            hold_pattern(pattern)
        _validator(text).check_schema(_parsed(text))
    except ConfigError as error:
        raise ConfigError(f"{attribute.name}: {error}") from None
    except SchemaError as error:
        place = spelled(tuple(error.absolute_path))
        raise ConfigError(f"{message}, found a fault at `{place}`: {error.message}") from None
    except RecursionError:
        raise ConfigError(f"{message}, found one that is nested too deeply") from None


def _patterns(schema: Json) -> Iterator[str]:
    """Yield the patterns in a schema, without those in data such as ``enum``."""
    if isinstance(schema, list):
        for item in schema:
            yield from _patterns(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "pattern" and isinstance(value, str):
                yield value
            elif key == "patternProperties" and isinstance(value, dict):
                yield from value
            if key not in {"const", "default", "enum", "examples"}:
                yield from _patterns(value)


@attrs.frozen(kw_only=True)
class JsonSchema(BaseMetric):
    """1 if the answer is JSON that fits a JSON Schema, else 0.

    The draft is that of ``$schema``, or the newest. References to other documents are refused.

    Attributes:
        schema: the schema.
        fenced: the JSON of the answer may be in a Markdown code fence.
    """

    kind: ClassVar[str] = "json_schema"

    schema: Mapping[str, Json] = attrs.field(
        converter=FrozenMap[str, Json], validator=_schema, hash=False
    )
    fenced: bool = attrs.field(default=False, validator=FLAG)

    def assess(self, case: Case, answer: Answer) -> Verdict:
        from referencing.exceptions import Unresolvable

        data = answer_data(answer, fenced=self.fenced)
        try:
            # The validator is cached by the text of the schema, because a mapping has no hash.
            faults = _validator(canonical_json(self.schema)).iter_errors(data)
            errors = sorted(faults, key=lambda error: list(map(str, error.path)))
        except StuckPatternError as error:
            return self.unscored(str(error))
        except Unresolvable as error:
            raise ConfigError(f"metric `{self.name}`: the schema refers to {error}") from None
        except RecursionError:
            raise ConfigError(f"metric `{self.name}`: the schema refers to itself") from None
        except (ArithmeticError, ValueError) as error:  # numbers that no float can hold
            return self.verdict(0.0, f"the answer cannot be validated by the schema: {error}")
        if not errors:
            return self.verdict(1.0, "the answer fits the schema")
        reasons = [f"`{spelled(tuple(error.absolute_path))}`: {error.message}" for error in errors]
        return self.verdict(0.0, f"the answer does not fit the schema: {some(reasons)}")


def _read_schema(node: Node) -> dict[str, Json] | None:
    """Return a schema that is given as an object or as the path of a file."""
    if not isinstance(node.value, str):
        return OBJECT.read(node)
    if (path := node.file()) is None:
        return None
    try:
        source = read_source(path)
        schema = OBJECT.read(source.root)
        source.raise_all()
    except DataFormatError as error:
        node.fault(error.faults[0])
        return None
    return schema


JSON_SCHEMA = MetricKind(
    name="json_schema", build=record_of(JsonSchema, special={"schema": Kind(_read_schema)}).read
)
"""The metric in files, where the schema may be the path of another file."""


@functools.lru_cache(maxsize=64)
def _validator(schema: str) -> Validator:
    from jsonschema import validators
    from referencing import Registry

    plain = _parsed(schema)
    base = validators.validator_for(plain)
    extend: Callable[..., type[Validator]] = validators.extend
    # The registry is empty, so references to other documents fail and nothing is fetched.
    return extend(base, _keywords(base))(plain, registry=Registry())


def _parsed(schema: str) -> _Object:
    plain = parse_json(schema, where="schema")
    assert isinstance(plain, dict)  # noqa: S101 - it was one
    return plain


def _keywords(base: type[Validator]) -> dict[str, Keyword]:
    """Return replacements for the keywords with patterns.

    jsonschema matches patterns with ``re``, without a time limit.
    """
    from jsonschema import ValidationError

    inside: Keyword = base.VALIDATORS["properties"]
    additional_rule: Keyword = base.VALIDATORS["additionalProperties"]

    def text(_: Validator, value: Json, found: Json, __: _Object) -> Iterator[ValidationError]:
        if isinstance(found, str) and search(str(value), found) is None:
            yield ValidationError(f"{found!r} does not match {value!r}")

    def matching(
        validator: Validator, value: Json, found: Json, schema: _Object
    ) -> Iterator[ValidationError]:
        for pattern, inner in value.items() if isinstance(value, dict) else ():
            keys: _Object = dict.fromkeys(_matched([pattern], found), inner)
            yield from inside(validator, keys, found, schema)

    def additional(
        validator: Validator, value: Json, found: Json, schema: _Object
    ) -> Iterator[ValidationError]:
        patterns, properties = (schema.get(name) for name in ("patternProperties", "properties"))
        keys = _matched(patterns if isinstance(patterns, dict) else (), found)
        named = {
            **{key: {} for key in keys},
            **(properties if isinstance(properties, dict) else {}),
        }
        # The library's own keyword would match these patterns again, with `re`.
        rest = {name: of for name, of in schema.items() if name != "patternProperties"}
        yield from additional_rule(validator, value, found, {**rest, "properties": named})

    return {"pattern": text, "patternProperties": matching, "additionalProperties": additional}


def _matched(patterns: Iterable[str], found: Json) -> list[str]:
    keys = found if isinstance(found, dict) else ()
    return [key for key in keys if any(search(pattern, key) for pattern in patterns)]
