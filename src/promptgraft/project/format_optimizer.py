"""The search in a project file: what the settings of its algorithm and the stoppers take."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import get_args

import attrs

from promptgraft.algorithms import DEFAULT, algorithm
from promptgraft.errors import ConfigError
from promptgraft.project.python_source import REFERENCE
from promptgraft.search.acceptance import MinGain, Paired, Strict
from promptgraft.search.config import RunConfig
from promptgraft.search.config_checks import CHECKS
from promptgraft.search.stoppers import BuiltIn, Stopper
from promptgraft.strict.checks import TEXT, Kind, integer
from promptgraft.strict.kinds import (
    Key,
    Keys,
    abouts_of,
    class_of,
    keys_of,
    listed,
    record,
    record_of,
    without_name,
)
from promptgraft.strict.nodes import Node
from promptgraft.targets.types import GepaExample


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
    "held_out_examples": "are the test cases of `splits`; leave it out",
    "feedback_fn": "is made of `metrics` and `aggregation`; leave it out",
    "shuffle_examples": "is not for projects, `splits` says what is learnt from; leave it out",
    "stoppers": "stand beside `optimizer`, not in it",
    "persist": "is not for projects, `promptgraft apply` writes the winner; leave it out",
    "persist_scope": "is not for projects, `promptgraft apply` writes the winner; leave it out",
    "target_section_paths": "is written `targets.sections` here",
    "target_tools": "is written `targets.tools` here",
    "target_output_fields": "is written `targets.output_fields` here",
    "target_tool_examples": "is written `targets.tool_examples` here",
    "target_task_examples": "is written `targets.task_examples` here",
}
"""Settings of a run that other parts of a project file decide."""

FORMATTERS = ("example_formatter", "trace_formatter")
"""Settings that name a function in Python."""

STOPPERS: Kind[tuple[Stopper, ...]] = listed(class_of(*get_args(BuiltIn)), "a list of stoppers")


def _example(name: str) -> GepaExample:
    return GepaExample(id=name, params=())


_USABLE: Mapping[str, object] = {
    "pareto_set_size": 1,
    "training_examples": (_example("a"), _example("b")),
    "feedback_fn": _example,
    "target_tools": ("any",),
}


def _alone(config: type[RunConfig], name: str, kind: Kind[object]) -> Kind[object]:
    """Hold one setting against the settings of a run, so that all faults are found at once."""
    make: Callable[..., RunConfig] = config

    def read(node: Node) -> object:
        value = kind.read(node)
        if value is None:
            return None
        others = {"rollout_budget": 1_000_000, **_USABLE, **config.permissive}
        try:
            make(**{**others, name: value})
        except ConfigError as error:
            # What it says of other settings only holds of these made-up ones.
            if str(error).startswith(f"{name}: "):
                node.fault(without_name(str(error), name))
                return None
        return value

    return Kind(read, kind.schema)


def _setting_keys(config: type[RunConfig]) -> Keys:
    special: Mapping[str, Kind[object]] = {
        **CHECKS,
        **config.checks,
        "acceptance": class_of(Strict, MinGain, Paired),
        "rollout_budget": integer(1),
        **dict.fromkeys(FORMATTERS, REFERENCE),
    }
    keys = keys_of(config, skip=tuple(ELSEWHERE), special=special)
    return {
        name: Key(key.kind if name in special else _alone(config, name, key.kind), key.about)
        for name, key in keys.items()
    }


_TARGETS: Kind[TargetsConfig] = record_of(
    TargetsConfig,
    special=dict.fromkeys(abouts_of(TargetsConfig), listed(TEXT, "a list of names")),
)


def _optimizer(
    algorithm: str = DEFAULT, targets: TargetsConfig | None = None, **settings: object
) -> OptimizerConfig:
    if "auto" in settings and "rollout_budget" in settings:
        raise ConfigError("expected either `auto` or `rollout_budget`, found both")
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
    return record(
        _optimizer,
        {
            "algorithm": Key(Kind(_algorithm, {"type": "string"}), about),
            **_setting_keys(algorithm(name)),
            "targets": Key(_TARGETS),
        },
        elsewhere=ELSEWHERE,
        about="The search; by default `auto: light`.",
        rules={"not": {"required": ["auto", "rollout_budget"]}},
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
