"""Tests of promptfoo as cases, and what they assert as metrics of a project."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set

import attrs

from promptgraft.bridges.promptfoo.asserts import AssertedMetric, Asserting
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.nodes import Node
from promptgraft.project.imported import image_part, name_of

_FORM = ("json_schema", "length", "cost", "latency")


@attrs.frozen(kw_only=True)
class Test:
    """One test, including what it inherits.

    Attributes:
        node: the test itself.
        values: its variables.
        missing: those of its variables that code computes.
        asked: its assertions.
        fields: further fields of the case.
        recorded: an answer that is given with the test.
        threshold: the share of assertions that have to hold.
        is_case: whether it becomes a case; a default alone only says how to score.
    """

    node: Node
    values: Mapping[str, Json] = attrs.field(hash=False)
    missing: frozenset[str] = frozenset()
    asked: Sequence[AssertedMetric]
    fields: Mapping[str, Json] = attrs.field(hash=False)
    recorded: str | None
    threshold: Json = attrs.field(hash=False)
    is_case: bool = True


def judged(
    tests: Sequence[Test],
    reads: Sequence[str],
    text: str,
    *,
    images: Set[str],
    place: Node,
    asserting: Asserting,
) -> tuple[list[dict[str, Json]], dict[str, Json]]:
    """Convert tests to cases, and to the keys of a project file that score them.

    The variables that prompts read are the input of a case, all others its field ``vars``; ``text``
    is the text of all prompts, and ``images`` are the variables that they show as images.
    """
    notes = asserting.files.notes
    asserted = [test for test in tests if test.asked]
    if not asserted:
        asserted = [attrs.evolve(test, asked=(_quality(asserting, place),)) for test in tests]
    for test in tests:
        if not test.asked and len(asserted) < len(tests):
            notes.add(test.node, "a test without an assertion is left out")
    names: dict[tuple[str, int], str] = {}
    chosen = [_named(test.asked, names) for test in asserted]
    metrics = {
        name: metric for metrics_of_test in chosen for name, metric in metrics_of_test.items()
    }
    if all(metric.kind in _FORM for metric in metrics.values()):
        what = "the assertions that are left judge form, cost and time, not what an answer says"
        notes.add(place, f"{what}: add a metric to `metrics`")
    compared = [name for name, metric in metrics.items() if metric.reference is not None]
    several = len(compared) > 1
    differ = any(list(metrics_of_test) != list(chosen[0]) for metrics_of_test in chosen)
    cases = list[dict[str, Json]]()
    for number, (test, metrics_of_test) in enumerate(zip(asserted, chosen, strict=True), start=1):
        if not test.is_case:
            continue
        references = {
            name: metrics_of_test[name].reference for name in metrics_of_test if name in compared
        }
        unread = {name: value for name, value in test.values.items() if name not in reads}
        fields: dict[str, Json] = {**test.fields}
        if unread:
            fields["vars"] = unread
        if differ:
            fields["asserts"] = [*metrics_of_test]
        case: dict[str, Json] = {
            "id": f"test-{number}",
            "input": {
                name: image_part(value)
                if isinstance(value := test.values.get(name), str) and name in images
                else _bound(name, value, text)
                for name in reads
                if name not in test.missing
            },
            "expected": references if several else next(iter(references.values()), None),
            "recorded": test.recorded,
            "fields": fields or None,
        }
        cases.append({key: value for key, value in case.items() if value is not None})
    thresholds = {test.threshold for test in asserted}
    if len(thresholds) > 1:
        notes.add(asserted[0].node, "a `threshold` that not all tests have is left out")
    threshold = thresholds.pop() if len(thresholds) == 1 else None
    return cases, _judging(metrics, threshold, differ=differ, paths=several)


def _quality(asserting: Asserting, place: Node) -> AssertedMetric:
    """Return a metric that the user has to write, for tests that assert nothing."""
    what = "no test says what a good answer is"
    where = asserting.stubs.metric("quality", place, what)
    asserting.files.notes.add(place, f"{what}: write `{where}`, or choose another metric")
    return AssertedMetric(kind="python", options={"function": where}, name="quality")


def _named(
    metrics: Sequence[AssertedMetric], names: dict[tuple[str, int], str]
) -> dict[str, AssertedMetric]:
    """Return assertions by metric name; equal assertions of different tests share a name."""
    by_name: dict[str, AssertedMetric] = {}
    for entry in metrics:
        slot = (entry.key, sum(entry.key == entry_named.key for entry_named in by_name.values()))
        if slot not in names:
            names[slot] = name_of(entry.name, list(names.values()), joint="_")
        by_name[names[slot]] = entry
    return by_name


def _judging(
    metrics: Mapping[str, AssertedMetric], threshold: Json, *, differ: bool, paths: bool
) -> dict[str, Json]:
    entries: list[Json] = []
    for name, metric in metrics.items():
        path = {"expected_path": name} if paths and metric.reference is not None else {}
        entries.append({"name": name, "kind": metric.kind, **metric.options, **path})
    weights: dict[str, Json] = {name: metric.weight for name, metric in metrics.items()}
    weighted: dict[str, Json] = (
        {"weights": weights} if any(metric.weight != 1 for metric in metrics.values()) else {}
    )
    inverted: list[Json] = [name for name, metric in metrics.items() if metric.inverted]
    if not (differ or inverted) and threshold is None:
        return {"metrics": entries, **({"aggregation": weighted} if weighted else {})}
    settings: dict[str, Json] = {**weighted, "inverted": inverted or None, "threshold": threshold}
    further = {key: value for key, value in settings.items() if value is not None}
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
        {
            str(entry.reference)
            for entry in test.asked
            if entry.kind == "exact" and not entry.inverted
        }
        for test in tests
        if test.asked
    ]
    labels_sorted = sorted(set().union(*labels))
    # Labels repeat from test to test; expected texts that rarely do are free answers.
    is_choice = (
        all(len(labels_of_test) == 1 for labels_of_test in labels)
        and 1 < len(labels_sorted) <= len(labels) / 2
    )
    return labels_sorted if is_choice else []
