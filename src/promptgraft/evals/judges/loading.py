"""Judges described by plain data: our own form, and the ``llm_judge`` of other tools' files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.errors import ConfigError
from promptgraft.evals.judges.kinds import (
    LlmFinalResponse,
    LlmRubricKnowledgeRecall,
    LlmRubricResponse,
    Rubric,
)
from promptgraft.evals.judges.panel import JudgeMetric, Voting
from promptgraft.evals.metrics.dialects import Criterion, Options
from promptgraft.evals.metrics.registry import MetricKind
from promptgraft.evals.types import Metric
from promptgraft.serde import Json
from promptgraft.strict.checks import COUNT, NUMBER, OBJECT, SHARE, STRING, Kind, check, one_of
from promptgraft.strict.classes import record_of
from promptgraft.strict.kinds import Key, listed, record, snake_case
from promptgraft.strict.nodes import Node

JudgeOf = Callable[[Json], ProviderAdapter]
"""Makes the adapter of a judge of what a file says of its model, or raises ``ConfigError``."""

_KINDS: Mapping[str, type[JudgeMetric]] = {
    "llm_final_response": LlmFinalResponse,
    "llm_rubric_response": LlmRubricResponse,
    "llm_rubric_critic": LlmRubricResponse,
    "llm_rubric_knowledge_recall": LlmRubricKnowledgeRecall,
}
_VOTING: Mapping[str, Json] = {
    "all_pass": "all",
    "any_pass": "any",
    "majority_pass": "majority",
    "avg": "mean",
    "weighted_avg": "weighted",
}
_MODELS = check("a list of models", lambda value: value if isinstance(value, list) else None)
# How those tools call their judges, one after the other or not, changes no verdict.
_JUDGE = ("judge_model", "judge_models", "models_aggregator", "parallel", "rubrics")


@attrs.frozen(kw_only=True)
class _Panel:
    """The options of a judge that are read as they stand."""

    name: str
    threshold: float = attrs.field(default=1.0, validator=SHARE)
    required: bool = True
    voting: Voting = Voting.MAJORITY
    weights: tuple[float, ...] = ()
    samples: int = attrs.field(default=1, validator=COUNT)


def judge_kinds(judge_of: JudgeOf) -> tuple[MetricKind, ...]:
    """Return the kinds of judges for a registry: ``METRICS.plus(*judge_kinds(judge_of))``.

    A critic is asked as any other judge of rubrics.
    """
    return tuple(
        MetricKind(
            name=name, build=functools.partial(_metric, kind, judge_of), takes_criterion=True
        )
        for name, kind in _KINDS.items()
    )


def _metric(kind: type[JudgeMetric], judge_of: JudgeOf, node: Node) -> Metric | None:
    given = _translated(node)
    own: dict[str, Any] = {}
    if issubclass(kind, LlmRubricResponse):
        rubrics = given.pop("rubrics", Node([], node.path, node.source))
        own["rubrics"] = _RUBRICS.read(rubrics) or ()
    elif "rubrics" in given:
        node.member("rubrics").fault("this metric compares with `expected` and takes no rubrics")
        return None
    judges = tuple(_judges(given.pop("judges", node.member("judges")), judge_of))
    options = {name: one.value for name, one in given.items()}
    panel = _PANEL.read(Node(options, node.path, node.source))
    if panel is None or not node.is_right():
        return None
    try:
        return kind(judges=judges, **own, **attrs.asdict(panel, recurse=False))
    except ConfigError as error:
        node.fault(str(error))
        return None


def _judges(models: Node, judge_of: JudgeOf) -> Iterator[ProviderAdapter]:
    if not isinstance(models.value, list) or not models.value:
        models.expected("a list of models")
    for model in models.items():
        try:
            yield judge_of(model.value)
        except ConfigError as error:
            model.fault(str(error))


def _their_rubric(
    *, content: str | None = None, description: str | None = None, **said: Any
) -> Rubric:
    return Rubric(**{"id": "", **said}, text=content or description or "")


_OWN_RUBRIC = record_of(Rubric)
_THEIR_RUBRIC = record(
    _their_rubric,
    {
        "id": Key(STRING),
        "content": Key(record(lambda text=None: text, {"text": Key(STRING)}, aliases={})),
        "description": Key(STRING),
        "weight": Key(NUMBER),
    },
    aliases={},
    left_out=("type",),
)


def _rubric(node: Node) -> Rubric | None:
    """Return a rubric of our own form, or one whose text stands in ``content.text``."""
    own = isinstance(node.value, dict) and "text" in node.value
    return (_OWN_RUBRIC if own else _THEIR_RUBRIC).read(node)


_RUBRICS = listed(Kind(_rubric), "a list of rubrics")
_PANEL = record_of(_Panel)


def _translated(node: Node) -> dict[str, Node]:
    """Return the options in our own form, each with its place."""
    own = node.members()
    criterion = own.pop("criterion", None)
    if criterion is None:
        return own
    judge = Criterion.of(criterion, ("llm_judge",)).part("llm_judge", _JUDGE)
    if judge is None:
        criterion.fault("expected `llm_judge`")
        return own
    found = {
        name: Node(value, judge.node.path, judge.node.source)
        for name, value in _panel(judge).items()
    }
    if "rubrics" in judge.members:
        found["rubrics"] = judge.members["rubrics"]
    return {**found, **own}


def _panel(judge: Criterion) -> Options:
    several, single = judge.read("judge_models", _MODELS), judge.read("judge_model", OBJECT)
    models: list[Json] = several or ([single] if single is not None else [])
    voting = judge.read("models_aggregator", one_of(*_VOTING)) or "all_pass"
    pairs = [_split(model) for model in models]
    samples = [own.get("num_samples") or 1 for _, own in pairs]
    if any(asked != samples[0] for asked in samples):
        judge.members["judge_models"].fault("`num_samples` differs; give all models the same")
    weights = [own.get("weight", 1.0) for _, own in pairs]
    return {
        "judges": [model for model, _ in pairs],
        "voting": _VOTING[voting],
        "samples": samples[0] if samples else 1,
        **({"weights": weights} if voting == "weighted_avg" else {}),
    }


def _split(model: Json) -> tuple[Json, Options]:
    """Return what is said of a model, and what is said of its part in the panel."""
    if not isinstance(model, dict):
        return model, {}
    own = {
        snake_case(key): value
        for key, value in model.items()
        if snake_case(key) in ("num_samples", "weight")
    }
    return {key: value for key, value in model.items() if snake_case(key) not in own}, own
