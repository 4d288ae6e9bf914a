"""The format of ``promptgraft.yaml``, version 1: its values, its reader and its JSON Schema.

What a project file names is not loaded here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import attrs

from promptgraft.algorithms import DEFAULT
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.aggregate import Aggregation
from promptgraft.ground.serde import Json, shown
from promptgraft.ground.strict import checks
from promptgraft.ground.strict.kinds import Keys, checked, either, keys_of, named, record
from promptgraft.ground.strict.nodes import Node, Source
from promptgraft.overrides.parts.validation import check_key
from promptgraft.project import adding, format_agents, format_search
from promptgraft.project.files import DEFAULT_RUNS, source_file
from promptgraft.project.format_models import MODELS, ModelsConfig, model_schema, refuse_references
from promptgraft.project.python_source import REFERENCE
from promptgraft.search.settings import DEFAULT_WORKERS

T = TypeVar("T")

VERSION = 1


@attrs.frozen(kw_only=True)
class ProjectConfig:
    """A whole project file; the fields are its keys.

    Attributes:
        version: The version of this format: 1.
        prompts: By name: a Markdown file, `file.py:NAME` or `module:NAME` in Python, the texts of
            an agent, or a function of a BAML project.
        agent: The agent that answers in place of a model: a function, a service or a command.
        graphs: By name: `file.py:NAME` or `module:NAME`, a Graph in Python.
        delivery: How the texts of a candidate reach the agent; by default in the call.
        apply: `to-source` writes a winner that held-out examples confirm into its source, at the
            end of a run.
        metrics: How answers are scored: a list such as `[exact]`, or the path of a metric file.
        models: The models by their roles, such as `{task: offline}`.
        aggregation: How the scores of several metrics become one; by default their mean.
        params: A function that turns a case into the parameters of a prompt.
        teacher: Answers cases that have no `expected`, once before a run: a Markdown file,
            `file.py:NAME` or `module:NAME`, a prompt or a Graph.
        store: The store that winners are written to and searches start from.
        runs: The folder of run directories.
        workers: Concurrent rollouts; the result does not depend on it.
        executor: Runs rollouts in place of threads.
        trackers: Further places to report runs of `optimize` and `resume`, and jobs, to.
        max_cost_per_day: US dollars that all jobs of the project may spend in a day (UTC).
    """

    version: int
    prompts: Mapping[str, str | format_agents.TextsConfig | format_agents.BamlConfig] = attrs.field(
        factory=dict
    )
    graphs: Mapping[str, str] = attrs.field(factory=dict)
    dataset: format_search.DatasetConfig = attrs.field(factory=format_search.DatasetConfig)
    splits: format_search.SplitsConfig = attrs.field(
        factory=lambda: format_search.SplitsConfig(ratio=format_search.DEFAULT_RATIO)
    )
    metrics: str | list[Json] | None = attrs.field(default=None, hash=False)
    aggregation: Aggregation | None = None
    models: ModelsConfig
    agent: format_agents.AgentConfig | None = None
    delivery: str | format_agents.DeliveryConfig | None = None
    apply: str | None = None
    params: str | None = None
    teacher: str | None = None
    optimizer: format_search.OptimizerConfig = attrs.field(
        factory=lambda: format_search.OptimizerConfig(algorithm=DEFAULT)
    )
    store: adding.StoreConfig = attrs.field(factory=adding.StoreConfig)
    runs: str = DEFAULT_RUNS
    workers: int = DEFAULT_WORKERS
    executor: adding.Workers | None = None
    trackers: Mapping[str, adding.Tracker] = attrs.field(factory=dict)
    max_cost_per_day: Decimal | None = None

    @property
    def baml(self) -> format_agents.BamlConfig | None:
        """The BAML function that the project improves, which is then its only prompt."""
        baml_prompts = [
            prompt
            for prompt in self.prompts.values()
            if isinstance(prompt, format_agents.BamlConfig)
        ]
        return baml_prompts[0] if baml_prompts else None

    @property
    def named_files(self) -> tuple[str, ...]:
        """The files and folders that it names: prompts, cases, metrics, teacher."""
        names: list[str | None] = [self.dataset.path, *self.splits.all_files]
        for prompt in self.prompts.values():
            if isinstance(prompt, str):
                names.append(prompt if prompt.endswith(".md") else None)
            elif isinstance(prompt, format_agents.BamlConfig):
                names.append(prompt.baml)
            else:
                names += [
                    file if isinstance(file, str) else file.path for file in prompt.files.values()
                ]
        names.append(self.metrics if isinstance(self.metrics, str) else None)
        names.append(self.teacher)
        return tuple(name for name in names if name is not None)


def read_project(path: Path) -> tuple[Source, ProjectConfig]:
    """Read a project file, without loading what it names.

    Raises:
        DataFormatError: all faults of the file, one line each.
    """
    source = source_file(path)
    root = source.root
    # First, because it settles these places: their values get no second fault.
    refuse_references(root)
    config = PROJECT.read(root)
    source.raise_all()
    if config is None:
        raise DataFormatError(f"{path}: cannot be read as a project file")
    return source, config


def project_schema() -> checks.Schema:
    """Return the JSON Schema of ``promptgraft.yaml``, version 1, which also ships as a file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "promptgraft.yaml",
        **PROJECT.schema,
        "$defs": {"agent": _agent_kind().schema, "model": model_schema(), **adding.definitions()},
    }


