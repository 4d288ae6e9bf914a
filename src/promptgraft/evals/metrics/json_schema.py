"""The metric that holds answers against a JSON Schema."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.metrics.base import BaseMetric
from promptgraft.evals.metrics.json_values import some
from promptgraft.evals.metrics.reading import answer_data, spelled, wanted
from promptgraft.evals.metrics.registry import MetricKind
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.frozenmap import FrozenMap
from promptgraft.serde import Json, canonical_json, parse_json, shown, unstructure
from promptgraft.strict.checks import OBJECT, Kind
from promptgraft.strict.kinds import record_of
from promptgraft.strict.nodes import Node, read_source

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


def _schema(
    _: object, attribute: attrs.Attribute[Mapping[str, Json]], value: Mapping[str, Json]
) -> None:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{attribute.name}: expected an object, found {shown(value)}")
    with wanted("jsonschema", "json_schema"):
        from jsonschema import SchemaError
        from jsonschema.validators import validator_for
    plain = _object(unstructure(value))
    try:
        validator_for(plain).check_schema(plain)
    except SchemaError as error:
        raise ConfigError(
            f"{attribute.name}: expected a JSON Schema, found a fault at "
            f"`{spelled(tuple(error.absolute_path))}`: {error.message}"
        ) from None


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


@attrs.frozen(kw_only=True)
class JsonSchema(BaseMetric):
    """1 when the answer is JSON that fits a JSON Schema, else 0.

    The draft is that of ``$schema``, or the newest. References to other documents are refused.

    Attributes:
        schema: the schema.
        fenced: the JSON of an answer may stand in a block between back-ticks.
    """

    kind: ClassVar[str] = "json_schema"

    schema: Mapping[str, Json] = attrs.field(converter=FrozenMap[str, Json], validator=_schema)
    fenced: bool = False

    def assess(self, case: Case, answer: Answer) -> Verdict:  # noqa: ARG002
        from referencing.exceptions import Unresolvable

        found = answer_data(answer, fenced=self.fenced)
        try:
            faults = _validator(canonical_json(self.schema)).iter_errors(found)
            errors = sorted(faults, key=lambda error: list(map(str, error.path)))
        except Unresolvable as error:
            raise ConfigError(f"metric `{self.name}`: the schema refers to {error}") from None
        if not errors:
            return self.verdict(1.0, "the answer fits the schema")
        said = [f"`{spelled(tuple(error.absolute_path))}`: {error.message}" for error in errors]
        return self.verdict(0.0, f"the answer does not fit the schema: {some(said)}")


def _read_schema(node: Node) -> dict[str, Json] | None:
    """Return the schema that an object is, or that the file has that a text names."""
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
"""The metric in plain data, where the schema may be the path of a file."""


@functools.lru_cache(maxsize=64)
def _validator(schema: str) -> Validator:
    from jsonschema.validators import validator_for
    from referencing import Registry

    plain = _object(parse_json(schema, where="schema"))
    return validator_for(plain)(plain, registry=Registry())
