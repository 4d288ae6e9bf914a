"""Metrics described by plain data: our own form, and the metric files of other tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.faults import Faults
from promptgraft.evals.metrics.options import Options, Place
from promptgraft.evals.metrics.registry import METRICS, Registry
from promptgraft.evals.types import Metric
from promptgraft.serde import Json, did_you_mean, parse_json, shown
from promptgraft.yaml_text import read_yaml, spelled

_NAMES = ("name", "metric_name", "metricName")
_TOP = ("metrics", "criteria", "num_runs", "numRuns", "evaluate")
# Sections of other tools' files that say nothing about metrics.
_ELSEWHERE = {"optimize", "user_simulator_config", "userSimulatorConfig"}


@attrs.frozen(kw_only=True)
class MetricConfig:
    """What a metric file says.

    Attributes:
        metrics: at least one, in the order of the file.
        num_runs: how often each case is answered and judged.
    """

    metrics: tuple[Metric, ...]
    num_runs: int = 1


def load_metrics(source: Json | Path, *, registry: Registry = METRICS) -> tuple[Metric, ...]:
    """Return the metrics that plain data or a JSON or YAML file describes.

    Raises:
        DataFormatError: with every fault of the file, one line each.
    """
    return load_metric_config(source, registry=registry).metrics


def load_metric_config(source: Json | Path, *, registry: Registry = METRICS) -> MetricConfig:
    """Return everything that plain data or a JSON or YAML file says of metrics.

    Raises:
        DataFormatError: with every fault of the file, one line each.
    """
    if isinstance(source, (str, Path)):
        data, place = _read(Path(source))
    else:
        data, place = source, Place("metrics")
    config = _config(data, place, registry)
    if config is None or place.faults:
        raise DataFormatError.of(place.faults)
    return config


def _read(path: Path) -> tuple[Json, Place]:
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataFormatError(
            f"{path}: expected UTF-8, found byte {error.object[error.start]:#04x} "
            f"at offset {error.start}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if path.suffix.lower() in {".yaml", ".yml"}:
        return _read_yaml(text, path)
    return parse_json(text, where=str(path)), Place(str(path))


def _read_yaml(text: str, path: Path) -> tuple[Json, Place]:
    faults = Faults(str(path))
    document = read_yaml(text, faults.add)
    faults.raise_all()
    if document is None:
        return None, Place(str(path))
    lines = {f"${spelled(at)}": document.line_of(at) for at in document.lines}
    return document.value, Place(str(path), lines=lines)


def _config(data: Json, place: Place, registry: Registry) -> MetricConfig | None:
    if not isinstance(data, (dict, list)):
        place.fault(f"expected a list of metrics, or an object with `metrics`, found {shown(data)}")
        return None
    top: Mapping[str, Json] = data if isinstance(data, dict) else {}
    if "evaluate" in top:
        top, place = _inside(top, place)
    for key in top:
        if key not in _TOP and key not in _ELSEWHERE:
            place.at(key).fault(f"unknown key `{key}`{did_you_mean(key, list(_TOP))}")
    entries = list(_listed(data, place) if isinstance(data, list) else _entries(top, place))
    metrics = [_metric(options, at, registry) for options, at in entries]
    _note_twins(metrics, [at for _, at in entries])
    runs = _num_runs(top, place)
    if not entries and not place.faults:
        place.fault("expected at least one metric, found none")
    made = tuple(metric for metric in metrics if metric is not None)
    return MetricConfig(metrics=made, num_runs=runs)


def _inside(top: Mapping[str, Json], place: Place) -> tuple[dict[str, Json], Place]:
    for key in top:
        if key != "evaluate" and key not in _ELSEWHERE:
            place.at(key).fault(f"unknown key `{key}` beside `evaluate`")
    inner = top["evaluate"]
    if isinstance(inner, dict):
        return inner, place.at("evaluate")
    place.at("evaluate").fault(f"expected an object, found {shown(inner)}")
    return {}, place


def _entries(top: Mapping[str, Json], place: Place) -> Iterator[tuple[Options, Place]]:
    """Yield the options of each metric, and where they stand."""
    listed, shorthand = top.get("metrics"), top.get("criteria")
    if listed and shorthand:
        place.fault("both `metrics` and `criteria` are given; keep `metrics`")
    if isinstance(listed, list):
        yield from _listed(listed, place.at("metrics"))
    elif listed is not None:
        place.at("metrics").fault(f"expected a list of metrics, found {shown(listed)}")
    if isinstance(shorthand, dict):
        for name, value in shorthand.items():
            at = place.at("criteria").at(name)
            entry = value if isinstance(value, dict) else {"threshold": value}
            yield from _entry({"metric_name": name, **entry}, at)
    elif shorthand is not None:
        place.at("criteria").fault(f"expected an object, found {shown(shorthand)}")


def _listed(entries: list[Json], place: Place) -> Iterator[tuple[Options, Place]]:
    for index, entry in enumerate(entries):
        yield from _entry(entry, place.at(index))


def _entry(entry: Json, place: Place) -> Iterator[tuple[Options, Place]]:
    if not isinstance(entry, dict):
        place.fault(f"expected an object with `name`, found {shown(entry)}")
        return
    names = [key for key in _NAMES if key in entry]
    if len(names) != 1:
        found = " and ".join(f"`{key}`" for key in names) or "none"
        place.fault(f"expected one of `name`, `metric_name` and `metricName`, found {found}")
        return
    name = entry[names[0]]
    if not isinstance(name, str) or not name.strip():
        place.at(names[0]).fault(f"expected the name of a metric, found {shown(name)}")
        return
    yield {"name": name, **{key: item for key, item in entry.items() if key not in _NAMES}}, place


def _metric(options: Options, place: Place, registry: Registry) -> Metric | None:
    kind = options.get("kind", options["name"])
    if not isinstance(kind, str):
        place.at("kind").fault(f"expected the name of a metric, found {shown(kind)}")
        return None
    try:
        found = registry.find(kind)
    except ConfigError as error:
        place.fault(str(error))
        return None
    if "criterion" in options and not found.takes_criterion:
        place.at("criterion").fault(
            f"`{kind}` takes no `criterion`; write its options beside its name"
        )
        return None
    return found.build({key: item for key, item in options.items() if key != "kind"}, place)


def _note_twins(metrics: list[Metric | None], places: list[Place]) -> None:
    seen: dict[str, Place] = {}
    for metric, place in zip(metrics, places, strict=True):
        if metric is None:
            continue
        if metric.name in seen:
            place.fault(
                f"the name `{metric.name}` is taken by {seen[metric.name].path}; give one of them "
                "another `name`, and its kind as `kind`"
            )
        seen.setdefault(metric.name, place)


def _num_runs(top: Mapping[str, Json], place: Place) -> int:
    keys = [key for key in ("num_runs", "numRuns") if key in top]
    for key in keys:
        value = top[key]
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        place.at(key).fault(f"expected an integer of at least 1, found {shown(value)}")
    return 1
