"""Judges in metric files, in our own form and in those of other tools."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from evals.judging import judge
from promptgraft.adapters.base import ProviderAdapter, adapter_identity
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.judges import (
    JudgeMetric,
    LlmFinalResponse,
    LlmRubricKnowledgeRecall,
    LlmRubricResponse,
    Rubric,
    Voting,
    judge_kinds,
    kinds,
)
from promptgraft.evals.judges.prompts import Refused
from promptgraft.evals.metrics import METRICS, load_metrics
from promptgraft.evals.types import Answer, Case, ToolUse
from promptgraft.ground.serde import Json, canonical_json
from promptgraft.project.parts import judge_among


def model(said: Json) -> ProviderAdapter:
    """Return a judge that is named by what a file says of its model."""
    if said == "nobody":
        raise ConfigError("unknown model 'nobody'")
    return judge(identity=said if isinstance(said, str) else canonical_json(said))


REGISTRY = METRICS.plus(*judge_kinds(model))


def loaded(entry: Json) -> JudgeMetric:
    (metric,) = load_metrics([entry], registry=REGISTRY)
    assert isinstance(metric, JudgeMetric)
    return metric


def test_all_kinds_of_judges_are_registered() -> None:
    assert {kind.name for kind in judge_kinds(model)} == {*kinds._KINDS}


def test_our_own_form_says_everything() -> None:
    metric = loaded(
        {
            "name": "tone",
            "kind": "llm_rubric_response",
            "threshold": 0.75,
            "required": False,
            "judges": ["a", {"model": "b"}],
            "voting": "weighted",
            "weights": [1, 2],
            "samples": 3,
            "rubrics": [{"id": "kind", "text": "It is kind.", "weight": 2}],
        }
    )
    assert isinstance(metric, LlmRubricResponse)
    assert (metric.name, metric.threshold, metric.required) == ("tone", 0.75, False)
    assert [adapter_identity(found) for found in metric.judges] == ["a", '{"model":"b"}']
    assert (metric.voting, metric.weights, metric.samples) == (Voting.WEIGHTED, (1, 2), 3)
    assert metric.rubrics == (Rubric(id="kind", text="It is kind.", weight=2.0),)


@pytest.mark.parametrize(
    ("rubrics", "texts"),
    [
        ("It is kind.", {"r1": "It is kind."}),
        (["It is kind.", "It is brief."], {"r1": "It is kind.", "r2": "It is brief."}),
        (
            [{"id": "tone", "text": "It is kind."}, "It is brief."],
            {"tone": "It is kind.", "r2": "It is brief."},
        ),
    ],
)
def test_a_rubric_may_be_a_plain_text(rubrics: Any, texts: dict[str, str]) -> None:
    metric = loaded({"name": "llm_rubric_response", "judges": ["a"], "rubrics": rubrics})
    assert isinstance(metric, LlmRubricResponse)
    assert {rubric.id: rubric.text for rubric in metric.rubrics} == texts
    in_python = [Rubric(**one) if isinstance(one, dict) else one for one in rubrics]
    given = rubrics if isinstance(rubrics, str) else in_python
    assert attrs.evolve(metric, rubrics=given) == metric


SNAKE: Json = {
    "metric_name": "llm_rubric_response",
    "threshold": 0.66,
    "criterion": {
        "llm_judge": {
            "judge_model": {"model_name": "m", "num_samples": 3, "weight": 1.0},
            "rubrics": [
                {"id": "units", "content": {"text": "It has units."}, "type": "QUALITY"},
                {"id": "kind", "description": "It is kind.", "content": None},
            ],
        }
    },
}
CAMEL: Json = {
    "metricName": "llm_rubric_critic",
    "threshold": 0.66,
    "criterion": {
        "llmJudge": {
            "judgeModel": {"model_name": "m", "numSamples": 3},
            "rubrics": [
                {"id": "units", "description": "Units.", "content": {"text": "It has units."}},
                {"id": "kind", "content": {"text": "It is kind."}},
            ],
        }
    },
}


@pytest.mark.parametrize(
    ("entry", "name"), [(SNAKE, "llm_rubric_response"), (CAMEL, "llm_rubric_critic")]
)
def test_files_of_other_tools_say_the_same_in_both_spellings(entry: Json, name: str) -> None:
    metric = loaded(entry)
    assert type(metric) is LlmRubricResponse
    assert (metric.name, metric.threshold, metric.samples) == (name, 0.66, 3)
    assert [adapter_identity(found) for found in metric.judges] == ['{"model_name":"m"}']
    assert [(rubric.id, rubric.text) for rubric in metric.rubrics] == [
        ("units", "It has units."),
        ("kind", "It is kind."),
    ]


@pytest.mark.parametrize(
    ("aggregator", "voting", "weights"),
    [
        (None, Voting.ALL, ()),
        ("all_pass", Voting.ALL, ()),
        ("any_pass", Voting.ANY, ()),
        ("majority_pass", Voting.MAJORITY, ()),
        ("avg", Voting.MEAN, ()),
        ("weighted_avg", Voting.WEIGHTED, (2, 1.0)),
        ("weighted_majority", Voting.WEIGHTED_MAJORITY, (2, 1.0)),
    ],
)
def test_their_ways_to_vote_have_our_names(
    aggregator: str | None, voting: Voting, weights: tuple[float, ...]
) -> None:
    panel: dict[str, Json] = {
        "judge_models": [{"model_name": "a", "weight": 2}, {"model_name": "b"}]
    }
    if aggregator is not None:
        panel["models_aggregator"] = aggregator
    metric = loaded({"metric_name": "llm_final_response", "criterion": {"llm_judge": panel}})
    assert isinstance(metric, LlmFinalResponse)
    assert (metric.voting, metric.weights) == (voting, weights)


def test_a_file_that_names_no_model_means_the_only_judge_of_the_project() -> None:
    rubrics: Json = [{"id": "facts", "content": {"text": "Only facts."}}]
    entry: Json = {
        "metricName": "llm_rubric_critic",
        "criterion": {"llmJudge": {"rubrics": rubrics}},
    }
    only, other = judge(identity="only"), judge(identity="other")

    def read(judges: dict[str, ProviderAdapter]) -> JudgeMetric:
        (metric,) = load_metrics([entry], registry=METRICS.plus(*judge_kinds(judge_among(judges))))
        assert isinstance(metric, JudgeMetric)
        return metric

    assert read({"j": only}).judges == (only,)
    several: dict[str, ProviderAdapter] = {"j": only, "k": other}
    for judges, mend in (({}, "there is none; declare it there"), (several, "there: `j`, `k`")):
        with pytest.raises(DataFormatError, match=f"`models.judges`, found none; {mend}"):
            read(judges)


def test_recall_has_its_own_kind() -> None:
    metric = loaded(
        {
            "name": "llm_rubric_knowledge_recall",
            "judges": ["a"],
            "rubrics": [{"id": "x", "text": "Found."}],
        }
    )
    assert type(metric) is LlmRubricKnowledgeRecall


def test_only_what_the_named_tools_have_found_is_knowledge() -> None:
    panel: dict[str, Json] = {
        "judge_model": {"model_name": "a"},
        "rubrics": [{"id": "x", "content": {"text": "Found."}}],
        "knowledgeToolNames": ["search"],
    }
    name = "llm_rubric_knowledge_recall"
    metric = loaded({"metric_name": name, "criterion": {"llm_judge": panel}})
    assert isinstance(metric, LlmRubricKnowledgeRecall)
    tools = (ToolUse(name="search", result="a lamp"), ToolUse(name="clock", result="noon"))
    asked = metric.question(Case(id="c", input="?"), Answer(text="!", tools=tools))
    shown = asked.bind(Refused()).render().text
    assert "a lamp" in shown
    assert "noon" not in shown


FAULTS: dict[str, tuple[Json, str]] = {
    "no judges": (
        {"name": "llm_final_response"},
        "[0].judges: expected a list of models, found nothing",
    ),
    "unknown model": (
        {"name": "llm_final_response", "judges": ["a", "nobody"]},
        "[0].judges[1]: unknown model 'nobody'",
    ),
    "rubrics where none belong": (
        {"name": "llm_final_response", "judges": ["a"], "rubrics": []},
        "[0].rubrics: this metric compares with `expected` and takes no rubrics",
    ),
    "no rubrics": (
        {"name": "llm_rubric_response", "judges": ["a"]},
        "rubrics: expected at least one rubric, found none",
    ),
    "rubric without text": (
        {"name": "llm_rubric_response", "judges": ["a"], "rubrics": [{"id": "x"}]},
        "[0].rubrics[0]: Rubric: text: expected a text, found ''",
    ),
    "judge": (
        {"name": "llm_final_response", "judge": ["a"]},
        "[0].judge: unknown key (did you mean `judges`?)",
    ),
    "rubric": (
        {"name": "llm_rubric_response", "judges": ["a"], "rubric": ["polite"]},
        "[0].rubric: unknown key (did you mean `rubrics`?)",
    ),
    "typo": (
        {"name": "llm_final_response", "judges": ["a"], "sampels": 2},
        "did you mean `samples`",
    ),
    "unknown voting": (
        {"name": "llm_final_response", "judges": ["a"], "voting": "most"},
        "[0].voting: expected one of",
    ),
    "unknown aggregator": (
        {
            "name": "llm_final_response",
            "criterion": {"llm_judge": {"judge_model": {}, "models_aggregator": "most"}},
        },
        "[0].criterion.llm_judge.models_aggregator: expected one of",
    ),
    "different samples": (
        {
            "name": "llm_final_response",
            "criterion": {"llm_judge": {"judge_models": [{"num_samples": 2}, {}]}},
        },
        "`num_samples` differs",
    ),
    "another criterion": (
        {"name": "llm_final_response", "judges": ["a"], "criterion": {"rouge": {}}},
        "[0].criterion.rouge: unknown key",
    ),
}


@pytest.mark.parametrize(("entry", "fault"), FAULTS.values(), ids=FAULTS)
def test_faults_stand_at_their_place(entry: Json, fault: str) -> None:
    with pytest.raises(DataFormatError) as caught:
        loaded(entry)
    assert fault in str(caught.value)


def test_nobody_loads_judges_where_they_are_known() -> None:
    with pytest.raises(
        DataFormatError, match=r"unknown metric `llm_rubric` \(did you mean `llm_rubric_\w+`"
    ):
        load_metrics([{"name": "kind", "kind": "llm_rubric"}], registry=REGISTRY)
