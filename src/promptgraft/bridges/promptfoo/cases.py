"""Tests of promptfoo as cases, and what they assert as metrics of a project."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import attrs

from promptgraft.bridges.promptfoo.asserts import Asked, Asserting
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.nodes import Node
from promptgraft.project.imported import name_of

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
    asked: Sequence[Asked]
    fields: Mapping[str, Json] = attrs.field(hash=False)
    recorded: str | None
    threshold: Json = attrs.field(hash=False)
    is_case: bool = True


def judged(
    tests: Sequence[Test], reads: Sequence[str], text: str, *, place: Node, asserting: Asserting
) -> tuple[list[dict[str, Json]], dict[str, Json]]:
    """Convert tests to cases, and to the keys of a project file that score them.

    The variables that prompts read are the input of a case, all others its field ``vars``; ``text``
    is the text of all prompts.
    """
    notes = asserting.files.notes
    kept = [test for test in tests if test.asked]
    if not kept:
        kept = [attrs.evolve(test, asked=(_quality(asserting, place),)) for test in tests]
    for test in tests:
        if not test.asked and len(kept) < len(tests):
            notes.add(test.node, "a test without an assertion is left out")
    names: dict[tuple[str, int], str] = {}
    chosen = [_named(test.asked, names) for test in kept]
    metrics = {name: one for found in chosen for name, one in found.items()}
    if all(one.kind in _FORM for one in metrics.values()):
        what = "the assertions that are left judge form, cost and time, not what an answer says"
        notes.add(place, f"{what}: add a metric to `metrics`")
    compared = [name for name, one in metrics.items() if one.reference is not None]
    several = len(compared) > 1
    differ = any(list(found) != list(chosen[0]) for found in chosen)
    cases = list[dict[str, Json]]()
    for number, (test, found) in enumerate(zip(kept, chosen, strict=True), start=1):
        if not test.is_case:
            continue
        references = {name: found[name].reference for name in found if name in compared}
        unread = {name: one for name, one in test.values.items() if name not in reads}
        fields: dict[str, Json] = {**test.fields}
        if unread:
            fields["vars"] = unread
        if differ:
            fields["asserts"] = [*found]
        case: dict[str, Json] = {
            "id": f"test-{number}",
            "input": {
                name: _bound(name, test.values.get(name), text)
                for name in reads
                if name not in test.missing
            },
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


def _quality(asserting: Asserting, place: Node) -> Asked:
    """Return a metric that the user has to write, for tests that assert nothing."""
    what = "no test says what a good answer is"
    where = asserting.stubs.metric("quality", place, what)
    asserting.files.notes.add(place, f"{what}: write `{where}`, or choose another metric")
    return Asked(kind="python", options={"function": where}, name="quality")


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
