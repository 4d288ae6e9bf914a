"""Conversion of promptfoo assertions to metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.metrics.patterns import hold_pattern
from promptgraft.project.imported import Notes, filled, name_of, text_of
from promptgraft.serde import Json, canonical_json, map_texts, shown
from promptgraft.strict.nodes import Node

_SHORT = re.compile(r"(not-)?([a-z][a-z0-9-]*)(?:\((\d+(?:\.\d+)?)\))?(?::(.*))?", re.DOTALL)
_LEGACY = {"fn": "javascript", "eval": "javascript", "grade": "llm-rubric"}
_READ = frozenset(("type", "value", "threshold", "weight", "metric", "assert", "provider"))


@attrs.frozen(kw_only=True)
class Asked:
    """One assertion as a metric.

    Attributes:
        kind: the kind of the metric.
        options: its options.
        reference: the value to compare with, for ``expected``; None if the options suffice.
        name: the preferred name.
        weight: its weight.
        inverted: whether it must not hold.
    """

    kind: str
    options: Mapping[str, Json] = attrs.field(hash=False)
    reference: Json = attrs.field(default=None, hash=False)
    name: str = ""
    weight: float = 1.0
    inverted: bool = False

    @property
    def key(self) -> str:
        """Equal for assertions that can share one metric."""
        # By content, so that a thousand tests with the same assertion share one metric.
        return canonical_json(
            [self.kind, dict(self.options), self.weight, self.inverted, self.name]
        )


@attrs.frozen(kw_only=True)
class Test:
    """One test, including what it inherits; ``values`` are its variables."""

    node: Node
    values: Mapping[str, Json] = attrs.field(hash=False)
    asked: Sequence[Asked]
    fields: Mapping[str, Json] = attrs.field(hash=False)
    recorded: str | None
    threshold: Json = attrs.field(hash=False)


def row_as_test(row: Node) -> Node:
    """Convert a row of a table to a test."""
    asserts: list[dict[str, Json]] = []
    values: dict[str, Json] = {}
    test: dict[str, Json] = {}
    for key, cell in row.members().items():
        name, text = key.removeprefix("__"), str(cell.value)
        if name == key:
            values[key] = text
        elif key.startswith("__expected") and text.strip():
            asserts.append(_of_text(text))
        elif text:
            test[name] = _number(text) if name == "threshold" else text
    metric = {"metric": test.pop("metric")} if "metric" in test else {}
    told: list[Json] = [{**one, **metric} for one in asserts]
    return Node({**test, "vars": values, "assert": told}, row.path, row.source)


def _of_text(text: str) -> dict[str, Json]:
    """Convert a cell, such as ``contains: a``, to an assertion."""
    found = _SHORT.fullmatch(text.strip())
    kind = "" if found is None else _LEGACY.get(found[2], found[2])
    if found is None or kind not in _KNOWN:
        return {"type": "equals", "value": text}
    value: Json = found[4]
    if found[4] is not None and kind.endswith(("-all", "-any")):
        value = [one.strip() for one in found[4].split(",")]
    entry: dict[str, Json] = {"type": f"{found[1] or ''}{kind}", "value": value}
    threshold = found[3] or (found[4] if kind in ("cost", "latency") else None)
    return entry if threshold is None else {**entry, "threshold": _number(threshold)}


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def read_assert(
    node: Node, values: Mapping[str, Json], notes: Notes, *, judge: Callable[[Node], str]
) -> Iterator[Asked]:
    """Convert an assertion of a test with these variables to metrics.

    ``judge`` returns the name of the judge for a provider.
    """
    members = node.members()
    for key, member in members.items():
        if key not in _READ:
            notes.add(member, f"`{key}` of an assertion is left out: no metric has it")
    told = str(node.member("type").value)
    kind = told.removeprefix("not-")
    if kind == "assert-set":
        if "threshold" in members:
            notes.add(node, "the `threshold` of an `assert-set` is left out: all of it has to hold")
        for one in node.member("assert").items():
            yield from read_assert(one, values, notes, judge=judge)
        return
    value = _value(node.member("value"), values, notes)
    threshold = node.member("threshold").value
    made = _metric(kind, value, threshold, judge=partial(judge, node.member("provider")))
    if made is None:
        why = _NONE.get(kind, "no metric does the same")
        notes.add(node.member("type"), f"`{told}` is left out: {why}")
        return
    weight = node.member("weight").value
    if weight == 0:
        notes.add(node.member("weight"), "an assertion of weight 0 is left out: it decides nothing")
        return
    yield attrs.evolve(
        made,
        name=name_of(str(node.member("metric").value or told), joint="_"),
        weight=float(weight) if isinstance(weight, (int, float)) else 1.0,
        inverted=told != kind,
    )


def _value(node: Node, values: Mapping[str, Json], notes: Notes) -> Json:
    """Return the value of an assertion, rendered with the variables of its test."""

    def change(text: str) -> str:
        found = filled(text, values) if "{{" in text or "{%" in text else text
        if found is None:
            notes.add(node, f"{shown(text)} cannot be rendered by Jinja, and is kept as it is")
        return text if found is None else found

    value = node.value
    if (
        isinstance(value, str)
        and value.startswith("file://")
        and value.endswith((".txt", ".json", ".yaml", ".yml"))
    ):
        file = Node(value.removeprefix("file://"), node.path, node.source).file()
        value = None if file is None else text_of(file, node)
    return map_texts(value, change)


_FACTS = "The answer says the same facts as this one, and none against it: {}"
# Passing scores here and in `_COMPARED` are the defaults of promptfoo.
_JUDGED: Mapping[str, tuple[str, float]] = {  # the rubric and the passing score
    "llm-rubric": ("{}", 1.0),
    "model-graded-closedqa": ("{}", 1.0),
    "g-eval": ("{}", 0.7),
    "factuality": (_FACTS, 1.0),
    "model-graded-factuality": (_FACTS, 1.0),
}
_COMPARED: Mapping[str, tuple[str, Mapping[str, Json]]] = {
    "equals": ("exact", {}),
    "contains": ("contains", {}),
    "icontains": ("contains", {"ignore_case": True}),
    "contains-all": ("contains", {}),
    "contains-any": ("contains", {"any_of": True}),
    "icontains-all": ("contains", {"ignore_case": True}),
    "icontains-any": ("contains", {"ignore_case": True, "any_of": True}),
    "regex": ("regex", {}),
    "starts-with": ("regex", {}),
    "rouge-n": ("rouge", {"variant": "rouge1", "threshold": 0.75}),
}
_LIMITS = {"cost": 1.0, "latency": 0.001}  # ours in US dollars and seconds, by theirs
_SCHEMAS: Mapping[str, Mapping[str, Json]] = {"is-json": {}, "contains-json": {"fenced": True}}
_WORDS = "word-count"
_NONE: Mapping[str, str] = {
    "javascript": "write an `assert` expression or a Python function in its place",
    "python": "a function here takes the case and the answer; write it as a `python` metric",
    "levenshtein": "its threshold counts characters; `edit_similarity` takes a share",
    "similar": "there are no embeddings here; ask a judge",
    "select-best": "candidates are compared by their scores",
    "max-score": "candidates are compared by their scores",
    "human": "an answer is judged while the search runs",
}
_KNOWN = frozenset((*_JUDGED, *_COMPARED, *_LIMITS, *_SCHEMAS, _WORDS, *_NONE))


def _metric(kind: str, value: Json, threshold: Json, *, judge: Callable[[], str]) -> Asked | None:
    """Convert an assertion of a kind; return None if no metric corresponds to it."""
    if kind in _COMPARED:
        return _compared(kind, value, threshold)
    if kind in _JUDGED and value:
        text, least = _JUDGED[kind]
        asked = value if isinstance(value, list) else [value]
        told = [one if isinstance(one, str) else json.dumps(one) for one in asked]
        rubrics: list[Json] = [
            {"id": f"r{number}", "text": text.format(one)}
            for number, one in enumerate(told, start=1)
        ]
        passing = least if threshold is None else threshold
        return Asked(
            kind="llm_rubric_response",
            options={"judges": [judge()], "rubrics": rubrics, "threshold": passing},
        )
    if kind in _LIMITS and isinstance(threshold, (int, float)):
        return Asked(kind=kind, options={"limit": threshold * _LIMITS[kind]})
    if kind in _SCHEMAS:
        return _schema(value, _SCHEMAS[kind])
    if kind == _WORDS and isinstance(value, dict):
        return Asked(kind="length", options={"unit": "words", **value})
    if kind == _WORDS and str(value).strip().isdigit():
        number = int(str(value))
        return Asked(kind="length", options={"unit": "words", "min": number, "max": number})
    return None


def _compared(kind: str, value: Json, threshold: Json) -> Asked | None:
    name, options = _COMPARED[kind]
    if kind == "equals" and value == "":
        return Asked(kind="length", options={"max": 0})
    if kind == "equals" and isinstance(value, (dict, list, bool)):
        return Asked(kind="json_match", options={}, reference=value)
    if "threshold" in options and threshold is not None:
        options = {**options, "threshold": threshold}
    reference = _reference(kind, value)
    return Asked(kind=name, options=options, reference=reference) if reference else None


def _reference(kind: str, value: Json) -> Json:
    """Return the value to compare answers with; None if it is unusable."""
    if kind.endswith(("-all", "-any")):
        given = value.split(",") if isinstance(value, str) else value
        texts = [str(one).strip() for one in given] if isinstance(given, list) else []
        return [text for text in texts if text]
    if value is None or isinstance(value, (bool, dict, list)):
        return None
    if kind == "starts-with":
        return rf"\A{re.escape(str(value))}"
    if kind == "regex":
        try:
            hold_pattern(str(value))
        except ConfigError:
            return None
    return str(value)


def _schema(value: Json, further: Mapping[str, Json]) -> Asked | None:
    try:
        schema = json.loads(value) if isinstance(value, str) and value.strip() else value or {}
    except ValueError:
        return None
    is_schema = isinstance(schema, dict)
    return Asked(kind="json_schema", options={"schema": schema, **further}) if is_schema else None


def judged(
    tests: Sequence[Test], reads: Sequence[str], text: str, *, place: Node, notes: Notes
) -> tuple[list[dict[str, Json]], dict[str, Json]]:
    """Convert tests to cases, and to the keys of a project file that score them.

    The cases have the variables that prompts read; ``text`` is the text of all prompts.
    """
    for test in tests:
        if not test.asked:
            notes.add(test.node, "a test without an assertion is left out")
    kept = [test for test in tests if test.asked]
    if not kept:
        place.fault("expected a test with an assertion that can be imported, found none")
    names: dict[tuple[str, int], str] = {}
    chosen = [_named(test.asked, names) for test in kept]
    metrics = {name: one for found in chosen for name, one in found.items()}
    compared = [name for name, one in metrics.items() if one.reference is not None]
    several = len(compared) > 1
    differ = any(list(found) != list(chosen[0]) for found in chosen)
    cases = list[dict[str, Json]]()
    for number, (test, found) in enumerate(zip(kept, chosen, strict=True), start=1):
        references = {name: found[name].reference for name in found if name in compared}
        asserts: list[Json] = list(found)
        fields = {**test.fields, **({"asserts": asserts} if differ else {})}
        case: dict[str, Json] = {
            "id": f"test-{number}",
            "input": {name: _bound(name, test.values.get(name), text) for name in reads},
            "expected": references if several else next(iter(references.values()), None),
            "recorded": test.recorded,
            "fields": fields or None,
        }
        cases.append({key: value for key, value in case.items() if value is not None})
    thresholds = {test.threshold for test in kept}
    if len(thresholds) > 1:
        notes.add(kept[0].node, "a `threshold` that not all tests have is left out")
    threshold = thresholds.pop() if len(thresholds) == 1 else None
    return cases, _judging(metrics, threshold, differ=differ, paths=several)


def _named(asked: Sequence[Asked], names: dict[tuple[str, int], str]) -> dict[str, Asked]:
    """Return assertions by metric name; equal assertions of different tests share a name."""
    found: dict[str, Asked] = {}
    for one in asked:
        slot = (one.key, sum(one.key == other.key for other in found.values()))
        if slot not in names:
            names[slot] = name_of(one.name, list(names.values()), joint="_")
        found[names[slot]] = one
    return found


def _judging(
    metrics: Mapping[str, Asked], threshold: Json, *, differ: bool, paths: bool
) -> dict[str, Json]:
    entries: list[Json] = []
    for name, one in metrics.items():
        path = {"expected_path": name} if paths and one.reference is not None else {}
        entries.append({"name": name, "kind": one.kind, **one.options, **path})
    weights: dict[str, Json] = {name: one.weight for name, one in metrics.items()}
    weighted: dict[str, Json] = (
        {"weights": weights} if any(one.weight != 1 for one in metrics.values()) else {}
    )
    inverted: list[Json] = [name for name, one in metrics.items() if one.inverted]
    if not (differ or inverted) and threshold is None:
        return {"metrics": entries, **({"aggregation": weighted} if weighted else {})}
    own: dict[str, Json] = {**weighted, "inverted": inverted or None, "threshold": threshold}
    further = {key: value for key, value in own.items() if value is not None}
    return {"metrics": [{"name": "asserts", "kind": "by_case", **further, "metrics": entries}]}


def _bound(name: str, value: Json, text: str) -> Json:
    """Convert a variable for a placeholder: null to an empty text, and data to JSON.

    Data whose members or items a prompt uses stays data.
    """
    looked_into = re.search(rf"\b{name}\s*[.\[|]|\bin\s+{name}\b", text)
    if isinstance(value, (dict, list)) and not looked_into:
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else value


def choices_of(tests: Sequence[Test]) -> list[str]:
    """Return the possible answers, if all tests expect one of a few whole texts."""
    labels = [
        {str(one.reference) for one in test.asked if one.kind == "exact" and not one.inverted}
        for test in tests
        if test.asked
    ]
    found = sorted(set().union(*labels))
    # Labels repeat from test to test; expected texts that rarely do are free answers.
    is_choice = all(len(one) == 1 for one in labels) and 1 < len(found) <= len(labels) / 2
    return found if is_choice else []