def _check_prompt(spec: str) -> None:
    if not spec.endswith(".md") and ":" not in spec:
        raise ConfigError(
            "expected a Markdown file such as `prompts/triage.md`, or `file.py:NAME` or "
            f"`module:NAME` in Python, found {shown(spec)}; copy its text into one"
        )


_VERSION = checks.check(
    f"{VERSION}, the version of the format that this promptgraft reads",
    # In Python `true` equals 1, but the JSON Schema refuses it.
    lambda value: VERSION if value == VERSION and type(value) is int else None,
    {"const": VERSION},
)


def _by_name(what: str, example: str, kind: checks.Kind[T]) -> checks.Kind[dict[str, T]]:
    return named(
        kind,
        f"an object with at least one {what}, such as `{{triage: {example}}}`",
        least=1,
        check=functools.partial(check_key, what=f"name of a {what}"),
        pattern=format_agents.NAME,
    )


_PROMPT: checks.Kind[str] = checked(checks.TEXT, _check_prompt).reaching(checks.Reach.CODE)
_PROMPT_OR_TEXTS: checks.Kind[str | format_agents.TextsConfig | format_agents.BamlConfig] = either(
    "a prompt, or an object with `files` and `callbacks` or with `baml` and `function`",
    (str, _PROMPT),
    (dict, format_agents.TEXTS_OR_BAML),
)


def _check_names(config: ProjectConfig) -> None:
    if not config.prompts and not config.graphs:
        raise ConfigError("expected `prompts` or `graphs`, found neither")
    for name in config.graphs:
        if name in config.prompts:
            raise ConfigError(f"graphs: `{name}` is the name of a prompt too; give it another one")
    if config.agent is not None and config.graphs:
        raise ConfigError("graphs: an agent answers a prompt of its own; leave one of them out")


_NOT_OF_BAML = {
    "agent": "the client of the BAML project answers",
    "delivery": "texts reach a BAML function in memory",
    "params": "a BAML function is asked with its tests",
    "teacher": "the tests of a BAML function need no labels",
}


def _check_baml(config: ProjectConfig) -> None:
    if len(config.prompts) > 1 or config.graphs:
        raise ConfigError(
            "prompts: expected one BAML function alone; give others projects of their own"
        )
    for name, why in _NOT_OF_BAML.items():
        if getattr(config, name) is not None:
            raise ConfigError(f"{name}: {why}; leave it out")
    if config.dataset != format_search.DatasetConfig() or config.splits.files is not None:
        raise ConfigError("dataset: the tests of a BAML function are its cases; leave it out")
    if config.models.user is not None:
        raise ConfigError("models: a BAML function has no conversations; leave `user` out")
    if config.models.task is not None and config.models.task.provider == "offline":
        raise ConfigError(
            "models: expected a model over HTTP as `task`, in place of the client of BAML, found "
            "`offline`; leave `task` out"
        )
    if config.models.reflection is None:
        raise ConfigError("models: expected the key `reflection` (Proposes new texts), found none")


