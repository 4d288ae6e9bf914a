"""How the scores of several metrics become one: a weighted mean, or one before the other."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.types import Metric
from promptgraft.frozenmap import FrozenMap
from promptgraft.functions import described, without_address
from promptgraft.serde import did_you_mean, digest_text, shown
from promptgraft.text import listed

_STEP = 0.001
_DIGITS = 16


class Aggregation(Protocol):
    """Makes one figure of the scores of several metrics."""

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that have a part in it."""
        ...

    def check(self, known: Collection[str]) -> None:
        """Refuse names that are not among the known metrics, with a ``ConfigError``."""
        ...

    def score(self, scores: Mapping[str, float]) -> float:
        """Return one score, 0 to 1, of the scores by metric."""
        ...


def _check(names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            near = did_you_mean(name, sorted(known))
            there = f"; there are {listed(known)}"
            raise ConfigError(f"weights: unknown metric `{name}`{near or there}")


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
        weights: by metric, finite and at least 0, one of them above; metrics without a weight have
            no part.
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


def _order(_: object, __: object, value: tuple[str, ...]) -> None:
    if not value or len(set(value)) < len(value):
        raise ConfigError(f"order: expected different metrics, found {shown(value)}")


@attrs.frozen
class Lexicographic:
    """The first metric decides; the next one where the first is equal, and so on.

    As one score, for a search, each metric counts a thousandth of the one before it: a lead
    of a thousandth in an earlier metric decides.

    Attributes:
        order: different metrics, the most important first.
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


def metrics_identity(
    metrics: Sequence[Metric], aggregation: Aggregation | None = None, *, code: bool = True
) -> str:
    """Return the names of metrics and a digest of them, their options and their aggregation.

    The code of metrics in Python has a part in it unless ``code`` is false.
    """
    whole = (tuple(metrics), aggregation)
    told = described(whole) if code else without_address(repr(whole))
    names = ",".join(metric.name for metric in metrics)
    return f"metrics {names} {digest_text(told)[:_DIGITS]}"
