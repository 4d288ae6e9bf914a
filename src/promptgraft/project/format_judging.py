"""What a project file says of judging: its metrics, and how their scores become one."""

from __future__ import annotations

from collections.abc import Mapping

from promptgraft.errors import ConfigError
from promptgraft.evals.aggregate import Aggregation, Lexicographic, WeightedMean
from promptgraft.strict.checks import NUMBER, TEXT, Kind
from promptgraft.strict.kinds import Key, either, listed, named, record

METRICS = either(
    "a list of metrics, or the path of a metric file",
    (
        list,
        Kind(
            lambda node: node.value, {"type": "array", "minItems": 1, "items": {"type": "object"}}
        ),
    ),
    (str, TEXT),
)


def _aggregation(
    weights: Mapping[str, float] | None = None, order: tuple[str, ...] | None = None
) -> Aggregation:
    if weights is not None and order is None:
        return WeightedMean(weights)
    if order is not None and weights is None:
        return Lexicographic(order)
    raise ConfigError("expected either `weights` or `order`")


AGGREGATION: Kind[Aggregation] = record(
    _aggregation,
    {
        "weights": Key(named(NUMBER), "The score is their weighted mean."),
        "order": Key(listed(TEXT), "The first metric decides; then the next."),
    },
    rules={"minProperties": 1, "maxProperties": 1},
)
