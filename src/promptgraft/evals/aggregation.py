"""How the scores of several metrics become one: a weighted mean, or one before the other."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Protocol

import attrs

from promptgraft.errors import ConfigError
from promptgraft.frozenmap import FrozenMap
from promptgraft.serde import did_you_mean, shown

_STEP = 0.001


class Aggregation(Protocol):
    """Makes one figure of the scores of several metrics."""

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that have a part in it."""
        ...

    def check(self, known: Collection[str]) -> None:
        """Refuse names that are not among the known metrics.

        Raises:
            ConfigError: naming the first that is not.
        """
        ...

    def score(self, scores: Mapping[str, float]) -> float:
        """Return one score, 0 to 1, of the scores by metric."""
        ...

    def key(self, scores: Mapping[str, float]) -> tuple[float, ...]:
        """Return what candidates are compared by; the greater is the better."""
        ...


def _check(names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            near = did_you_mean(name, sorted(known))
            listed = ", ".join(f"`{metric}`" for metric in known)
            raise ConfigError(f"weights: unknown metric `{name}`{near or f'; there are {listed}'}")


def _weights(_: object, __: object, value: Mapping[str, float]) -> None:
    for name, weight in value.items():
        if not 0 <= weight < math.inf:
            raise ConfigError(
                f"weights: expected a number of at least 0 for `{name}`, found {shown(weight)}"
            )
    if not any(value.values()):
        raise ConfigError("weights: expected at least one weight above 0, found none")


@attrs.frozen
class WeightedMean:
    """The mean of the scores with weights, which are normalised to a sum of 1.

    Attributes:
        weights: by metric, at least 0; metrics without a weight have no part.

    Raises:
        ConfigError: a weight is negative or not finite, or none is above 0.
    """

    weights: Mapping[str, float] = attrs.field(converter=FrozenMap[str, float], validator=_weights)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, weight in self.weights.items() if weight > 0)

    def check(self, known: Collection[str]) -> None:
        _check(self.weights, known)

    def score(self, scores: Mapping[str, float]) -> float:
        total = math.fsum(self.weights.values())
        parts = (self.weights[name] / total * scores[name] for name in self.names)
        return min(1.0, math.fsum(parts))

    def key(self, scores: Mapping[str, float]) -> tuple[float, ...]:
        return (self.score(scores),)


def _order(_: object, __: object, value: tuple[str, ...]) -> None:
    if not value or len(set(value)) < len(value):
        raise ConfigError(f"order: expected different metrics, found {shown(value)}")


@attrs.frozen
class Lexicographic:
    """The first metric decides; the next one where the first is equal, and so on.

    As one score, for a search, each metric counts a thousandth of the one before it: whoever is
    ahead by a thousandth in an earlier metric stays ahead.

    Attributes:
        order: the metrics, the most important first.

    Raises:
        ConfigError: there is none, or one occurs twice.
    """

    order: tuple[str, ...] = attrs.field(validator=_order)

    @property
    def names(self) -> tuple[str, ...]:
        return self.order

    def check(self, known: Collection[str]) -> None:
        _check(self.order, known)

    def score(self, scores: Mapping[str, float]) -> float:
        shares = [_STEP**place for place in range(len(self.order))]
        parts = (share * scores[name] for share, name in zip(shares, self.order, strict=True))
        return min(1.0, math.fsum(parts) / math.fsum(shares))

    def key(self, scores: Mapping[str, float]) -> tuple[float, ...]:
        return tuple(scores[name] for name in self.order)


def parse_aggregation(text: str) -> Aggregation:
    """Return the aggregation that a text describes.

    ``accuracy=0.8,tokens=0.2`` is a weighted mean, ``accuracy>tokens`` an order.

    Raises:
        ConfigError: the text is neither.
    """
    if "=" not in text:
        names = tuple(name.strip() for name in text.split(">"))
        if not all(names) or "," in text:
            raise ConfigError(_expected(text))
        return Lexicographic(names)
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if not name or not number:
            raise ConfigError(_expected(text))
        if name in weights:
            raise ConfigError(f"weights: `{name}` occurs twice in {shown(text)}")
        weights[name] = _number(number, name)
    return WeightedMean(weights)


def _expected(text: str) -> str:
    return f"weights: expected `accuracy=0.8,tokens=0.2` or `accuracy>tokens`, found {shown(text)}"


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"weights: expected a number for `{name}`, found {shown(text)}") from None
