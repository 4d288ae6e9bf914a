"""The registry of metrics by name, and the loading of metrics from data and files."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.metrics.base import ByCase
from promptgraft.evals.types import Metric, MetricKind
from promptgraft.ground.entry_points import installed, load
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import Json, field_names
from promptgraft.ground.strict.checks import COUNT, OBJECT, TEXT, Kind
from promptgraft.ground.strict.kinds import known_members, record_of
from promptgraft.ground.strict.nodes import Node, Source, read_source, spelled

ENTRY_POINTS = "promptgraft.metrics"
"""The entry point group in which other packages offer metrics."""

_CLASSES = {
    "assert": ("expressions", "Assertion"),
    "check": ("expressions", "Check"),
    "classification": ("values", "Classification"),
    "contains": ("containment", "Contains"),
    "cost": ("values", "Cost"),
    "edit_similarity": ("similarity", "EditSimilarity"),
    "exact": ("text", "Exact"),
    "json_match": ("json_values", "JsonMatch"),
    "latency": ("values", "Latency"),
    "length": ("values", "Length"),
    "number": ("values", "Number"),
    "python": ("functions", "Python"),
    "regex": ("patterns", "Regex"),
    "rouge": ("similarity", "Rouge"),
    "tokens": ("values", "Tokens"),
    "tool_trajectory": ("json_values", "ToolTrajectory"),
}
"""Module and class of each kind; a module is imported when a file names one of its kinds."""

_JSON_SCHEMA = "json_schema"
_JUDGES = "llm_"
_DIALECTS = ("final_response_avg_score", "response_match_score", "tool_trajectory_avg_score")

_NAMES = ("name", "metric_name", "metricName")
# Sections of other tools' files that are not about metrics.
_ELSEWHERE = ("optimize", "user_simulator_config")
_TOP = ("metrics", "criteria", "num_runs", "evaluate", *_ELSEWHERE)


@attrs.frozen
class Registry:
    """Finds kinds of metrics by name: first ``added`` ones, then built-in, then entry points."""

    added: Mapping[str, MetricKind] = attrs.field(
        factory=dict, converter=FrozenMap[str, MetricKind]
    )

    def plus(self, *kinds: MetricKind) -> Registry:
        """Return a registry with more kinds."""
        return Registry({**self.added, **{kind.name: kind for kind in kinds}})

    @property
    def names(self) -> tuple[str, ...]:
        """All known names, sorted."""
        class_names = (*self.added, _JSON_SCHEMA, *_DIALECTS, *_CLASSES, ByCase.kind)
        # Names only: importing the packages behind them is left to `find`.
        return tuple(sorted({*class_names, *installed(ENTRY_POINTS)}))

    def find(self, name: str) -> MetricKind:
        """Return the kind with this name; one of another package is imported only now.

        Raises:
            ConfigError: there is none, or the package that offers it cannot be imported.
        """
        # First, so that users may replace a built-in kind.
        if name in self.added:
            return self.added[name]
        if name in (_JSON_SCHEMA, *_DIALECTS):
            return _special(name)
        if name == ByCase.kind:
            metrics = Kind(lambda node: _config(node, self).metrics)
            return MetricKind(name=name, build=record_of(ByCase, special={"metrics": metrics}).read)
        if name in _CLASSES:
            return _of_class(name, _class(name))
        has_judges = any(added.startswith(_JUDGES) for added in self.added)
        if name.startswith(_JUDGES) and not has_judges and name not in installed(ENTRY_POINTS):
            raise ConfigError(  # it needs an adapter, which a file of metrics alone cannot provide
                f"metric `{name}` asks a judge; load it with "
                "`registry=METRICS.plus(*judge_kinds(...))`"
            )
        return _of_package(name, self.names)


METRICS = Registry()
"""The built-in metrics and those of other packages."""


def _special(name: str) -> MetricKind:
    if name == _JSON_SCHEMA:
        from promptgraft.evals.metrics.json_schemas import JSON_SCHEMA

        return JSON_SCHEMA
    from promptgraft.evals.metrics.dialects import DIALECTS

    return DIALECTS[name]


def _class(name: str) -> type[Metric]:
    module, class_name = _CLASSES[name]
    metric_class: type[Metric] = getattr(
        importlib.import_module(f"promptgraft.evals.metrics.{module}"), class_name
    )
    return metric_class


@functools.cache
def _of_class(name: str, kind: type[Metric]) -> MetricKind:
    return MetricKind(name=name, build=record_of(kind).read)


def _of_package(name: str, known: Sequence[str]) -> MetricKind:
    offer = load(ENTRY_POINTS, name, noun="metric", own=known)
    offered = offer.value
    if isinstance(offered, MetricKind):
        return attrs.evolve(offered, name=name)
    if isinstance(offered, type) and {"name", "threshold"} <= {*(field_names(offered) or ())}:
        return _of_class(name, offered)
    raise offer.unfit("a MetricKind or an attrs class with `name` and `threshold`")


@attrs.frozen(kw_only=True)
class MetricConfig:
    """The contents of a metric file.

    Attributes:
        metrics: at least one, in the order of the file.
        num_runs: how often each case is answered and judged.
    """

    metrics: tuple[Metric, ...]
    num_runs: int = 1


def load_metrics(source: Json | Path | Node, *, registry: Registry = METRICS) -> tuple[Metric, ...]:
    """Load metrics from plain data or from a JSON or YAML file.

    Raises:
        DataFormatError: lists the first 20 faults, one line each, and counts the others.
    """
    return load_metric_config(source, registry=registry).metrics


def load_metric_config(source: Json | Path | Node, *, registry: Registry = METRICS) -> MetricConfig:
    """Load metrics and the number of runs; see :func:`load_metrics`."""
    if isinstance(source, (str, Path)):
        root = read_source(Path(source)).root
    else:
        root = source if isinstance(source, Node) else Source.of(source, "metrics").root
    config = _config(root, registry)
    root.source.raise_all()
    return config


def _config(node: Node, registry: Registry) -> MetricConfig:
    runs = 1
    if isinstance(node.value, dict):
        members = known_members(node, _TOP, aliases={})
        if "evaluate" in members:
            for key in [key for key in members if key not in ("evaluate", *_ELSEWHERE)]:
                members[key].fault("unknown key beside `evaluate`")
            node = members["evaluate"]
            members = known_members(node, _TOP[:3], aliases={})
        runs = COUNT.read(members["num_runs"]) or 1 if "num_runs" in members else 1
        entries = list(_entries(node, members))
    elif isinstance(node.value, list):
        entries = [entry for item in node.items() for entry in _entry(item)]
    else:
        node.expected("a list of metrics, or an object with `metrics`")
        entries = []
    metrics: dict[str, Metric] = {}
    places: dict[str, Node] = {}
    for entry in entries:
        metric = _metric(entry, registry)
        if metric is not None and metric.name in places:
            entry.fault(
                f"the name `{metric.name}` is taken by {spelled(places[metric.name].path)}; give "
                "one of them another `name`, and its kind as `kind`"
            )
        elif metric is not None:
            metrics[metric.name], places[metric.name] = metric, entry
    if not entries and node.is_right():
        node.fault("expected at least one metric, found none")
    return MetricConfig(metrics=tuple(metrics.values()), num_runs=runs)


def _entries(node: Node, members: dict[str, Node]) -> Iterator[Node]:
    """Yield one object per metric, with its options and its name as ``name``."""
    metrics, shorthand = members.get("metrics"), members.get("criteria")
    if metrics and metrics.value and shorthand and shorthand.value:
        node.fault("both `metrics` and `criteria` are given; keep `metrics`")
    if metrics and not isinstance(metrics.value, list):
        metrics.expected("a list of metrics")
    for item in metrics.items() if metrics else ():
        yield from _entry(item)
    if shorthand and OBJECT.read(shorthand):
        for name, entry in shorthand.members().items():
            options = entry.value if isinstance(entry.value, dict) else {"threshold": entry.value}
            yield from _entry(Node({"metric_name": name, **options}, entry.path, entry.source))


def _entry(node: Node) -> Iterator[Node]:
    if isinstance(node.value, str):
        # A name alone, for a metric without options.
        node = Node({"name": node.value}, node.path, node.source)
    if not isinstance(node.value, dict):
        node.expected("the name of a metric, or an object such as `{name: exact}`")
        return
    names = [key for key in _NAMES if key in node.value] or ["kind"]
    if len(names) != 1 or names[0] not in node.value:
        keys = " and ".join(f"`{key}`" for key in names if key in node.value) or "none"
        node.fault(f"expected one of `name`, `metric_name` and `metricName`, found {keys}")
        return
    name = TEXT.read(node.member(names[0]))
    if name is not None:
        rest = {key: item for key, item in node.value.items() if key not in _NAMES}
        yield Node({"name": name, **rest}, node.path, node.source)


def _metric(node: Node, registry: Registry) -> Metric | None:
    members = node.members()
    kind = TEXT.read(members.get("kind", members["name"]))
    if kind is None:
        return None
    try:
        metric_class = registry.find(kind)
    except ConfigError as error:
        node.fault(str(error))
        return None
    if "criterion" in members and not metric_class.takes_criterion:
        members["criterion"].fault(
            f"`{kind}` takes no `criterion`; write its options beside its name"
        )
        return None
    options = {key: member.value for key, member in members.items() if key != "kind"}
    return metric_class.build(Node(options, node.path, node.source))
