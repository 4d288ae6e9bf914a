"""The cases, the scoring and the search of a project file."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import get_args

import attrs

from promptgraft.algorithms import DEFAULT, SHIPPED, algorithm
from promptgraft.errors import ConfigError
from promptgraft.evals.aggregate import Aggregation, Lexicographic, WeightedMean
from promptgraft.evals.dataset import DUPLICATES, FORMATS, REFUSE
from promptgraft.evals.plain import FIELDS
from promptgraft.evals.splits import NAMES
from promptgraft.evals.tables import check_encoding
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import NUMBER, PATH, TEXT, Kind, Reach, integer, one_of
from promptgraft.ground.strict.kinds import (
    Key,
    abouts_of,
    checked,
    class_of,
    either,
    keys_of,
    listed,
    named,
    record,
    record_of,
    without_name,
)
from promptgraft.ground.strict.nodes import Node, Source
from promptgraft.project.python_source import REFERENCE
from promptgraft.search.acceptance import MinGain, Paired, Strict
from promptgraft.search.config import BUDGET, RunConfig
from promptgraft.search.settings import Limits, groups_of
from promptgraft.search.stopping import BuiltIn

_logger = logging.getLogger("promptgraft")

DEFAULT_RATIO: Mapping[str, float] = {"train": 0.6, "validation": 0.2, "test": 0.2}


@attrs.frozen(kw_only=True)
class DatasetConfig:
    """The cases: inputs with their ground truth, as for ``Dataset.load``.

    Attributes:
        path: The file of cases: JSONL, JSON, CSV or YAML.
        format: The format of the file; by default, from its ending.
        fields: The columns of id, input, expected, ... that have other names.
        keep: Columns to keep without showing them to the agent.
        delimiter: The delimiter of a CSV file; by default, detected in its header.
        encoding: The encoding of a CSV file, such as cp1252; by default, UTF-8.
        duplicates: Whether to refuse rows that repeat another one, or to drop them.
        images: Columns with the path of an image, from the folder of the file on, or its address.
        files: Columns with the path or address of a PDF or a text file.
    """

    path: str | None = None
    format: str | None = None
    fields: Mapping[str, str | tuple[str, ...]] = attrs.field(factory=dict)
    keep: tuple[str, ...] = ()
    delimiter: str | None = None
    encoding: str | None = None
    duplicates: str = REFUSE
    images: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class SplitsConfig:
    """How the cases are split; one of ratio, files and field.

    Attributes:
        ratio: Shares of the sets, 1 or less in all; other cases are in no set. The id of a case
            decides, not its position in the file.
        seed: Another seed gives another split by ratio.
        stratify: A field of the cases whose values are spread evenly over the sets.
        files: A file, or a list of files, for each set; then `dataset` has no `path`. Without
            `validation` a third of the training cases are taken.
        field: The field of a case that says train, validation or test.
        only: The ids of the only cases to use, by set.
    """

    ratio: Mapping[str, float] | None = None
    seed: int = 0
    stratify: str | None = None
    files: Mapping[str, str | tuple[str, ...]] | None = None
    field: str | None = None
    only: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)

    @property
    def files_by_set(self) -> Mapping[str, tuple[str, ...]]:
        """The files of each set; empty without `files`."""
        files = (self.files or {}).items()
        return {name: (value,) if isinstance(value, str) else value for name, value in files}

    @property
    def all_files(self) -> tuple[str, ...]:
        """The files of all sets."""
        return tuple(file for files in self.files_by_set.values() for file in files)


def _splits(**given: object) -> SplitsConfig:
    ways = [name for name in ("ratio", "files", "field") if name in given]
    if len(ways) > 1:
        raise ConfigError(
            f"expected one of `ratio`, `files` and `field`, found {' and '.join(ways)}"
        )
    for name in ("seed", "stratify"):
        if name in given and ways and ways != ["ratio"]:
            raise ConfigError(f"`{name}` is for `ratio` only, found `{ways[0]}`; leave it out")
    make: Callable[..., SplitsConfig] = SplitsConfig  # the kinds have made sure of the types
    return make(**({} if ways else {"ratio": DEFAULT_RATIO}), **given)


def _file_alone(node: Node) -> DatasetConfig | None:
    path = PATH.read(node)
    return None if path is None else DatasetConfig(path=path)


_DATASET: Kind[DatasetConfig] = record(
    DatasetConfig,
    keys_of(
        DatasetConfig,
        special={
            "path": PATH,
            "format": one_of(*FORMATS),
            "fields": named(
                either(
                    "a column, a list of columns, or columns by placeholder",
                    (str, TEXT),
                    (list, listed(TEXT)),
                    (dict, named(TEXT)),
                )
            ),
            "keep": listed(TEXT, "a list of columns"),
            "delimiter": TEXT,
            "encoding": checked(TEXT, check_encoding),
            "duplicates": one_of(*DUPLICATES),
            "images": listed(TEXT, "a list of columns"),
            "files": listed(TEXT, "a list of columns"),
        },
    ),
    elsewhere={name: f"unknown key; write `fields: {{{name}: COLUMN}}`" for name in FIELDS},
    about="The cases: inputs with their ground truth.",
)
DATASET: Kind[DatasetConfig] = either(
    "the file of cases, or an object such as `{path: cases.jsonl}`",
    (str, Kind(_file_alone, PATH.schema, reach=PATH.reach)),
    (dict, _DATASET),
)
_FILES = either(
    "a file of cases, or a list of files", (str, PATH), (list, listed(PATH, "a list of files"))
)
_CLASHES = (
    ("ratio", "files"),
    ("ratio", "field"),
    ("files", "field"),
    *((way, name) for way in ("files", "field") for name in ("seed", "stratify")),
)
_SET_ALONE = (
    "unknown key; write the shares of all sets as `ratio: {train: 0.5, validation: 0.25, test: "
    "0.25}`, or their files as `files: {train: FILE, validation: FILE, test: FILE}`"
)
SPLITS: Kind[SplitsConfig] = record(
    _splits,
    keys_of(
        SplitsConfig,
        special={
            "ratio": record(
                functools.partial(dict, test=0.0),
                {name: Key(NUMBER, required=name != "test") for name in NAMES},
            ),
            "seed": integer(0),
            "stratify": TEXT,
            "files": record(dict, {name: Key(_FILES, required=name == "train") for name in NAMES}),
            "field": TEXT,
            "only": record(dict, {name: Key(listed(TEXT, "a list of ids")) for name in NAMES}),
        },
    ),
    elsewhere=dict.fromkeys((*NAMES, "val", "valid", "dev", "training"), _SET_ALONE),
    about="The sets to learn from (train), compare candidates on (validation) and hold out (test).",
    rules={"not": {"anyOf": [{"required": list(pair)} for pair in _CLASHES]}},
)


METRICS = either(
    "a list of metrics such as `[exact]`, the name of one, or the path of a metric file",
    (
        list,
        Kind(
            lambda node: node.value,
            {"type": "array", "minItems": 1, "items": {"type": ["object", "string"]}},
            # They may name functions and files; their kinds are known only when they are read.
            reach=Reach.CODE,
        ),
    ),
    (str, PATH),
)


def _aggregation(
    weights: Mapping[str, float] | None = None, order: tuple[str, ...] | None = None
) -> Aggregation:
    if weights is not None and order is None:
        return WeightedMean(weights)
    if order is not None and weights is None:
        return Lexicographic(order)
    raise ConfigError("expected either `weights` or `order`")


AGGREGATION: Kind[Aggregation] = record(
    _aggregation,
    {
        "weights": Key(named(NUMBER), "The score is their weighted mean."),
        "order": Key(listed(TEXT), "The first metric decides; then the next."),
    },
    rules={"minProperties": 1, "maxProperties": 1},
)


@attrs.frozen(kw_only=True)
class TargetsConfig:
    """The parts that may change.

    Attributes:
        sections: Sections whose text may change, keys joined by `/`.
        summaries: Sections whose summaries may change.
        tools: Tools whose descriptions may change.
        output_fields: Fields of the answer, such as `Review.severity`.
        tool_examples: Examples of tools: `search/0`.
        task_examples: Task examples: `guide/sqli`.
        visibility: Sections, with their task examples, and single ones that may be hidden.
        parts: Parts of prompts and graphs by the ids that `promptgraft describe` prints.
    """

    sections: tuple[str, ...] = ()
    summaries: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    output_fields: tuple[str, ...] = ()
    tool_examples: tuple[str, ...] = ()
    task_examples: tuple[str, ...] = ()
    visibility: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class OptimizerConfig:
    """The settings of the search.

    Attributes:
        algorithm: how prompts are improved.
        settings: those that are given, by their names in the settings of the algorithm.
        targets: what may change; None for every section that may be overridden.
    """

    algorithm: str
    settings: Mapping[str, object] = attrs.field(factory=dict, hash=False)
    targets: TargetsConfig | None = None


ELSEWHERE: Mapping[str, str] = {
    "pareto_set_size": "is the number of validation cases; leave it out, or mend `splits`",
    "training_examples": "come from `dataset` and `splits`; leave it out",
    "data": "comes from `dataset` and `splits`; leave it out",
    "feedback_fn": "is made of `metrics` and `aggregation`; leave it out",
    "persist": "is not for projects, `promptgraft apply` writes the winner; leave it out",
    "persist_scope": "is not for projects, `promptgraft apply` writes the winner; leave it out",
    "target_section_paths": "is written `targets.sections` here",
    "target_tool_examples": "is written `targets.tool_examples` here",
    "target_task_examples": "is written `targets.task_examples` here",
}
"""Settings of a run that other keys of a project file decide, with the messages for them."""

_STOPPERS: Kind[object] = class_of(*get_args(BuiltIn))


def _stopper(node: Node) -> object:
    """Read a stopper; other limits, which may be expected here, are beside the stoppers."""
    keys = [*node.value] if isinstance(node.value, dict) else []
    for field in attrs.fields(Limits):
        if field.name in keys:
            message = f"is no stopper; write `limits.{field.name}`, beside `stoppers`"
            node.member(field.name).fault(message)
            return None
    return _STOPPERS.read(node)


_SETTINGS: Mapping[str, Kind[object]] = {
    "rollout_budget": BUDGET,
    "acceptance": class_of(Strict, MinGain, Paired),
    "limits": record_of(
        Limits, special={"stoppers": listed(Kind(_stopper, _STOPPERS.schema), "a list of stoppers")}
    ),
    "targets": record_of(
        TargetsConfig,
        special=dict.fromkeys(abouts_of(TargetsConfig), listed(TEXT, "a list of names")),
    ),
}
"""Kinds of settings whose types are not specific enough, or that files write differently."""


def _optimizer(
    algorithm: str = DEFAULT, targets: TargetsConfig | None = None, **settings: object
) -> OptimizerConfig:
    return OptimizerConfig(algorithm=algorithm, settings=settings, targets=targets)


def _algorithm(node: Node) -> str | None:
    """Read the name of an installed algorithm."""
    name = TEXT.read(node)
    if name is None:
        return None
    try:
        algorithm(name)
    except ConfigError as error:
        node.fault(without_name(str(error), "algorithm"))
        return None
    return name


@functools.cache
def settings_of(name: str, *others: str) -> Kind[OptimizerConfig]:
    """Return the kind of the settings of a search by an algorithm.

    A setting that only one of ``others`` has is refused with the name of that algorithm.

    Raises:
        ConfigError: no such algorithm is installed.
    """
    about = f"The algorithm of the search; `{DEFAULT}` by default."
    config: type[RunConfig] = algorithm(name)
    functions = dict.fromkeys(config.functions, REFERENCE)
    special = {**_SETTINGS, **functions, **config.kinds()}
    settings = keys_of(config, skip=tuple(ELSEWHERE), special=special)
    grouped = {
        field.name: f"is written `{group}.{field.name}` here"
        for group, kind in groups_of(config).items()
        for field in attrs.fields(kind)
    }
    foreign_settings = {
        field.name: f"is a setting of the algorithm `{owner}`, not of `{name}`; leave it out"
        for owner in others
        for field in attrs.fields(algorithm(owner))
        if field.name not in attrs.fields_dict(config)
    }
    return record(
        _optimizer,
        {
            "algorithm": Key(Kind(_algorithm, {"type": "string"}), about),
            # In a project the budget is optional.
            **{name: attrs.evolve(key, required=False) for name, key in settings.items()},
        },
        elsewhere={**foreign_settings, **grouped, **ELSEWHERE},
        about="The search; by default `rollout_budget: light`.",
    )


def _read_optimizer(node: Node) -> OptimizerConfig | None:
    """Read the settings of a search, whose keys depend on its algorithm."""
    algorithm_name = node.value.get("algorithm") if isinstance(node.value, Mapping) else None
    name = algorithm_name if isinstance(algorithm_name, str) else DEFAULT
    try:
        known_names = {"algorithm", *attrs.fields_dict(algorithm(name))}
        # Only if a name needs it: to import another algorithm takes a tenth of a second.
        has_unknown = isinstance(node.value, dict) and not node.value.keys() <= known_names
        kind = settings_of(name, *(SHIPPED if has_unknown else ()))
    except ConfigError:
        _algorithm(node.member("algorithm"))  # notes the fault of the name
        return None  # without the algorithm, the other keys cannot be checked
    return kind.read(_modernized(name, node))


def _modernized(name: str, node: Node) -> Node:
    """Return the settings of a search as this version writes them, with a warning for others."""
    if not isinstance(node.value, dict):
        return node
    settings, notes = algorithm(name).modernized(node.value)
    for note in notes:
        _logger.warning("%s", node.source.line(node.path, note))
    return attrs.evolve(node, value=dict(settings))


OPTIMIZER: Kind[OptimizerConfig] = Kind(_read_optimizer, settings_of(DEFAULT).schema)
"""The settings of a search, as a project file gives them."""


def tuned_settings(before: Mapping[str, Json], settings: Mapping[str, Json]) -> OptimizerConfig:
    """Return the settings of a search with some replaced by those of a caller.

    With another algorithm, what it has no setting for is left out of ``before``.

    Raises:
        DataFormatError: one line for each unknown, unsuitable or refused setting.
    """
    # Alone, because among the settings of the project its own would be refused too.
    named: dict[str, Json] = {"algorithm": before["algorithm"]} if "algorithm" in before else {}
    untrusted = Source.of({**named, **settings}, is_trusted=False)
    OPTIMIZER.read(untrusted.root)
    untrusted.raise_all()
    if (name := settings.get("algorithm")) not in (None, before.get("algorithm", DEFAULT)):
        fields = {field.name for field in attrs.fields(algorithm(str(name)))}
        before = {key: value for key, value in before.items() if key in {"targets", *fields}}
    source = Source.of({**before, **settings})
    optimizer = OPTIMIZER.read(source.root)
    source.raise_all()
    assert optimizer is not None  # noqa: S101 - what has no fault is read
    return optimizer
