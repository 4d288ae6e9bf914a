"""Metrics from plain data: our own form, files of other tools, and files that are wrong."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from expected_lines import check_lines
from promptgraft.errors import DataFormatError
from promptgraft.evals import metrics
from promptgraft.evals.metrics import (
    METRICS,
    MetricKind,
    Node,
    load_metric_config,
    load_metrics,
    registry,
)
from promptgraft.evals.metrics.base import AllOf, verdict_of
from promptgraft.evals.metrics.dialects import DIALECTS
from promptgraft.evals.types import Answer, Case, Metric, ToolUse
from promptgraft.ground.serde import Json

BROKEN = Path(__file__).parents[1] / "broken_metrics"
FILES = sorted(path for path in BROKEN.iterdir() if path.suffix != ".errors")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_broken_metric_file_gives_exactly_its_faults_all_at_once(path: Path) -> None:
    with pytest.raises(DataFormatError) as caught:
        load_metrics(path)

    lines = [fault.replace(str(path), path.name) for fault in caught.value.faults]
    check_lines(lines, BROKEN / f"{path.name}.errors")
    assert all(len(line.splitlines()) == 1 for line in lines)


def test_built_in_kinds_are_found_by_the_names_that_they_have() -> None:
    classes = {name: getattr(metrics, own) for name, (_, own) in registry._CLASSES.items()}
    assert {name: one.kind for name, one in classes.items()} == {name: name for name in classes}
    assert tuple(sorted(DIALECTS)) == registry._DIALECTS
    offered = {getattr(metrics, name) for name in metrics.__all__}
    kinds = {one.kind for one in offered if isinstance(getattr(one, "kind", None), str)}
    assert kinds - {AllOf.kind} <= {*METRICS.names}
    for name in METRICS.names:
        assert METRICS.find(name).name == name


def test_the_kind_alone_is_the_name_too() -> None:
    assert load_metrics([{"kind": "exact", "ignore_case": True}]) == load_metrics(
        [{"name": "exact", "ignore_case": True}]
    )
    with pytest.raises(DataFormatError, match=r"unknown metric `exakt` .did you mean `exact`"):
        load_metrics([{"kind": "exakt"}])


def test_there_are_enough_broken_metric_files() -> None:
    assert len(FILES) >= 15


@pytest.mark.parametrize(
    ("file", "text"),
    [("shape.json", '{"type": "object"}'), ("shape.yaml", "type: object  # for now\n")],
)
def test_a_schema_may_stand_in_a_file_beside_the_one_that_names_it(
    file: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / file).write_text(text, "utf-8")
    names = tmp_path / "files" / "metrics.yaml"
    names.write_text(f"- {{name: json_schema, schema: {file}}}\n", "utf-8")

    (metric,) = load_metrics(names)
    (written,) = load_metrics([{"name": "json_schema", "schema": {"type": "object"}}])
    assert metric == written
    assert passes(metric, "{}")
    assert not passes(metric, "[]")


@pytest.mark.parametrize(
    ("named", "text", "said"),
    [
        ("none.json", None, "; paths begin at {0}/m"),
        ("x" * 4096, None, "expected a file, found none at '"),
        (".", None, "expected a file, found none at '"),
        ("a.json", "{", "{0}/a.json:1:2: "),
        ("a.json", "[]", "{0}/a.json: expected an object, found an empty list"),
        ("a.yaml", "type: {a", "{0}/a.yaml:"),
        ("a.yaml", "", "{0}/a.yaml: expected an object, found nothing"),
        ("a.json", '{"type": 3}', "expected a JSON Schema, found a fault at `type`"),
    ],
)
def test_a_schema_in_a_file_that_is_none_is_one_line(
    named: str, text: str | None, said: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / named).write_text(text, "utf-8")
    names = tmp_path / "m.yaml"
    names.write_text(f'- {{name: json_schema, schema: "{named}"}}\n', "utf-8")
    with pytest.raises(DataFormatError) as caught:
        load_metrics(names)
    (line,) = caught.value.faults
    assert line.startswith(f"{names}:1: [0]")
    assert said.format(tmp_path) in line
    assert len(line) < 500


def passes(metric: Metric, answer: str, expected: Json = None) -> bool | None:
    case = Case(id="c", input="", expected=expected)
    return verdict_of(metric, case, Answer(text=answer)).passed


SNAKE: Json = {
    "evaluate": {
        "metrics": [
            {
                "metric_name": "final_response_avg_score",
                "threshold": 1.0,
                "criterion": {
                    "final_response": {"text": {"match": "contains", "case_insensitive": True}}
                },
            }
        ],
        "num_runs": 2,
    },
    "optimize": {"stop": {"required_metrics": "all"}},
}
CAMEL: Json = [
    {
        "metricName": "final_response_avg_score",
        "threshold": 1.0,
        "criterion": {
            "finalResponse": {"text": {"length": {"min": 3, "max": 8}, "matchStrategy": "skip"}}
        },
    }
]


def test_a_snake_case_metric_file_loads_with_its_number_of_runs(tmp_path: Path) -> None:
    path = tmp_path / "optimizer.json"
    path.write_text(json.dumps(SNAKE), "utf-8")

    config = load_metric_config(path)

    (metric,) = config.metrics
    assert config.num_runs == 2
    assert (metric.name, metric.threshold) == ("final_response_avg_score", 1.0)
    assert passes(metric, "The answer is PARIS.", "Paris")
    assert passes(metric, "The answer is Rome.", "Paris") is False


def test_a_camel_case_metric_file_loads_with_its_length(tmp_path: Path) -> None:
    path = tmp_path / "sports.metrics.json"
    path.write_text(json.dumps(CAMEL), "utf-8-sig")

    (metric,) = load_metrics(str(path))

    assert metric.name == "final_response_avg_score"
    assert [passes(metric, "x" * size) for size in (2, 3, 8, 9)] == [False, True, True, False]


def test_text_and_json_and_length_of_one_criterion_must_all_hold() -> None:
    text: Json = {"length": {"max": 20}, "matchStrategy": "regex", "caseInsensitive": True}
    tree: Json = {"at": True, "meta": {"id": True}}
    (metric,) = load_metrics(
        [
            {
                "metricName": "final_response_avg_score",
                "threshold": 0.5,
                "criterion": {"finalResponse": {"text": text, "json": {"ignoreTree": tree}}},
            }
        ]
    )
    assert metric.name == "final_response_avg_score"
    assert metric.threshold == 0.5
    assert passes(metric, '{"a":1.0,"at":2}', '{"a":1,"at":[23]}') is False  # no such pattern
    (of_json,) = load_metrics(
        [
            {
                "metric_name": "final_response_avg_score",
                "criterion": {"final_response": {"json": {"ignore_tree": tree}}},
            }
        ]
    )
    expected: Json = {"a": 1, "at": 3, "meta": {"id": 7, "k": 1}}
    assert passes(of_json, '{"a": 1.0000001, "at": 2, "meta": {"id": 8, "k": 1}}', expected)
    assert passes(of_json, '{"a": 1, "at": 2, "meta": {"id": 8, "k": 2}}', expected) is False


def test_the_old_shorthand_gives_thresholds_or_criteria_by_name() -> None:
    loaded = load_metrics(
        {
            "criteria": {
                "tool_trajectory_avg_score": 1.0,
                "response_match_score": 0.8,
                "final_response_avg_score": {
                    "threshold": 0.25,
                    "criterion": {"final_response": {"text": {"match": "exact"}}},
                },
            }
        }
    )
    assert {metric.name: metric.threshold for metric in loaded} == {
        "tool_trajectory_avg_score": 1.0,
        "response_match_score": 0.8,
        "final_response_avg_score": 0.25,
    }


def called(metric: Metric, expected: list[ToolUse], found: list[ToolUse]) -> bool | None:
    case = Case(id="c", input="", tools=tuple(expected))
    return verdict_of(metric, case, Answer(text="", tools=tuple(found))).passed


def find(**arguments: Json) -> ToolUse:
    return ToolUse(name="find", arguments=arguments)


def test_a_tool_trajectory_of_another_tool_keeps_its_strategies() -> None:
    (metric,) = load_metrics(
        [
            {
                "metricName": "tool_trajectory_avg_score",
                "threshold": 1,
                "criterion": {
                    "toolTrajectory": {
                        "orderSensitive": True,
                        "subsetMatching": True,
                        "defaultStrategy": {"arguments": {"numberTolerance": 0.5}},
                        "toolStrategy": {
                            "log": {"arguments": {"ignore": True}, "result": {"ignore": True}}
                        },
                    }
                },
            }
        ]
    )
    log, other = ToolUse(name="log", arguments={"a": 1}), ToolUse(name="log", arguments={"a": 2})
    assert called(metric, [find(n=1), log], [find(n=1.4), find(n=9), other])
    assert called(metric, [find(n=1), log], [other, find(n=1.4)]) is False
    assert called(metric, [find(n=1)], [find(n=1.6)]) is False


def test_without_a_criterion_tools_and_answers_are_compared_exactly() -> None:
    tools, answer = load_metrics(
        {"criteria": {"tool_trajectory_avg_score": 1.0, "final_response_avg_score": 1}}
    )
    assert called(tools, [find(n=1), find(n=2)], [find(n=2), find(n=1.0)])
    assert called(tools, [find(n=1)], [find(n=1), find(n=2)]) is False
    assert passes(answer, "Paris", "Paris")
    assert passes(answer, "paris", "Paris") is False


@pytest.mark.parametrize("threshold", [0, 0.0])
def test_a_threshold_of_zero_stays_zero(threshold: float) -> None:
    loaded = load_metrics(
        [
            {"name": "exact", "threshold": threshold},
            {"metricName": "final_response_avg_score", "threshold": threshold},
        ]
    )
    assert [metric.threshold for metric in loaded] == [0.0, 0.0]
    assert [passes(metric, "no", "yes") for metric in loaded] == [True, True]


def test_yaml_says_the_same_as_json(tmp_path: Path) -> None:
    path = tmp_path / "metrics.yaml"
    path.write_text(
        "num_runs: 3\nmetrics:\n"
        "  - {name: date, kind: regex, pattern: '\\d{4}', threshold: 0.5, required: false}\n"
        "  - name: json_schema\n    schema: {type: object}\n",
        "utf-8",
    )
    config = load_metric_config(path)
    assert config.num_runs == 3
    assert config.metrics == (
        metrics.regex(name="date", pattern=r"\d{4}", threshold=0.5, required=False),
        metrics.json_schema(schema={"type": "object"}),
    )


def test_a_file_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataFormatError, match=r"nowhere\.json: cannot be read: No such file"):
        load_metrics(tmp_path / "nowhere.json")


def test_a_caller_adds_a_kind_that_reads_the_criterion_itself() -> None:
    def build(node: Node) -> Metric | None:
        criterion = node.member("criterion")
        if not isinstance(criterion.value, dict):
            criterion.expected("an object")
            return None
        return metrics.exact(name=str(node.member("name").value), threshold=0.25)

    registry = METRICS.plus(MetricKind(name="my_judge", build=build, takes_criterion=True))
    entry: Json = {"metric_name": "my_judge", "criterion": {}}

    (metric,) = load_metrics([entry], registry=registry)
    assert (metric.name, metric.threshold) == ("my_judge", 0.25)
    with pytest.raises(DataFormatError, match=r"^metrics: \[0\].criterion: expected an obj"):
        load_metrics([{"metric_name": "my_judge"}], registry=registry)
    with pytest.raises(DataFormatError, match="unknown metric `my_judge`"):
        load_metrics([entry])


def test_a_metric_that_asks_a_judge_says_how_it_is_loaded() -> None:
    with pytest.raises(DataFormatError, match=r"`llm_rubric_response` asks a judge; load it with"):
        load_metrics([{"metricName": "llm_rubric_response", "threshold": 0.66}])


PACKAGE = """
import attrs
from promptgraft.evals.metrics import BaseMetric

