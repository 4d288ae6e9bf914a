"""What a project file says, as values; nothing that it names is looked up yet."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.algorithms import DEFAULT
from promptgraft.evals.aggregation import Aggregation
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.project.files import DEFAULT_RUNS
from promptgraft.project.secrets import Secret
from promptgraft.search.stoppers import Stopper
from promptgraft.serde import Json

DEFAULT_WORKERS = 4


@attrs.frozen(kw_only=True)
class DatasetConfig:
    """The cases: inputs with their ground truth; everything that ``Dataset.load`` takes.

    Attributes:
        path: The file of cases: JSONL, JSON, CSV or YAML.
        format: By the ending of the file when it is left out.
        fields: The columns that hold id, input, expected, ... where they have other names.
        keep: Columns that the agent is not shown.
        delimiter: Of a CSV file; found in its header when it is left out.
    """

    path: str | None = None
    format: str | None = None
    fields: Mapping[str, str | tuple[str, ...]] = attrs.field(factory=dict)
    keep: tuple[str, ...] = ()
    delimiter: str | None = None


@attrs.frozen(kw_only=True)
class RatioConfig:
    """Shares of the cases, which sum to 1."""

    train: float = 0.6
    validation: float = 0.2
    test: float = 0.2


@attrs.frozen(kw_only=True)
class SplitsConfig:
    """How the cases are parted; one of ratio, files and field.

    Attributes:
        ratio: Shares that sum to 1; what decides is the id of a case, not its place in the file.
        seed: Another one gives another split by shares.
        stratify: A field of the cases that is spread evenly over the shares.
        files: A file for each set; then `dataset` has no `path`.
        field: The field of a case that says train, validation or test.
    """

    ratio: RatioConfig | None = None
    seed: int = 0
    stratify: str | None = None
    files: Mapping[str, str] | None = None
    field: str | None = None


@attrs.frozen(kw_only=True)
class ModelConfig:
    """A model, and how it is reached.

    Attributes:
        provider: ``offline``, ``anthropic``, ``openai`` or ``python``.
        options: what the adapter takes, by name.
        python: for ``python``: where the adapter, or what makes it, stands.
        api_key: the key, if one is named.
        headers: further headers of each request.
    """

    provider: str
    options: Mapping[str, object] = attrs.field(factory=dict)
    python: str = ""
    api_key: Secret | None = attrs.field(default=None, repr=False)
    headers: Mapping[str, Secret] = attrs.field(factory=dict, repr=False)


@attrs.frozen(kw_only=True)
class ModelsConfig:
    """The models by their part in a run.

    Attributes:
        task: Answers the prompts.
        reflection: Proposes new texts; by default the task's model.
        judges: Models that metrics ask, by the name that metrics use.
    """

    task: ModelConfig
    reflection: ModelConfig | None = None
    judges: Mapping[str, ModelConfig] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class TargetsConfig:
    """The parts that may change.

    Attributes:
        sections: Sections whose text may change, keys joined by `/`.
        tools: Tools whose descriptions may change.
        output_fields: Fields of the answer, such as `Review.severity`.
        tool_examples: Examples of tools: `search/0`.
        task_examples: Task examples: `guide/sqli`.
    """

    sections: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    output_fields: tuple[str, ...] = ()
    tool_examples: tuple[str, ...] = ()
    task_examples: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class OptimizerConfig:
    """The settings of the search.

    Attributes:
        algorithm: how prompts are improved.
        settings: those that are given, by their names in the settings of the algorithm.
        targets: what may change; None for every section that may be overridden.
    """

    algorithm: str
    settings: Mapping[str, object] = attrs.field(factory=dict)
    targets: TargetsConfig | None = None


@attrs.frozen(kw_only=True)
class StoreConfig:
    """Where winners are written, and where a search begins.

    Attributes:
        path: The folder that holds `.promptgraft`.
        tag: The tag that a winner gets.
    """

    path: str = "."
    tag: str = DEFAULT_TAG


@attrs.frozen(kw_only=True)
class ProjectConfig:
    """A whole project file; the fields are its keys.

    Attributes:
        version: The version of this format: 1.
        prompts: By name: a Markdown file, or `file.py:NAME` or `module:NAME` in Python.
        metrics: What is asked of an answer: a list, or the path of a metric file.
        aggregation: How the scores of several metrics become one; by default their mean.
        params: A function that makes the parameters of a prompt of a case.
        stoppers: What else ends a search, asked between its steps.
        store: Where winners are kept, and where a search begins.
        runs: The folder of run directories.
        workers: Rollouts side by side; the result does not depend on it.
    """

    version: int
    prompts: Mapping[str, str]
    dataset: DatasetConfig = attrs.field(factory=DatasetConfig)
    splits: SplitsConfig = attrs.field(factory=lambda: SplitsConfig(ratio=RatioConfig()))
    metrics: str | list[Json]
    aggregation: Aggregation | None = None
    models: ModelsConfig
    params: str | None = None
    optimizer: OptimizerConfig = attrs.field(factory=lambda: OptimizerConfig(algorithm=DEFAULT))
    stoppers: tuple[Stopper, ...] = ()
    store: StoreConfig = attrs.field(factory=StoreConfig)
    runs: str = DEFAULT_RUNS
    workers: int = DEFAULT_WORKERS
