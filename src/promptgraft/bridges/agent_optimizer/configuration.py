"""Import of the ``optimizer.json`` of another tool.

Every key is either converted or reported in a note with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.adapters.named import NO_KEY, ModelConfig
from promptgraft.errors import ConfigError
from promptgraft.evals.judges.registry import judge_kinds
from promptgraft.evals.metrics.registry import METRICS, load_metric_config, load_metrics
from promptgraft.evals.types import Metric
from promptgraft.ground.environment import REFERENCE, Secret
from promptgraft.ground.serde import Json, did_you_mean, shown, without_keys
from promptgraft.ground.strict.checks import COUNT, OBJECT, SECONDS, TEXT, Kind, integer, one_of
from promptgraft.ground.strict.kinds import known_members, record_of, snake_case
from promptgraft.ground.strict.nodes import Node, Source
from promptgraft.ground.text import listed
from promptgraft.project.format_models import MODEL
from promptgraft.project.imported import GENERATION, Foreign
from promptgraft.project.models import LateAdapter, make_adapter
from promptgraft.project.parts import judge_among
from promptgraft.project.python_source import PythonSource
from promptgraft.search.frontier import FrontierType
from promptgraft.search.settings import Size

PUBLISHED = "gepa_reflective"
"""The algorithm that the other tool has of its own."""

_MINIBATCH = 3
_PARENTS: Mapping[str, dict[str, Json]] = {
    "pareto": {"exploration": 1.0},
    "current_best": {"exploration": 0.0},
    "epsilon_greedy": {"exploration": 0.1, "explored": "pool"},
    "top_k_pareto": {"exploration": 1.0, "explored": "leaders"},
}
_PARTS = {"round_robin": "turns", "all": "all", "random": "random"}
_TOP = ("evaluate", "optimize")
_EVALUATE = ("metrics", "criteria", "num_runs", "user_simulator_config")
_SEARCH = ("eval_case_parallelism", "stop", "algorithm")
_STOP = ("required_metrics",)
_WORKERS = 4
_SIMULATOR = "left out: a user who is played is `models.user` of a project"
_STOPPERS = {
    "max_iterations_without_improvement": ("no_improvement", "steps"),
    "score_threshold": ("target_score", "score"),
    "max_candidate_proposals": ("max_proposals", "proposals"),
    "max_tracked_candidates": ("max_candidates", "candidates"),
}
_SECRET_NAME = re.compile("API_?KEY|AUTHORIZATION|COOKIE|PASSW|SECRET|(^|_)(AUTH|KEY|TOKEN)S?$")
_WORD_END = re.compile("(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_ENDS = ("max_metric_calls", "timeout_seconds", *_STOPPERS)


@attrs.frozen(kw_only=True)
class Imported:
    """An ``optimizer.json`` converted to parts of a project.

    Attributes:
        evaluate: the contents of a metric file, with judges named as in ``models``.
        models: the reflection model and the judges, as in a project file.
        optimizer: the settings of the search, as in a project file.
        workers: concurrent rollouts.
        tracks_outputs: whether the best answer to each case is to be kept.
        keys: the plain keys in the file, by the variable that stands for each in ``models``.
        ignored: a line for each setting that has no effect in a run, or another one.
        notes: a line for each thing that is dropped or works differently in a project.
    """

    evaluate: dict[str, Json] = attrs.field(hash=False)
    models: dict[str, Json] = attrs.field(hash=False)
    optimizer: dict[str, Json] = attrs.field(hash=False)
    workers: int
    tracks_outputs: bool
    keys: Mapping[str, str] = attrs.field(hash=False, repr=False)
    ignored: tuple[str, ...]
    notes: tuple[str, ...]


@attrs.frozen(kw_only=True)
class ImportedMetrics:
    """What is asked of answers in an ``optimizer.json`` or in its section ``evaluate`` alone.

    Attributes:
        evaluate: the contents of a metric file, with judges named as in ``judges``.
        judges: the models of judges by name, as in a project file.
        num_runs: how often each case is answered.
        workers: concurrent answers.
        keys: the plain keys in the file, by the variable that stands for each in ``judges``.
        ignored: a line for each setting that has no effect, or another one.
    """

    evaluate: dict[str, Json] = attrs.field(hash=False)
    judges: dict[str, Json] = attrs.field(hash=False)
    num_runs: int
    workers: int
    keys: Mapping[str, str] = attrs.field(hash=False, repr=False)
    ignored: tuple[str, ...]


@attrs.frozen(kw_only=True)
class _Model:
    model_name: str = attrs.field(validator=TEXT)
    base_url: str = ""
    api_key: str = ""
    generation_config: Mapping[str, Json] = attrs.field(factory=dict, validator=OBJECT, hash=False)
    provider_name: str = ""
    variant: str = ""
    extra_fields: Mapping[str, Json] = attrs.field(factory=dict, validator=OBJECT, hash=False)
    num_samples: int = attrs.field(default=1, validator=COUNT)
    weight: float = 1.0
    think: bool | None = None


@attrs.frozen(kw_only=True)
class _Algorithm:
    name: str = attrs.field(validator=one_of(PUBLISHED))
    reflection_lm: _Model
    seed: int = attrs.field(default=42, validator=integer(0))
    candidate_selection_strategy: Literal[
        "pareto", "current_best", "epsilon_greedy", "top_k_pareto"
    ] = "pareto"
    module_selector: Literal["round_robin", "all", "random"] = "round_robin"
    frontier_type: FrontierType = "instance"
    reflection_minibatch_size: int = attrs.field(default=_MINIBATCH, validator=COUNT)
    reflection_history_top_k: int = attrs.field(default=2, validator=integer(0, 5))
    perfect_score: float = 1.0
    skip_perfect_score: bool = True
    use_merge: bool = False
    max_merge_invocations: int = attrs.field(default=5, validator=integer(0))
    merge_val_overlap_floor: int = attrs.field(default=5, validator=integer(0))
    cache_evaluation: bool = False
    track_best_outputs: bool = False
    max_metric_calls: int | None = attrs.field(default=None, validator=COUNT.or_none)
    max_iterations_without_improvement: int | None = attrs.field(
        default=None, validator=COUNT.or_none
    )
    timeout_seconds: float | None = attrs.field(default=None, validator=SECONDS.or_none)
    score_threshold: float | None = None
    max_candidate_proposals: int | None = attrs.field(default=None, validator=COUNT.or_none)
    max_tracked_candidates: int | None = attrs.field(default=None, validator=integer(2).or_none)

    def __attrs_post_init__(self) -> None:
        if all(getattr(self, name) is None for name in _ENDS):
            raise ConfigError(f"expected at least one of {listed(_ENDS)}, found none")


_MODEL = record_of(_Model, aliases={})
_ALGORITHM = record_of(_Algorithm, special={"reflection_lm": _MODEL}, aliases={})


def import_optimizer(path: str | Path) -> Imported:
    """Convert the configuration of another optimizer to parts of a project.

    Raises:
        DataFormatError: all faults of the file, one line each.
    """
    return _ConfigurationReader(Foreign.of(path).source).read()


def import_metrics(path: str | Path) -> ImportedMetrics:
    """Read what a configuration asks of answers, whether or not it has a search.

    Raises:
        DataFormatError: all faults of the file, one line each.
    """
    return _ConfigurationReader(Foreign.of(path).source).read_metrics()


def config_of(path: str | Path) -> dict[str, Json]:
    """Return an ``optimizer.json`` as plain data, unchecked and with its own keys.

    Raises:
        DataFormatError: the file cannot be read, or is no object.
    """
    source = Foreign.of(path).source
    value = source.root.value
    if not isinstance(value, dict):
        source.root.expected("an object")
        source.raise_all()
    return value if isinstance(value, dict) else {}


def without_plain_keys(value: Json) -> Json:
    """Return a configuration with ``${API_KEY}`` in place of each plain key, named by its key."""
    if isinstance(value, list):
        return [without_plain_keys(item) for item in value]
    if not isinstance(value, dict):
        return without_keys(value) if isinstance(value, str) else value
    variables = {name: _WORD_END.sub("_", name).upper() for name in value}
    return {
        name: f"${{{variables[name]}}}"
        if _SECRET_NAME.search(variables[name]) and _is_plain(member)
        else without_plain_keys(member)
        for name, member in value.items()
    }


def _is_plain(value: Json) -> bool:
    return isinstance(value, str) and value not in ("", NO_KEY) and not REFERENCE.search(value)


def algorithm_name(path: str | Path, names: Collection[str]) -> str:
    """Return the ``algorithm.name`` of an ``optimizer.json``, which must be one of ``names``.

    Raises:
        DataFormatError: it is none of them, or the file cannot be read.
    """
    source = Foreign.of(path).source
    node = source.root.member("optimize").member("algorithm").member("name")
    if node.value is None:
        return PUBLISHED
    if not isinstance(node.value, str) or node.value not in names:
        near = did_you_mean(str(node.value), list(names))
        node.fault(f"expected one of {listed(sorted(names))}, found {shown(node.value)}{near}")
    source.raise_all()
    return str(node.value)


class _ConfigurationReader:
    """Reads one file and collects faults and notes."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._notes: dict[str, bool] = {}
        self._judges: dict[str, Json] = {}
        self._keys: dict[str, str] = {}

    def read(self) -> Imported:
        root = self._source.root
        top = known_members(root, _TOP, aliases={})
        for name in _TOP:
            if name not in top:
                root.fault(f"expected the key `{name}`, found none")
        self._source.raise_all()
        search = known_members(top["optimize"], _SEARCH, aliases={})
        if "algorithm" not in search:
            top["optimize"].fault("expected the key `algorithm`, found none")
        algorithm = _ALGORITHM.read(search["algorithm"]) if "algorithm" in search else None
        cases = search.get("eval_case_parallelism")
        workers = _WORKERS if cases is None else COUNT.read(cases)
        evaluate, runs = self._evaluate(top["evaluate"])
        self._source.raise_all()
        metrics = self._metrics(Node(evaluate, top["evaluate"].path, self._source))
        thresholds = {metric.name: metric.threshold for metric in metrics}
        required = self._required(search.get("stop"), thresholds)
        assert algorithm is not None  # noqa: S101 - what has no fault is read
        assert workers is not None  # noqa: S101
        members = known_members(search["algorithm"], attrs.fields_dict(_Algorithm), aliases={})
        model = self._model(algorithm.reflection_lm, members["reflection_lm"], "reflection")
        optimizer = self._optimizer(algorithm, members, required=required, runs=runs)
        self._source.raise_all()
        judges: dict[str, Json] = {"judges": self._judges} if self._judges else {}
        return Imported(
            evaluate=evaluate,
            models={"reflection": model, **judges},
            optimizer=optimizer,
            workers=workers,
            tracks_outputs=algorithm.track_best_outputs,
            keys=self._keys,
            ignored=self._ignored,
            notes=tuple(self._notes),
        )

    def read_metrics(self) -> ImportedMetrics:
        root = self._source.root
        wrapped = isinstance(root.value, dict) and "evaluate" in map(snake_case, root.value)
        top = known_members(root, _TOP, aliases={}) if wrapped else {"evaluate": root}
        cases = top["optimize"].member("eval_case_parallelism") if "optimize" in top else None
        if cases is not None and cases.value is None:
            cases = top["optimize"].member("evalCaseParallelism")
        workers = _WORKERS if cases is None or cases.value is None else COUNT.read(cases)
        evaluate, runs = self._evaluate(top["evaluate"])
        self._source.raise_all()
        self._metrics(Node(evaluate, top["evaluate"].path, self._source))
        self._source.raise_all()
        assert workers is not None  # noqa: S101 - what has no fault is read
        return ImportedMetrics(
            evaluate=evaluate,
            judges=self._judges,
            num_runs=runs,
            workers=workers,
            keys=self._keys,
            ignored=self._ignored,
        )

    @property
    def _ignored(self) -> tuple[str, ...]:
        return tuple(line for line, in_runs in self._notes.items() if in_runs)

    def _note(self, node: Node, text: str, *, in_runs: bool = True) -> None:
        """Add a line; ``in_runs`` unless it concerns the files of a project only."""
        self._notes[self._source.line(node.path, text)] = in_runs

    def _evaluate(self, node: Node) -> tuple[dict[str, Json], int]:
        """Return the contents of a metric file, with judges by name, and ``num_runs``."""
        members = known_members(node, _EVALUATE, aliases={})
        runs = COUNT.read(members["num_runs"]) if "num_runs" in members else 1
        if "user_simulator_config" in members:
            self._note(members["user_simulator_config"], _SIMULATOR)
        members_read = {
            name: self._judged(members[name]) for name in _EVALUATE[:2] if name in members
        }
        return members_read, runs or 1

    def _judged(self, node: Node) -> Json:
        """Return a copy of a value in which models of judges are replaced by their names."""
        if isinstance(node.value, list):
            return [self._judged(item) for item in node.items()]
        if not isinstance(node.value, dict):
            return node.value
        settings: dict[str, Json] = {}
        for key, member in node.members().items():
            match snake_case(key):
                case "judge_model":
                    settings[key] = self._judge(member)
                case "judge_models" if isinstance(member.value, list):
                    settings[key] = [self._judge(item) for item in member.items()]
                case _:
                    settings[key] = self._judged(member)
        return settings

    def _judge(self, node: Node) -> Json:
        model_config = _MODEL.read(node)
        if model_config is None:
            return node.value
        model = self._model(model_config, node, f"judge-{len(self._judges) + 1}")
        named = (name for name, judge_model in self._judges.items() if judge_model == model)
        name = next(named, f"judge-{len(self._judges) + 1}")
        self._judges[name] = model
        of_panel: dict[str, Json] = {
            "num_samples": model_config.num_samples,
            "weight": model_config.weight,
        }
        return {
            "model_name": name,
            **{key: weight for key, weight in of_panel.items() if weight != 1},
        }

    def _metrics(self, node: Node) -> tuple[Metric, ...]:
        def never() -> NoReturn:
            raise ConfigError("judges are not asked while a file is imported")

        stand_in = ModelConfig(provider="python")
        judges = {name: LateAdapter(stand_in, never) for name in self._judges}
        registry = METRICS.plus(*judge_kinds(judge_among(judges)))
        return load_metric_config(node, registry=registry).metrics

    def _required(self, node: Node | None, thresholds: Mapping[str, float]) -> list[Json]:
        """Return the stopper for required metrics; empty if none are required."""
        if node is not None:
            known_members(node, _STOP, aliases={})
        required_names = node.value if node is not None and isinstance(node.value, dict) else {}
        keys = [key for key in required_names if snake_case(key) in _STOP]
        if node is None or not keys or required_names[keys[0]] == "all":
            return [_reaching(thresholds)]
        chosen = node.member(keys[0])
        if chosen.value is not None and not isinstance(chosen.value, list):
            chosen.expected("`all` or a list of metrics")
        for item in chosen.items():
            if item.value not in thresholds:
                near = did_you_mean(str(item.value), list(thresholds))
                item.fault(f"expected one of {listed(thresholds)}, found {shown(item.value)}{near}")
        names = [item.value for item in chosen.items()]
        required = {name: threshold for name, threshold in thresholds.items() if name in names}
        return [_reaching(required)] if required else []

    def _model(self, model: _Model, node: Node, name: str) -> dict[str, Json]:
        """Convert a model; a plain key is not copied."""
        if model.provider_name not in ("", "openai", "anthropic"):
            node.fault(
                f"provider_name: expected `openai` or `anthropic`, found {model.provider_name!r}; "
                "write an adapter for it and name that as `python: file.py:NAME` in the project"
            )
        settings: dict[str, Json] = {
            "provider": model.provider_name or "openai",
            "model": model.model_name,
        }
        if model.base_url:
            settings["base_url"] = model.base_url
        if model.api_key and not REFERENCE.fullmatch(model.api_key):
            variable = f"{name.upper().replace('-', '_')}_API_KEY"
            # The new files may be committed; a plain key in them would be leaked.
            settings["api_key"] = f"${{{variable}}}"
            self._keys[variable] = model.api_key
            self._note(
                node, f"a key is not copied into a file: export it as {variable}", in_runs=False
            )
        elif model.api_key or model.base_url:
            settings["api_key"] = model.api_key or NO_KEY
        body = dict(model.extra_fields)
        for key, value in model.generation_config.items():
            if (ours := GENERATION.get(snake_case(key))) is not None:
                settings[ours] = value
            else:
                body[key] = value
        if body:
            settings["extra_body"] = body
        for key in ("variant", "think"):
            if getattr(model, key) not in ("", None):
                self._note(node, f"`{key}` is left out: `effort` and `extra_body` say as much")
        return settings

    def _optimizer(
        self, algorithm: _Algorithm, members: Mapping[str, Node], *, required: list[Json], runs: int
    ) -> dict[str, Json]:
        """Convert the settings of the search."""
        budget: int | Size | None = algorithm.max_metric_calls
        if budget is None:
            line = (
                f"{self._source.name}: without `max_metric_calls` the budget is `heavy`: a run "
                "here always has one"
            )
            self._notes[line] = True
        if algorithm.perfect_score != 1:
            self._note(members["perfect_score"], "left out: scores of metrics reach 1 and no more")
        if algorithm.track_best_outputs:
            self._note(
                members["track_best_outputs"], "left out: a run keeps every answer", in_runs=False
            )
        stoppers: list[Json] = [
            {kind: {option: value}}
            for name, (kind, option) in _STOPPERS.items()
            if (value := getattr(algorithm, name)) is not None
        ]
        limits: dict[str, Json] = {"stoppers": [*required, *stoppers]}
        if algorithm.timeout_seconds is not None:
            limits["timeout"] = algorithm.timeout_seconds
        objectives: dict[str, Json] = {"frontier_type": algorithm.frontier_type}
        most = algorithm.reflection_history_top_k
        if runs > 1:
            objectives["num_runs"] = runs
        return {
            "rollout_budget": budget or "heavy",
            "minibatch_size": algorithm.reflection_minibatch_size,
            "seed": algorithm.seed,
            "enable_merge": algorithm.use_merge,
            "strategy": _strategy(algorithm),
            **({"additions": [{"history": {"most": most}}]} if most else {}),
            "objectives": objectives,
            "limits": limits,
        }


