"""Metrics that single cases name: which of them judge, and what is refused."""

from __future__ import annotations

import pytest

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals import metrics
from promptgraft.evals.types import Answer, Case
from promptgraft.ground.serde import Json

PARTS: list[Json] = [
    {"name": "label", "kind": "exact", "expected_path": "label"},
    {"name": "polite", "kind": "contains", "texts": ["please"]},
]


def by_case(**options: Json) -> metrics.ByCase:
    (found,) = metrics.load_metrics([{"name": "by_case", "metrics": PARTS, **options}])
    assert isinstance(found, metrics.ByCase)
    return found


def case(expected: Json = None, **fields: Json) -> Case:
    return Case(id="a", input="?", expected=expected, fields=fields)


def test_a_case_is_judged_by_the_metrics_that_it_names() -> None:
    metric, answer = by_case(), Answer(text="please")
    assert metric.judge(case(asserts=["polite"]), answer).score == 1.0
    assert metric.judge(case({"label": "x"}, asserts=["label", "polite"]), answer).score == 0.5
    assert by_case(field="rules").judge(case(rules=["polite"]), answer).passed


def test_only_what_a_case_names_is_asked_of_it_beforehand() -> None:
    metrics.check_cases([by_case()], [case(asserts=["polite"])])
    with pytest.raises(ConfigError, match="metric `label` "):
        metrics.check_cases([by_case()], [case(asserts=["label"])])
    with pytest.raises(ConfigError, match=r"has no metric 'polit' \(did you mean `polite`\?\)"):
        metrics.check_cases([by_case()], [case(asserts=["polit"])])
    with pytest.raises(ConfigError, match="expects a list of metrics in `asserts`, found"):
        metrics.check_cases([by_case()], [case(asserts="polite")])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"inverted": ["polit"]}, "no metric has the name 'polit' (did you mean `polite`?)"),
        ({"weights": {"label": 0}}, "expected a number above 0, found 0"),
        ({"metrics": [{"name": "exct"}]}, "unknown metric `exct` (did you mean `exact`?)"),
        ({"metrics": []}, "expected at least one metric, found none"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(options: dict[str, Json], said: str) -> None:
    with pytest.raises(DataFormatError) as raised:
        by_case(**options)
    assert said in str(raised.value)