@attrs.frozen(kw_only=True)
class Shouting(BaseMetric):
    kind = "shouting"
    marks: int = 1

    def assess(self, case, answer):
        found = answer.text.count("!")
        return self.verdict(float(found >= self.marks), f"found {found} exclamation marks")
"""


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[None]:
    """Install a package that offers metrics, as pip would leave it."""
    (tmp_path / "shouting_metrics.py").write_text(PACKAGE, "utf-8")
    info = tmp_path / "shouting_metrics-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting-metrics\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[promptgraft.metrics]\nshouting = shouting_metrics:Shouting\n"
        "gone = shouting_metrics:Gone\nodd = shouting_metrics:attrs\n"
    )
    sys.path.insert(0, str(tmp_path))
    yield
    sys.path.remove(str(tmp_path))
    sys.modules.pop("shouting_metrics", None)


@pytest.mark.usefixtures("installed")
def test_metrics_of_other_packages_are_found_by_name_and_imported_only_then() -> None:
    assert "shouting" in METRICS.names
    assert "shouting_metrics" not in sys.modules

    (metric,) = load_metrics([{"name": "shouting", "marks": 2, "threshold": 0.5}])

    assert passes(metric, "Hello!!")
    assert passes(metric, "Hello!") is False
    with pytest.raises(DataFormatError, match=r"mark: unknown key .*`marks`"):
        load_metrics([{"name": "shouting", "mark": 2}])


def test_a_package_that_is_installed_meanwhile_is_found_and_one_that_is_removed_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "late" not in METRICS.names
    info = tmp_path / "late_metrics-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[promptgraft.metrics]\nlate = late_metrics:Late\n")
    os.utime(tmp_path, ns=(1, 1))  # in case all this took no time
    assert "late" in METRICS.names
    shutil.rmtree(info)
    assert "late" not in METRICS.names


@pytest.mark.usefixtures("installed")
def test_a_package_that_offers_no_metric_is_named_in_one_line() -> None:
    with pytest.raises(DataFormatError) as caught:
        load_metrics([{"name": "gone"}, {"name": "odd"}])
    gone, odd = caught.value.faults
    assert "metric `gone`: the entry point 'shouting_metrics:Gone' cannot be imported" in gone
    assert "metric `odd`: the entry point 'shouting_metrics:attrs': expected a MetricKind" in odd


def test_every_kind_of_ours_is_a_frozen_value_with_a_name_and_a_threshold() -> None:
    for kind in (metrics.exact, metrics.json_match, metrics.tool_trajectory, metrics.rouge):
        metric = kind()
        assert (metric.name, metric.required) == (kind.kind, True)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            metric.threshold = 0.0  # type: ignore[misc]
