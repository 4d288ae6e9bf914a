"""The search in a project file: the settings of its algorithm, by the classes of these."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import get_args

import attrs

from promptgraft.algorithms import DEFAULT, algorithm
from promptgraft.errors import ConfigError
from promptgraft.project.python_source import REFERENCE
from promptgraft.search.acceptance import MinGain, Paired, Strict
from promptgraft.search.config import BUDGET, RunConfig
from promptgraft.search.settings import Limits, groups_of
from promptgraft.search.stoppers import BuiltIn
from promptgraft.strict.checks import TEXT, Kind
from promptgraft.strict.kinds import (
    Key,
    abouts_of,
    class_of,
    keys_of,
    listed,
    record,
    record_of,
    without_name,
)
from promptgraft.strict.nodes import Node


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
"""Settings of a run that other parts of a project file decide."""

FORMATTERS = ("example_formatter", "trace_formatter")
"""Settings that name a function in Python."""

_SPECIAL: Mapping[str, Kind[object]] = {
    "rollout_budget": BUDGET,
    "acceptance": class_of(Strict, MinGain, Paired),
    "limits": record_of(
        Limits, special={"stoppers": listed(class_of(*get_args(BuiltIn)), "a list of stoppers")}
    ),
    "targets": record_of(
        TargetsConfig,
        special=dict.fromkeys(abouts_of(TargetsConfig), listed(TEXT, "a list of names")),
    ),
    **dict.fromkeys(FORMATTERS, REFERENCE),
}
"""Kinds of settings whose types say too little, or that are written otherwise in a file."""


def _optimizer(
    algorithm: str = DEFAULT, targets: TargetsConfig | None = None, **settings: object
) -> OptimizerConfig:
    return OptimizerConfig(algorithm=algorithm, settings=settings, targets=targets)


def _algorithm(node: Node) -> str | None:
    """Return the name of an algorithm that is installed."""
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
def _settings_of(name: str) -> Kind[OptimizerConfig]:
    about = f"The algorithm of the search; `{DEFAULT}` by default."
    config: type[RunConfig] = algorithm(name)
    settings = keys_of(config, skip=tuple(ELSEWHERE), special=_SPECIAL)
    grouped = {
        field.name: f"is written `{group}.{field.name}` here"
        for group, kind in groups_of(config).items()
        for field in attrs.fields(kind)
    }
    return record(
        _optimizer,
        {
            "algorithm": Key(Kind(_algorithm, {"type": "string"}), about),
            # A project has a budget where it gives none.
            **{name: attrs.evolve(key, required=False) for name, key in settings.items()},
        },
        elsewhere={**grouped, **ELSEWHERE},
        about="The search; by default `rollout_budget: light`.",
    )


def _read(node: Node) -> OptimizerConfig | None:
    """Read the settings that the algorithm has which is named among them."""
    given = node.value.get("algorithm") if isinstance(node.value, Mapping) else None
    try:
        kind = _settings_of(given if isinstance(given, str) else DEFAULT)
    except ConfigError:
        kind = _settings_of(DEFAULT)  # which says what is wrong with the name
    return kind.read(node)


OPTIMIZER: Kind[OptimizerConfig] = Kind(_read, _settings_of(DEFAULT).schema)
