"""Metric files of other tools: ``metric_name`` or ``metricName``, ``threshold``, ``criterion``.

Both spellings of every key are read, and mean one of our metrics with its options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import attrs

from promptgraft.evals.metrics.base import BaseMetric
from promptgraft.evals.metrics.combining import AllOf
from promptgraft.evals.metrics.json_values import JsonMatch
from promptgraft.evals.metrics.options import Options, Place, read_options
from promptgraft.evals.metrics.registry import MetricKind
from promptgraft.evals.metrics.similarity import Rouge
from promptgraft.evals.metrics.text import Contains, Exact, Length, Regex
from promptgraft.evals.metrics.trajectory import ToolTrajectory
from promptgraft.evals.types import Metric
from promptgraft.serde import Json, did_you_mean, shown

# What those tools take for equal numbers when a file does not say.
_NUMBER_TOLERANCE = 1e-6
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_COMMON = ("name", "threshold", "required")
_MATCHES: Mapping[str, type[BaseMetric]] = {"exact": Exact, "contains": Contains, "regex": Regex}


@attrs.frozen
class Criterion:
    """One object of a criterion: its keys in snake_case, each with its place."""

    values: Mapping[str, Json]
    places: Mapping[str, Place]
    place: Place

    def get(self, key: str, kind: type | tuple[type, ...], what: str) -> Json:
        """Return a value of the right type; None when it is absent, null or of a wrong type."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.places[key].fault(f"expected {what}, found {shown(value)}")
            return None
        return value

    def flag(self, key: str) -> bool:
        """Return a truth value; false when it is absent."""
        return self.get(key, bool, "true or false") is True

    def part(self, key: str, known: Mapping[str, str]) -> Criterion | None:
        """Return an object below this one; None when it is absent."""
        if self.values.get(key) is None:
            return None
        return open_criterion(self.values[key], self.places[key], known)


def open_criterion(value: Json, place: Place, known: Mapping[str, str]) -> Criterion | None:
    """Return an object of a criterion; unknown keys are noted, None when it is no object.

    ``known`` says for each accepted key, in snake_case, by which name it is kept.
    """
    if not isinstance(value, dict):
        place.fault(f"expected an object, found {shown(value)}")
        return None
    values, places = {}, {}
    for key, item in value.items():
        name = known.get(snake_case(key))
        if name is None:
            place.at(key).fault(f"unknown key `{key}`{did_you_mean(snake_case(key), list(known))}")
        elif name in values:
            place.at(key).fault(f"`{key}` says again what another key says; keep one")
        else:
            values[name], places[name] = item, place.at(key)
    return Criterion(values, places, place)


def snake_case(key: str) -> str:
    """Return ``finalResponse`` as ``final_response``."""
    return _HUMP.sub(lambda found: f"_{found[1].lower()}", key)


def _same(*names: str, **others: str) -> dict[str, str]:
    return {**{name: name for name in names}, **others}


_ROOT = _same("final_response", "tool_trajectory", "rouge", "llm_judge")
_FINAL = _same(
    "text", "json", "rouge", text_strategy="text", json_strategy="json", rouge_strategy="rouge"
)
_TEXT = _same("ignore", "case_insensitive", "length", "match", match_strategy="match")
_LENGTH = _same("min", "max")
_JSON = _same("ignore", "ignore_tree", "number_tolerance", "match", match_strategy="match")
_ROUGE = _same("ignore", "rouge_type", "measure", "threshold", "use_stemmer", "split_summaries")
_TOOLS = _same(
    "default",
    "overrides",
    "order_sensitive",
    "subset_matching",
    default_strategy="default",
    tool_strategy="overrides",
)
_TOOL = _same("name", "arguments", "result")


def _root(
    options: Options, place: Place, wanted: str, known: Mapping[str, str]
) -> Criterion | None:
    value = options.get("criterion")
    root = None if value is None else open_criterion(value, place.at("criterion"), _ROOT)
    for key in root.values if root else ():
        if root is not None and key != wanted:
            root.places[key].fault(f"this metric has the criterion `{wanted}`, not `{key}`")
    return root.part(wanted, known) if root else None


def _common(options: Options, place: Place) -> Options:
    for key in options:
        if key not in (*_COMMON, "criterion"):
            place.at(key).fault(f"unknown key `{key}`{did_you_mean(key, [*_COMMON, 'criterion'])}")
    return {key: options[key] for key in _COMMON if key in options}


def _final_response(options: Options, place: Place) -> Metric | None:
    common = _common(options, place)
    criterion = _root(options, place, "final_response", _FINAL)
    parts = list(_parts(criterion)) if criterion else []
    if not parts and not (criterion and criterion.values):
        parts = [(Exact, {}, place)]
    elif not parts and len(place.faults) == 0 and criterion:
        criterion.place.fault("expected something to compare, found that all is ignored")
    if len(parts) == 1:
        kind, found, at = parts[0]
        return read_options(kind, {**common, **found}, attrs.evolve(at, path=place.path))
    metrics = [read_options(kind, {"name": kind.kind, **found}, at) for kind, found, at in parts]
    made = tuple(metric for metric in metrics if metric is not None)
    if len(made) < max(len(metrics), 1):
        return None
    return _all_of(common, made, place)


def _all_of(common: Options, metrics: tuple[Metric, ...], place: Place) -> Metric | None:
    # The shared options are read by the first kind that has them all.
    shell = read_options(Exact, common, place)
    if shell is None:
        return None
    return AllOf(
        name=shell.name, threshold=shell.threshold, required=shell.required, metrics=metrics
    )


