"""The kinds of metrics by name: ours, those of other packages, and those that a caller adds."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TypeGuard

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.metrics.base import unknown
from promptgraft.evals.types import Metric
from promptgraft.frozenmap import FrozenMap
from promptgraft.serde import shown
from promptgraft.strict.classes import record_of
from promptgraft.strict.nodes import Node

ENTRY_POINTS = "promptgraft.metrics"
"""The group in which other packages offer metrics."""

_HOME = "promptgraft.evals.metrics"
_BUILT_IN = {
    "assert": f"{_HOME}.expressions:Assertion",
    "check": f"{_HOME}.expressions:Check",
    "classification": f"{_HOME}.labels:Classification",
    "contains": f"{_HOME}.text:Contains",
    "cost": f"{_HOME}.spending:Cost",
    "edit_similarity": f"{_HOME}.similarity:EditSimilarity",
    "exact": f"{_HOME}.text:Exact",
    "final_response_avg_score": f"{_HOME}.dialects:FINAL_RESPONSE",
    "json_match": f"{_HOME}.json_values:JsonMatch",
    "json_schema": f"{_HOME}.json_values:JsonSchema",
    "latency": f"{_HOME}.spending:Latency",
    "length": f"{_HOME}.text:Length",
    "number": f"{_HOME}.numbers:Number",
    "python": f"{_HOME}.functions:Python",
    "regex": f"{_HOME}.text:Regex",
    "response_match_score": f"{_HOME}.dialects:RESPONSE_MATCH",
    "rouge": f"{_HOME}.similarity:Rouge",
    "tokens": f"{_HOME}.spending:Tokens",
    "tool_trajectory": f"{_HOME}.trajectory:ToolTrajectory",
    "tool_trajectory_avg_score": f"{_HOME}.dialects:TOOL_TRAJECTORY",
}

# They need a model, which no file can bring along.
_OF_JUDGES = {
    "llm_final_response",
    "llm_rubric_critic",
    "llm_rubric_knowledge_recall",
    "llm_rubric_response",
}

Build = Callable[[Node], "Metric | None"]


@attrs.frozen(kw_only=True)
class MetricKind:
    """A kind of metric, and how one is made of plain data.

    Attributes:
        name: how metric files call it.
        build: makes a metric of an object with its options (``name``, ``threshold`` and
            ``required`` among them), or notes faults at their places and returns None.
        takes_criterion: whether the option ``criterion`` of other tools' files is understood;
            it is handed to ``build`` as it stands in the file.
    """

    name: str
    build: Build
    takes_criterion: bool = False


@attrs.frozen
class Registry:
    """Finds kinds of metrics by name.

    Attributes:
        added: kinds that go before ours and before those of other packages.
    """

    added: Mapping[str, MetricKind] = attrs.field(
        factory=dict, converter=FrozenMap[str, MetricKind]
    )

    def plus(self, *kinds: MetricKind) -> Registry:
        """Return a registry with more kinds."""
        return Registry({**self.added, **{kind.name: kind for kind in kinds}})

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that is known, in order."""
        return tuple(sorted({*self.added, *_BUILT_IN, *(point.name for point in _others())}))

    def find(self, name: str) -> MetricKind:
        """Return the kind of this name, imported only now.

        Raises:
            ConfigError: there is none, or the package that offers it cannot be imported.
        """
        if name in self.added:
            return self.added[name]
        if name in _BUILT_IN:
            return _imported(name, _BUILT_IN[name])
        for point in _others():
            if point.name == name:
                return _loaded(point)
        if name in _OF_JUDGES:
            raise ConfigError(
                f"metric `{name}` asks a judge; load it with "
                "`registry=METRICS.plus(*judge_kinds(...))`"
            )
        raise ConfigError(unknown("metric", name, self.names))


METRICS = Registry()
"""Our metrics and those of other packages."""


def _others() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=ENTRY_POINTS))


@functools.lru_cache(maxsize=64)
def _imported(name: str, home: str) -> MetricKind:
    module, _, attribute = home.partition(":")
    return _as_kind(name, getattr(importlib.import_module(module), attribute))


def _loaded(point: EntryPoint) -> MetricKind:
    where = f"metric `{point.name}`: the entry point {shown(point.value)}"
    try:
        offered: object = point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{where} cannot be imported: {error}") from error
    try:
        return _as_kind(point.name, offered)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _as_kind(name: str, offered: object) -> MetricKind:
    if isinstance(offered, MetricKind):
        return attrs.evolve(offered, name=name)
    if _is_metric_class(offered):
        return MetricKind(name=name, build=record_of(offered).read)
    raise ConfigError(
        "expected a MetricKind or an attrs class with `name` and `threshold`, "
        f"found {shown(offered)}"
    )


def _is_metric_class(offered: object) -> TypeGuard[type[Metric]]:
    if not isinstance(offered, type) or not attrs.has(offered):
        return False
    return {"name", "threshold"} <= {field.name for field in attrs.fields(offered)}