def _project(**given: Any) -> ProjectConfig:
    config = ProjectConfig(**given)
    _check_names(config)
    if config.models.teacher is not None and config.teacher is None:
        raise ConfigError(
            "models: `teacher` is the model of the `teacher`, which is missing; leave it out"
        )
    if config.baml is not None:
        _check_baml(config)
        return config
    if config.agent is None:
        if config.models.user is not None:
            raise ConfigError("models: `user` talks to an `agent`, which is missing; leave it out")
        if config.models.task is None:
            raise ConfigError("models: expected the key `task` (Answers the prompts), found none")
        if config.delivery is not None:
            raise ConfigError(
                "delivery: is for texts of an `agent`, which is missing; leave it out"
            )
        return config
    if config.models.task is not None:
        raise ConfigError("models: `task` answers prompts, and here the `agent` does; leave it out")
    if config.models.reflection is None:
        raise ConfigError("models: expected the key `reflection` (Proposes new texts), found none")
    if config.params is not None:
        raise ConfigError("params: an agent is asked with the case itself; leave it out")
    if len(config.prompts) > 1:
        raise ConfigError("prompts: expected one with all texts of the agent; put them together")
    return config


def _agent_kind() -> checks.Kind[format_agents.AgentConfig]:
    # Most projects have none, and each kind of agent imports what it needs.
    from promptgraft.project.format_agent_kinds import AGENT

    return AGENT


def _read_agent(node: Node) -> format_agents.AgentConfig | None:
    return _agent_kind().read(node)


_OBJECT: checks.Schema = {"type": "object"}
_KEYS: Keys = keys_of(
    ProjectConfig,
    special={
        "version": _VERSION,
        "prompts": _by_name("prompt", "triage.md", _PROMPT_OR_TEXTS),
        "graphs": _by_name("graph", "file.py:NAME", REFERENCE),
        "dataset": format_search.DATASET,
        "splits": format_search.SPLITS,
        "metrics": format_search.METRICS,
        "aggregation": format_search.AGGREGATION,
        "models": MODELS,
        "agent": checks.Kind(_read_agent, {"$ref": "#/$defs/agent"}, reach=checks.Reach.ADDRESS),
        "delivery": format_agents.DELIVERY,
        "apply": checks.one_of("to-source").reaching(checks.Reach.FILE),
        "params": REFERENCE,
        "teacher": _PROMPT,
        "optimizer": format_search.OPTIMIZER,
        "store": adding.STORE,
        "runs": checks.PATH,
        "workers": checks.integer(1),
        "executor": adding.EXECUTOR,
        "trackers": adding.TRACKERS,
        "max_cost_per_day": checks.DOLLARS,
    },
)
_MEANT = {"texts": "prompts", "cases": "dataset"}
_ELSEWHERE = {key: f"unknown key (did you mean `{name}`?)" for key, name in _MEANT.items()}
_OF_BAML: checks.Kind[ProjectConfig] = record(
    _project,
    _KEYS,
    elsewhere=_ELSEWHERE,
    rules={
        "anyOf": [{"required": ["prompts"]}, {"required": ["graphs"]}],
        "if": {
            "required": ["prompts"],
            "properties": {"prompts": {"additionalProperties": {"required": ["baml"], **_OBJECT}}},
        },
        "then": {"properties": {"models": {"required": ["reflection"]}}},
        "else": {
            "required": ["metrics"],
            "if": {"required": ["agent"]},
            "then": {"properties": {"models": {"required": ["reflection"]}}},
            "else": {"properties": {"models": {"required": ["task"]}}},
        },
    },
)
# Only a BAML function has metrics of its own; the JSON Schema expresses this in `rules`.
_OF_OTHERS: checks.Kind[ProjectConfig] = record(
    _project,
    {**_KEYS, "metrics": attrs.evolve(_KEYS["metrics"], required=True)},
    elsewhere=_ELSEWHERE,
)


def _read_project(node: Node) -> ProjectConfig | None:
    prompts = node.member("prompts").value if isinstance(node.value, dict) else None
    named = prompts.values() if isinstance(prompts, dict) else ()
    is_baml = any(isinstance(prompt, dict) and "baml" in prompt for prompt in named)
    return (_OF_BAML if is_baml else _OF_OTHERS).read(node)


PROJECT: checks.Kind[ProjectConfig] = checks.Kind(_read_project, _OF_BAML.schema)
