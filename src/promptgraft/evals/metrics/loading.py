"""Metrics described by plain data: our own form, and the metric files of other tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.metrics.registry import METRICS, Registry
from promptgraft.evals.types import Metric
from promptgraft.serde import Json
from promptgraft.strict.checks import COUNT, OBJECT, TEXT
from promptgraft.strict.kinds import known_members
from promptgraft.strict.nodes import Node, Source, read_source, spelled

_NAMES = ("name", "metric_name", "metricName")
# Sections of other tools' files that say nothing about metrics.
_ELSEWHERE = ("optimize", "user_simulator_config")
_TOP = ("metrics", "criteria", "num_runs", "evaluate", *_ELSEWHERE)


@attrs.frozen(kw_only=True)
class MetricConfig:
    """What a metric file says.

    Attributes:
        metrics: at least one, in the order of the file.
        num_runs: how often each case is answered and judged.
    """

    metrics: tuple[Metric, ...]
    num_runs: int = 1


def load_metrics(source: Json | Path | Node, *, registry: Registry = METRICS) -> tuple[Metric, ...]:
    """Return the metrics that plain data or a JSON or YAML file describes.

    Raises:
        DataFormatError: with the first 20 faults, one line each, and how many more there are.
    """
    return load_metric_config(source, registry=registry).metrics


def load_metric_config(source: Json | Path | Node, *, registry: Registry = METRICS) -> MetricConfig:
    """Return everything that plain data or a JSON or YAML file says of metrics.

    Raises:
        DataFormatError: as :func:`load_metrics`.
    """
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
            for key in members.keys() - {"evaluate", *_ELSEWHERE}:
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
    metrics = [(_metric(entry, registry), entry) for entry in entries]
    _note_twins(metrics)
    if not entries and node.is_right():
        node.fault("expected at least one metric, found none")
    return MetricConfig(
        metrics=tuple(metric for metric, _ in metrics if metric is not None), num_runs=runs
    )


def _entries(node: Node, members: dict[str, Node]) -> Iterator[Node]:
    """Yield an object for each metric, with its options and its name as ``name``."""
    listed, shorthand = members.get("metrics"), members.get("criteria")
    if listed and listed.value and shorthand and shorthand.value:
        node.fault("both `metrics` and `criteria` are given; keep `metrics`")
    if listed and not isinstance(listed.value, list):
        listed.expected("a list of metrics")
    for item in listed.items() if listed else ():
        yield from _entry(item)
    if shorthand and OBJECT.read(shorthand):
        for name, one in shorthand.members().items():
            options = one.value if isinstance(one.value, dict) else {"threshold": one.value}
            yield from _entry(Node({"metric_name": name, **options}, one.path, one.source))


def _entry(node: Node) -> Iterator[Node]:
    if not isinstance(node.value, dict):
        node.expected("an object with `name`")
        return
    names = [key for key in _NAMES if key in node.value]
    if len(names) != 1:
        found = " and ".join(f"`{key}`" for key in names) or "none"
        node.fault(f"expected one of `name`, `metric_name` and `metricName`, found {found}")
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
        found = registry.find(kind)
    except ConfigError as error:
        node.fault(str(error))
        return None
    if "criterion" in members and not found.takes_criterion:
        members["criterion"].fault(
            f"`{kind}` takes no `criterion`; write its options beside its name"
        )
        return None
    options = {key: member.value for key, member in members.items() if key != "kind"}
    return found.build(Node(options, node.path, node.source))


def _note_twins(metrics: list[tuple[Metric | None, Node]]) -> None:
    seen: dict[str, Node] = {}
    for metric, node in metrics:
        if metric is not None and metric.name in seen:
            node.fault(
                f"the name `{metric.name}` is taken by {spelled(seen[metric.name].path)}; give "
                "one of them another `name`, and its kind as `kind`"
            )
        if metric is not None:
            seen.setdefault(metric.name, node)