def _strategy(algorithm: _Algorithm) -> dict[str, Json]:
    merging: dict[str, Json] = {
        "max_merge_invocations": algorithm.max_merge_invocations,
        "merge_overlap": algorithm.merge_val_overlap_floor,
    }
    return {
        "preset": "paper",
        "published_question": False,
        **_PARENTS[algorithm.candidate_selection_strategy],
        "module_choice": _PARTS[algorithm.module_selector],
        "learn_from_perfect": not algorithm.skip_perfect_score,
        "reuse_rollouts": algorithm.cache_evaluation,
        **(merging if algorithm.use_merge else {}),
    }


def _reaching(thresholds: Mapping[str, float]) -> Json:
    return {"required_objectives": {"thresholds": dict(thresholds)}}


def read_as(kind: Kind[Any], value: Json) -> Any:
    """Return plain data that an import has made, read as a part of a project."""
    source = Source.of(value)
    value_read = kind.read(source.root)
    source.raise_all()
    return value_read


def adapter_of(model: Json, what: str, *, path: Path, keys: Mapping[str, str]) -> ProviderAdapter:
    """Return the adapter of a model in the configuration at ``path``, with its plain ``keys``."""
    config: ModelConfig = read_as(MODEL, model)
    if config.api_key is not None:
        for variable in config.api_key.names:
            if variable in keys:
                config = attrs.evolve(config, api_key=Secret(keys[variable]))
    return make_adapter(config, what=f"{path}: {what}", python=PythonSource(path.parent))


def metrics_of(
    evaluate: Mapping[str, Json], judges: Mapping[str, Json], *, path: Path, keys: Mapping[str, str]
) -> tuple[Metric, ...]:
    """Return the metrics of the configuration at ``path``, with the models of their judges."""
    adapters = {
        name: adapter_of(model, name, path=path, keys=keys) for name, model in judges.items()
    }
    registry = METRICS.plus(*judge_kinds(judge_among(adapters)))
    return load_metrics(dict(evaluate), registry=registry)
