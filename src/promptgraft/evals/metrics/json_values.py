"""Metrics of JSON: the expected values, and a JSON Schema."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.metrics.base import BaseMetric, hold_each
from promptgraft.evals.metrics.comparing import Found, JsonRules, compare, compare_at
from promptgraft.evals.metrics.reading import (
    ReferenceMetric,
    answer_data,
    only,
    parse_path,
    places,
    spelled,
    wanted,
    without,
)
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.frozenmap import FrozenMap
from promptgraft.serde import Json, canonical_json, parse_json, shown, unstructure

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_SHOWN_FAULTS = 4


def paths_only(
    _: object, attribute: attrs.Attribute[tuple[str, ...]], value: Sequence[str]
) -> None:
    """Hold a list of paths."""
    if isinstance(value, str):
        raise ConfigError(f"{attribute.name}: expected a list of paths, found {shown(value)}")
    hold_each(value, parse_path)


@attrs.frozen(kw_only=True)
class JsonMatch(ReferenceMetric, JsonRules):
    """The share of the values that are the same in the answer and in ``expected``.

    A text in ``expected`` is read as JSON. An answer that is not JSON scores 0.

    Attributes:
        paths: the places that are compared; empty for all.
        ignore: places that are not compared.
        fenced: the JSON of an answer may stand in a block between back-ticks.
    """

    kind: ClassVar[str] = "json_match"

    paths: tuple[str, ...] = attrs.field(default=(), validator=paths_only)
    ignore: tuple[str, ...] = attrs.field(default=(), validator=paths_only)
    fenced: bool = False

    def reference(self, case: Case) -> Json:
        value = self._json(case)
        for text in self.paths:
            if not any(places(value, parse_path(text))):
                raise self.lacking(
                    case, f"compares `{text}`, which `expected` has not: {shown(value)}"
                )
        return value

    def _json(self, case: Case) -> Json:
        value = self.expected(case)
        if not isinstance(value, str):
            return value
        try:
            return parse_json(value, where="expected")
        except DataFormatError as error:
            raise self.lacking(case, f"needs JSON as `expected`: {error}") from None

    def found(self, answer: Answer) -> Json:
        return only(answer_data(answer, fenced=self.fenced), parse_path(self.answer_path))

    def assess(self, case: Case, answer: Answer) -> Verdict:
        reference, found = self.reference(case), self.found(answer)
        compared = list(self._compared(reference, found))
        total = sum(place.weight for place in compared)
        faults = [place.fault for place in compared if place.fault]
        wrong = sum(place.weight for place in compared if place.fault)
        if not faults:
            return self.verdict(1.0, "found the expected JSON")
        return self.verdict(
            (total - wrong) / total, f"{wrong} of {total} values differ: {_some(faults)}"
        )

    def _compared(self, reference: Json, found: Json) -> Iterator[Found]:
        wanted, there = pruned(reference, self.ignore), pruned(found, self.ignore)
        if not self.paths:
            yield from compare(wanted, there, self)
        for text in self.paths:
            yield from compare_at(wanted, there, self, parse_path(text))


def pruned(value: Json, ignore: tuple[str, ...]) -> Json:
    """Return ``value`` without the places that do not count."""
    return functools.reduce(without, (parse_path(text) for text in ignore), value)


def _some(faults: list[str]) -> str:
    more = len(faults) - _SHOWN_FAULTS
    return "; ".join(faults[:_SHOWN_FAULTS]) + (f"; and {more} more" if more > 0 else "")


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

    schema: Mapping[str, Json] = attrs.field(
        converter=FrozenMap[str, Json], validator=_schema, metadata={"plain": True}
    )
    fenced: bool = False

    def assess(self, case: Case, answer: Answer) -> Verdict:  # noqa: ARG002
        from referencing.exceptions import Unresolvable

        found = answer_data(answer, fenced=self.fenced)
        try:
            errors = sorted(
                self._validator().iter_errors(found), key=lambda error: list(map(str, error.path))
            )
        except Unresolvable as error:
            raise ConfigError(f"metric `{self.name}`: the schema refers to {error}") from None
        if not errors:
            return self.verdict(1.0, "the answer fits the schema")
        faults = [f"`{spelled(tuple(error.absolute_path))}`: {error.message}" for error in errors]
        return self.verdict(0.0, f"the answer does not fit the schema: {_some(faults)}")

    def _validator(self) -> Validator:
        return _validator(canonical_json(self.schema))


@functools.lru_cache(maxsize=64)
def _validator(schema: str) -> Validator:
    from jsonschema.validators import validator_for
    from referencing import Registry

    plain = _object(parse_json(schema, where="schema"))
    return validator_for(plain)(plain, registry=Registry())
