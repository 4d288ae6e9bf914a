"""The format of ``promptgraft.yaml``, version 1: every key with its kind."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from promptgraft.errors import ConfigError
from promptgraft.evals.aggregation import Aggregation, Lexicographic, WeightedMean
from promptgraft.evals.loading import FORMATS
from promptgraft.evals.splits import NAMES
from promptgraft.parts.validation import check_key, check_tag
from promptgraft.project.config import (
    DatasetConfig,
    ProjectConfig,
    RatioConfig,
    SplitsConfig,
    StoreConfig,
)
from promptgraft.project.format_models import MODELS
from promptgraft.project.format_optimizer import OPTIMIZER, STOPPERS
from promptgraft.project.kinds import (
    NUMBER,
    REFERENCE,
    TEXT,
    Key,
    Kind,
    checked,
    choice,
    either,
    listed,
    named,
    record,
    whole,
)
from promptgraft.project.nodes import Node
from promptgraft.serde import Json, shown

VERSION = 1
_TAG = "^[a-z0-9][a-z0-9._-]{0,63}$"


def _version(node: Node) -> int | None:
    if node.value == VERSION and type(node.value) is int:
        return VERSION
    node.expected(f"{VERSION}, the version of the format that this promptgraft reads")
    return None


def _check_source(source: str) -> None:
    if not source.endswith(".md") and ":" not in source:
        raise ConfigError(
            "expected a Markdown file such as `prompts/triage.md`, or `file.py:NAME` or "
            f"`module:NAME` in Python, found {shown(source)}"
        )


def _splits(**given: object) -> SplitsConfig:
    ways = [name for name in ("ratio", "files", "field") if name in given]
    if len(ways) > 1:
        raise ConfigError(
            f"expected one of `ratio`, `files` and `field`, found {' and '.join(ways)}"
        )
    for name in ("seed", "stratify"):
        if name in given and ways and ways != ["ratio"]:
            raise ConfigError(f"`{name}` is for `ratio` only, found `{ways[0]}`; leave it out")
    return _SPLITS_MAKER(**({} if ways else {"ratio": RatioConfig()}), **given)


def _aggregation(
    weights: Mapping[str, float] | None = None, order: tuple[str, ...] | None = None
) -> Aggregation:
    if weights is not None and order is None:
        return WeightedMean(weights)
    if order is not None and weights is None:
        return Lexicographic(order)
    raise ConfigError("expected either `weights` or `order`")


# The kinds have made sure of the types.
_SPLITS_MAKER: Callable[..., SplitsConfig] = SplitsConfig

PROMPTS: Kind[dict[str, str]] = named(
    checked(TEXT, _check_source),
    "an object with at least one prompt",
    least=1,
    check=functools.partial(check_key, what="name of a prompt"),
    pattern="^[a-z0-9][a-z0-9_-]{0,63}$",
)

DATASET: Kind[DatasetConfig] = record(
    DatasetConfig,
    {
        "path": Key(TEXT, "The file of cases: JSONL, JSON, CSV or YAML."),
        "format": Key(choice(*FORMATS), "By the ending of the file when it is left out."),
        "fields": Key(
            named(
                either("a column or a list of columns", (str, TEXT), (list, listed(TEXT))),
            ),
            "The columns that hold id, input, expected, ... where they have other names.",
        ),
        "keep": Key(listed(TEXT, "a list of columns"), "Columns that the agent is not shown."),
        "delimiter": Key(TEXT, "Of a CSV file; found in its header when it is left out."),
    },
    about="The cases: inputs with their ground truth.",
)

SPLITS: Kind[SplitsConfig] = record(
    _splits,
    {
        "ratio": Key(
            record(
                functools.partial(RatioConfig, test=0.0),
                {name: Key(NUMBER, required=name != "test") for name in NAMES},
            ),
            "Shares that sum to 1; what decides is the id of a case, not its place in the file.",
        ),
        "seed": Key(whole(0), "Another one gives another split by shares."),
        "stratify": Key(TEXT, "A field of the cases that is spread evenly over the shares."),
        "files": Key(
            record(dict, {name: Key(TEXT, required=name != "test") for name in NAMES}),
            "A file for each set; then `dataset` has no `path`.",
        ),
        "field": Key(TEXT, "The field of a case that says train, validation or test."),
    },
    about="What the search learns from (train), is steered by (validation) and never sees (test).",
    rules={
        "not": {
            "anyOf": [
                {"required": list(pair)}
                for pair in (
                    ("ratio", "files"),
                    ("ratio", "field"),
                    ("files", "field"),
                    *((way, name) for way in ("files", "field") for name in ("seed", "stratify")),
                )
            ]
        }
    },
)

METRICS: Kind[str | list[Json]] = either(
    "a list of metrics, or the path of a metric file",
    (
        list,
        Kind(
            lambda node: node.value if isinstance(node.value, list) else None,
            {
                "type": "array",
                "minItems": 1,
                "items": {"type": "object"},
            },
        ),
    ),
    (str, TEXT),
)

PROJECT: Kind[ProjectConfig] = record(
    ProjectConfig,
    {
        "version": Key(
            Kind(_version, {"const": VERSION}), "The version of this format: 1.", required=True
        ),
        "prompts": Key(
            PROMPTS,
            "By name: a Markdown file, or `file.py:NAME` or `module:NAME` in Python.",
            required=True,
        ),
        "dataset": Key(DATASET),
        "splits": Key(SPLITS),
        "metrics": Key(
            METRICS,
            "What is asked of an answer: a list, or the path of a metric file.",
            required=True,
        ),
        "aggregation": Key(
            record(
                _aggregation,
                {
                    "weights": Key(named(NUMBER), "The score is their weighted mean."),
                    "order": Key(listed(TEXT), "The first metric decides; then the next."),
                },
                rules={"minProperties": 1, "maxProperties": 1},
            ),
            "How the scores of several metrics become one; by default their mean.",
        ),
        "models": Key(MODELS, required=True),
        "params": Key(REFERENCE, "A function that makes the parameters of a prompt of a case."),
        "optimizer": Key(OPTIMIZER),
        "stoppers": Key(STOPPERS, "What else ends a search, asked between its steps."),
        "store": Key(
            record(
                StoreConfig,
                {
                    "path": Key(TEXT, "The folder that holds `.promptgraft`."),
                    "tag": Key(
                        checked(TEXT, check_tag, {"pattern": _TAG}), "The tag that a winner gets."
                    ),
                },
            ),
            "Where winners are kept, and where a search begins.",
        ),
        "runs": Key(TEXT, "The folder of run directories."),
        "workers": Key(whole(1), "Rollouts side by side; the result does not depend on it."),
    },
)
