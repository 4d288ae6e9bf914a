"""Judges described by plain data: our own form, and the ``llm_judge`` of other tools' files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.errors import ConfigError
from promptgraft.evals.judges.final_response import LlmFinalResponse
from promptgraft.evals.judges.panel import JudgeMetric
from promptgraft.evals.judges.rubrics import LlmRubricKnowledgeRecall, LlmRubricResponse, Rubric
from promptgraft.evals.judges.voting import Voting
from promptgraft.evals.metrics.dialects import Criterion, open_criterion
from promptgraft.evals.metrics.options import Options, Place, read_options
from promptgraft.evals.metrics.registry import MetricKind
from promptgraft.evals.types import Metric
from promptgraft.serde import Json, shown

JudgeOf = Callable[[Json], ProviderAdapter]
"""Makes the adapter of a judge of what a file says of its model, or raises ``ConfigError``."""

_RUBRIC_KINDS: Mapping[str, type[LlmRubricResponse]] = {
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
_ROOT = {"llm_judge": "llm_judge"}
# How those tools call their judges, one after the other or not, changes no verdict.
_JUDGE = {
    name: name
    for name in ("judge_model", "judge_models", "models_aggregator", "parallel", "rubrics")
}
_RUBRIC = {name: name for name in ("id", "content", "description", "type", "weight")}


@attrs.frozen(kw_only=True)
class _Panel:
    """The options of a judge that are read as they stand."""

    name: str
    threshold: float = 1.0
    required: bool = True
    voting: Voting = Voting.MAJORITY
    weights: tuple[float, ...] = ()
    samples: int = 1


def judge_kinds(judge_of: JudgeOf) -> tuple[MetricKind, ...]:
    """Return the kinds of judges for a registry: ``METRICS.plus(*judge_kinds(judge_of))``.

    A critic is asked as any other judge of rubrics.

    Args:
        judge_of: makes the adapter of a judge of what a file says of its model.
    """
    builds = {name: _rubric_metric(kind, judge_of) for name, kind in _RUBRIC_KINDS.items()}
    builds["llm_final_response"] = functools.partial(_final_response, judge_of)
    return tuple(
        MetricKind(name=name, build=build, takes_criterion=True) for name, build in builds.items()
    )


def _final_response(judge_of: JudgeOf, options: Options, place: Place) -> Metric | None:
    given = _translated(options, place)
    if "rubrics" in given:
        place.at("rubrics").fault("this metric compares with `expected` and takes no rubrics")
        return None
    return _made(LlmFinalResponse, given, judge_of, place)


def _rubric_metric(
    kind: type[LlmRubricResponse], judge_of: JudgeOf
) -> Callable[[Options, Place], Metric | None]:
    def build(options: Options, place: Place) -> Metric | None:
        given = dict(_translated(options, place))
        rubrics = _rubrics(given.pop("rubrics", []), place)
        return _made(functools.partial(kind, rubrics=rubrics), given, judge_of, place)

    return build


def _made(
    kind: Callable[..., JudgeMetric], given: Options, judge_of: JudgeOf, place: Place
) -> Metric | None:
    rest = {key: value for key, value in given.items() if key != "judges"}
    judges = tuple(_judges(given.get("judges"), judge_of, place))
    panel = read_options(_Panel, rest, place)
    if panel is None or place.faults:
        return None
    try:
        return kind(judges=judges, **attrs.asdict(panel, recurse=False))
    except ConfigError as error:
        place.fault(str(error))
        return None


def _judges(models: Json, judge_of: JudgeOf, place: Place) -> Iterator[ProviderAdapter]:
    if not isinstance(models, list) or not models:
        place.fault(f"expected a list of models as `judges`, found {shown(models)}")
        return
    for index, model in enumerate(models):
        try:
            yield judge_of(model)
        except ConfigError as error:
            place.at("judges").at(index).fault(str(error))


def _rubrics(found: Json, place: Place) -> tuple[Rubric, ...]:
    if not isinstance(found, list):
        place.at("rubrics").fault(f"expected a list of rubrics, found {shown(found)}")
        return ()
    read = (_rubric(entry, place.at("rubrics").at(at)) for at, entry in enumerate(found))
    return tuple(rubric for rubric in read if rubric is not None)


def _rubric(entry: Json, place: Place) -> Rubric | None:
    """Return a rubric of our own form, or one whose text stands in ``content.text``."""
    if isinstance(entry, dict) and "text" in entry:
        return read_options(Rubric, entry, place)
    rubric = open_criterion(entry, place, _RUBRIC)
    if rubric is None:
        return None
    content = rubric.part("content", {"text": "text"})
    text = content.get("text", str, "a text") if content else None
    text = rubric.get("description", str, "a text") if text is None else text
    options = {"id": rubric.get("id", str, "a text"), "weight": rubric.values.get("weight")}
    given = {key: value for key, value in {**options, "text": text}.items() if value is not None}
    return read_options(Rubric, given, place)


def _translated(options: Options, place: Place) -> Options:
    """Return the options in our own form."""
    own = {key: value for key, value in options.items() if key != "criterion"}
    if "criterion" not in options:
        return own
    root = open_criterion(options["criterion"], place.at("criterion"), _ROOT)
    judge = root.part("llm_judge", _JUDGE) if root else None
    if judge is None:
        place.at("criterion").fault("expected `llm_judge`")
        return own
    found: dict[str, Json] = {**_panel(judge)}
    if judge.values.get("rubrics") is not None:
        found["rubrics"] = judge.values["rubrics"]
    return {**found, **own}


def _panel(judge: Criterion) -> Options:
    models = judge.get("judge_models", list, "a list of models")
    single = judge.get("judge_model", dict, "an object")
    listed: Sequence[Json] = models if isinstance(models, list) else []
    listed = listed or ([single] if single is not None else [])
    voting = judge.get("models_aggregator", str, "a text") or "all_pass"
    if str(voting) not in _VOTING:
        known = ", ".join(f"`{name}`" for name in _VOTING)
        judge.places["models_aggregator"].fault(f"expected one of {known}, found {shown(voting)}")
    pairs = [_split(model) for model in listed]
    samples = [own.get("num_samples") or 1 for _, own in pairs]
    if any(asked != samples[0] for asked in samples):
        judge.places["judge_models"].fault("`num_samples` differs; give all models the same")
    weights = [own.get("weight", 1.0) for _, own in pairs]
    return {
        "judges": [model for model, _ in pairs],
        "voting": _VOTING.get(str(voting), "all"),
        "samples": samples[0] if samples else 1,
        **({"weights": weights} if voting == "weighted_avg" else {}),
    }


def _split(model: Json) -> tuple[Json, Options]:
    """Return what is said of a model, and what is said of its part in the panel."""
    if not isinstance(model, dict):
        return model, {}
    words = {"num_samples": "num_samples", "numSamples": "num_samples", "weight": "weight"}
    own = {words[key]: value for key, value in model.items() if key in words}
    return {key: value for key, value in model.items() if key not in words}, own
