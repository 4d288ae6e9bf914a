"""Metric files of other tools: ``metric_name`` or ``metricName``, ``threshold``, ``criterion``.

Keys may be in snake_case or camelCase. Each criterion is translated to one of our metrics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

import attrs

from promptgraft.evals.metrics.base import AllOf, BaseMetric
from promptgraft.evals.metrics.containment import Contains
from promptgraft.evals.metrics.json_values import JsonMatch, ToolTrajectory
from promptgraft.evals.metrics.patterns import Regex
from promptgraft.evals.metrics.similarity import Rouge
from promptgraft.evals.metrics.text import Exact
from promptgraft.evals.metrics.values import Length
from promptgraft.evals.types import Metric, MetricKind
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import FLAG, NUMBER, OBJECT, STRING, Kind, one_of
from promptgraft.ground.strict.kinds import known_members, record_of
from promptgraft.ground.strict.nodes import Node

T = TypeVar("T")

# The default tolerance of those tools.
_NUMBER_TOLERANCE = 1e-6
_COMMON = ("name", "threshold", "required")
_MATCHES: Mapping[str, type[BaseMetric]] = {"exact": Exact, "contains": Contains, "regex": Regex}


Options = dict[str, Json]

_ALIASES = {
    **{f"{key}_strategy": key for key in ("text", "json", "rouge", "match", "default")},
    "tool_strategy": "overrides",
}
# The keys of each object of a criterion.
_ROOT = ("final_response", "tool_trajectory", "rouge", "llm_judge")
_FINAL = ("text", "json", "rouge")
_TEXT = ("ignore", "case_insensitive", "length", "match")
_LENGTH = ("min", "max")
_JSON = ("ignore", "ignore_tree", "number_tolerance", "match")
_ROUGE = ("ignore", "rouge_type", "measure", "threshold", "use_stemmer", "split_summaries")
_TOOLS = ("default", "overrides", "order_sensitive", "subset_matching")
_TOOL = ("name", "arguments", "result")


@attrs.frozen
class Criterion:
    """An object of a criterion, with its members by the snake_case names of their keys."""

    node: Node
    members: Mapping[str, Node]

    @classmethod
    def of(cls, node: Node, known: Collection[str]) -> Criterion:
        return cls(node, known_members(node, known, aliases=_ALIASES))

    def read(self, key: str, kind: Kind[T]) -> T | None:
        """Return a member; None if it is absent or of the wrong kind, which is noted."""
        return kind.read(self.members[key]) if key in self.members else None

    def flag(self, key: str) -> bool:
        return self.read(key, FLAG) is True

    def part(self, key: str, known: Collection[str]) -> Criterion | None:
        return Criterion.of(self.members[key], known) if key in self.members else None


def made(kind: type[T], options: Options, node: Node) -> T | None:
    """Make a metric from options; faults are noted at ``node``."""
    return record_of(kind).read(Node(options, node.path, node.source))


def _root(node: Node, wanted: str, known: Collection[str]) -> Criterion | None:
    criterion = node.member("criterion")
    if criterion.value is None:
        return None
    root = Criterion.of(criterion, _ROOT)
    for key in root.members:
        if key != wanted:
            root.members[key].fault(f"this metric has the criterion `{wanted}`, not `{key}`")
    return root.part(wanted, known)


def _common(node: Node) -> Options:
    members = known_members(node, (*_COMMON, "criterion"))
    return {key: members[key].value for key in _COMMON if key in members}


def _final_response(node: Node) -> Metric | None:
    common = _common(node)
    criterion = _root(node, "final_response", _FINAL)
    parts = list(_parts(criterion)) if criterion else []
    if not parts and not (criterion and criterion.members):
        parts = [(Exact, {}, node)]
    elif not parts and node.is_right() and criterion:
        criterion.node.fault("expected something to compare, found that all is ignored")
    # A single part needs no `all_of` around it, whose threshold would be a second one.
    if len(parts) == 1:
        kind, fields, _ = parts[0]
        return made(kind, {**common, **fields}, node)
    metrics = [made(kind, {"name": kind.kind, **fields}, at) for kind, fields, at in parts]
    usable = tuple(metric for metric in metrics if metric is not None)
    # `Exact` has all shared options, so it checks and defaults them.
    shell = made(Exact, common, node)
    if shell is None or len(usable) < max(len(metrics), 1):
        return None
    return AllOf(
        name=shell.name, threshold=shell.threshold, required=shell.required, metrics=usable
    )


Part = tuple[type[BaseMetric], Options, Node]


def _parts(criterion: Criterion) -> Iterator[Part]:
    if (text := criterion.part("text", _TEXT)) and not text.flag("ignore"):
        yield from _text_parts(text)
    if (json := criterion.part("json", _JSON)) and not json.flag("ignore"):
        yield JsonMatch, _json_options(json), json.node
    if (rouge := criterion.part("rouge", _ROUGE)) and not rouge.flag("ignore"):
        yield from _rouge_parts(rouge)


def _text_parts(text: Criterion) -> Iterator[Part]:
    if length := text.part("length", _LENGTH):
        yield Length, {key: member.value for key, member in length.members.items()}, length.node
    match = _match(text, *_MATCHES, "skip")
    if match != "skip":
        yield _MATCHES[match], {"ignore_case": text.flag("case_insensitive")}, text.node


def _match(criterion: Criterion, *allowed: str) -> str:
    node = criterion.members.get("match")
    if node is None:
        return "exact"
    word = node.value.strip().lower() if isinstance(node.value, str) else node.value
    return one_of(*allowed).read(Node(word, node.path, node.source)) or "exact"


def _json_options(criterion: Criterion) -> Options:
    _match(criterion, "exact")
    tolerance = criterion.read("number_tolerance", NUMBER)
    options: Options = {"tolerance": _NUMBER_TOLERANCE if tolerance is None else tolerance}
    if criterion.read("ignore_tree", OBJECT) is not None:
        options["ignore"] = list(_leaves(criterion.members["ignore_tree"], ""))
    return options


def _leaves(tree: Node, prefix: str) -> Iterator[str]:
    for key in tree.value if isinstance(tree.value, dict) else ():
        node, path = tree.member(key), f'{prefix}["{key}"]'
        if node.value is True:
            yield path
        elif isinstance(node.value, dict):
            yield from _leaves(node, path)
        else:
            node.expected("true or an object")


def _rouge_parts(rouge: Criterion) -> Iterator[Part]:
    for key in ("use_stemmer", "split_summaries"):
        if rouge.flag(key):
            rouge.members[key].fault(f"`{key}` is not offered; leave it out or write false")
    variant, measure = rouge.read("rouge_type", STRING), rouge.read("measure", STRING)
    for name, value in (rouge.read("threshold", OBJECT) or {measure or "f1": 0.0}).items():
        options: Options = {"variant": variant or "rouge1", "measure": name, "threshold": value}
        yield Rouge, {"name": f"rouge {name}", **options}, rouge.node


def _tool_trajectory(node: Node) -> Metric | None:
    common = _common(node)
    criterion = _root(node, "tool_trajectory", _TOOLS)
    if criterion is None:
        return made(ToolTrajectory, {**common, "rule": {"tolerance": _NUMBER_TOLERANCE}}, node)
    default = criterion.part("default", _TOOL)
    named = criterion.members.get("overrides")
    if named is not None:
        OBJECT.read(named)
    tools: Options = {
        name: _tool_rule(Criterion.of(node, _TOOL), default)
        for name, node in (named.members() if named else {}).items()
    }
    built: Options = {
        "ordered": criterion.flag("order_sensitive"),
        "subset": criterion.flag("subset_matching"),
        "rule": _tool_rule(default, None),
        "tools": tools,
    }
    return made(ToolTrajectory, {**common, **built}, node)


def _tool_rule(own: Criterion | None, default: Criterion | None) -> Options:
    """Return the options of a ToolRule; ``default`` fills in what the tool leaves out."""
    name, arguments, result = (
        next((part for c in (own, default) if c and (part := c.part(key, names))), None)
        for key, names in (("name", _TEXT), ("arguments", _JSON), ("result", _JSON))
    )
    if name:
        _match(name, "exact")
        if name.flag("case_insensitive") or name.flag("ignore"):
            name.node.fault("the names of tools are compared exactly; leave this criterion out")
    options: Options = {"tolerance": _NUMBER_TOLERANCE}
    ignored = False
    # Arguments last, so that their tolerance and ignored places win over those of the result.
    for part in (result, arguments):
        if part is not None:
            ignored = part.flag("ignore")
            options = {**options, **_json_options(part)}
    if arguments is not None and ignored:
        options["arguments"] = "ignore"
    if result is not None and not result.flag("ignore"):
        options["results"] = True
    return options


def _response_match(node: Node) -> Metric | None:
    common = _common(node)
    part = _root(node, "rouge", _ROUGE)
    first = next(iter(_rouge_parts(part)), None) if part else None
    measure = {"measure": first[1]["measure"]} if first else {}
    return made(Rouge, {"variant": "rouge1", **measure, **common}, node)


DIALECTS = {
    name: MetricKind(name=name, build=build, takes_criterion=True)
    for name, build in (
        ("final_response_avg_score", _final_response),
        ("tool_trajectory_avg_score", _tool_trajectory),
        ("response_match_score", _response_match),
    )
}