Part = tuple[type[BaseMetric], Options, Place]


def _parts(criterion: Criterion) -> Iterator[Part]:
    text = criterion.part("text", _TEXT)
    if text and not text.flag("ignore"):
        yield from _text_parts(text)
    json = criterion.part("json", _JSON)
    if json and not json.flag("ignore"):
        yield JsonMatch, _json_options(json), json.place
    rouge = criterion.part("rouge", _ROUGE)
    if rouge and not rouge.flag("ignore"):
        yield from _rouge_parts(rouge)


def _text_parts(text: Criterion) -> Iterator[Part]:
    length = text.part("length", _LENGTH)
    if length:
        limits = {key: value for key, value in length.values.items() if value is not None}
        yield Length, limits, length.place
    match = _match(text, (*_MATCHES, "skip"))
    if match != "skip":
        yield _MATCHES[match], {"ignore_case": text.flag("case_insensitive")}, text.place


def _match(criterion: Criterion, allowed: Sequence[str]) -> str:
    value = criterion.get("match", str, "a string")
    match = "exact" if value is None else str(value).strip().lower()
    if match in allowed:
        return match
    words = ", ".join(repr(word) for word in allowed)
    criterion.places["match"].fault(f"expected one of {words}, found {shown(value)}")
    return "exact"


def _json_options(criterion: Criterion) -> Options:
    _match(criterion, ("exact",))
    tolerance = criterion.get("number_tolerance", (int, float), "a number")
    tree = criterion.get("ignore_tree", dict, "an object")
    options: dict[str, Json] = {"tolerance": _NUMBER_TOLERANCE if tolerance is None else tolerance}
    if isinstance(tree, dict):
        options["ignore"] = list(_leaves(tree, "", criterion.places["ignore_tree"]))
    return options


def _leaves(tree: Mapping[str, Json], prefix: str, place: Place) -> Iterator[str]:
    for key, value in tree.items():
        path = f'{prefix}["{key}"]'
        if value is True:
            yield path
        elif isinstance(value, dict):
            yield from _leaves(value, path, place.at(key))
        else:
            place.at(key).fault(f"expected true or an object, found {shown(value)}")


def _rouge_parts(rouge: Criterion) -> Iterator[Part]:
    for key in ("use_stemmer", "split_summaries"):
        if rouge.flag(key):
            rouge.places[key].fault(f"`{key}` is not offered; leave it out or write false")
    variant = rouge.get("rouge_type", str, "a string")
    least = rouge.get("threshold", dict, "an object") or {}
    measure = rouge.get("measure", str, "a string")
    thresholds = least if isinstance(least, dict) and least else {measure or "f1": 0.0}
    for name, value in thresholds.items():
        options = {"variant": variant or "rouge1", "measure": name, "threshold": value}
        yield Rouge, {"name": f"rouge {name}", **options}, rouge.place


def _tool_trajectory(options: Options, place: Place) -> Metric | None:
    common = _common(options, place)
    criterion = _root(options, place, "tool_trajectory", _TOOLS)
    if criterion is None:
        rule: Json = {"tolerance": _NUMBER_TOLERANCE}
        return read_options(ToolTrajectory, {**common, "rule": rule}, place)
    default = criterion.part("default", _TOOL)
    overrides = criterion.get("overrides", dict, "an object") or {}
    tools: dict[str, Json] = {}
    for name, value in overrides.items() if isinstance(overrides, dict) else ():
        at = criterion.places["overrides"].at(name)
        tools[name] = dict(_tool_rule(open_criterion(value, at, _TOOL), default))
    built: dict[str, Json] = {
        "ordered": criterion.flag("order_sensitive"),
        "subset": criterion.flag("subset_matching"),
        "rule": dict(_tool_rule(default, None)),
        "tools": tools,
    }
    return read_options(ToolTrajectory, {**common, **built}, place)


def _tool_rule(own: Criterion | None, default: Criterion | None) -> Options:
    """Return the options of a ToolRule; what a tool does not say, the default says."""
    name, arguments, result = (
        next((part for c in (own, default) if c and (part := c.part(key, known))), None)
        for key, known in (("name", _TEXT), ("arguments", _JSON), ("result", _JSON))
    )
    if name:
        _only_exact_names(name)
    options: dict[str, Json] = {"tolerance": _NUMBER_TOLERANCE}
    ignored = False
    for part in (result, arguments):
        if part is not None:
            ignored = part.flag("ignore")
            options = {**options, **_json_options(part)}
    if arguments is not None and ignored:
        options["arguments"] = "ignore"
    if result is not None and not result.flag("ignore"):
        options["results"] = True
    return options


def _only_exact_names(name: Criterion) -> None:
    match = _match(name, ("exact",))
    if match == "exact" and (name.flag("case_insensitive") or name.flag("ignore")):
        name.place.fault("the names of tools are compared exactly; leave this criterion out")


def _response_match(options: Options, place: Place) -> Metric | None:
    common = _common(options, place)
    part = _root(options, place, "rouge", _ROUGE)
    made = next(iter(_rouge_parts(part)), None) if part else None
    found = {key: value for key, value in (made[1] if made else {}).items() if key == "measure"}
    return read_options(Rouge, {"variant": "rouge1", **found, **common}, place)


FINAL_RESPONSE = MetricKind(
    name="final_response_avg_score", build=_final_response, takes_criterion=True
)
TOOL_TRAJECTORY = MetricKind(
    name="tool_trajectory_avg_score", build=_tool_trajectory, takes_criterion=True
)
RESPONSE_MATCH = MetricKind(
    name="response_match_score", build=_response_match, takes_criterion=True
)
