"""The search in a project file: what ``GepaConfig`` and the stoppers take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import get_args

from promptgraft.algorithms.gepa.config import GepaConfig
from promptgraft.algorithms.gepa.config_checks import CHECKS
from promptgraft.errors import ConfigError
from promptgraft.project.config import OptimizerConfig, TargetsConfig
from promptgraft.project.python_source import REFERENCE
from promptgraft.search.acceptance import MinGain, Paired, Strict
from promptgraft.search.stoppers import BuiltIn, Stopper
from promptgraft.strict.checks import TEXT, Kind, integer
from promptgraft.strict.classes import abouts_of, class_of, keys_of, record_of
from promptgraft.strict.kinds import Key, Keys, listed, record, without_name
from promptgraft.strict.nodes import Node
from promptgraft.targets.types import GepaExample

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
"""Fields of ``GepaConfig`` that other parts of a project file decide."""

FORMATTERS = ("example_formatter", "trace_formatter")
"""Settings that name a function in Python."""

STOPPERS: Kind[tuple[Stopper, ...]] = listed(class_of(*get_args(BuiltIn)), "a list of stoppers")


def _example(name: str) -> GepaExample:
    return GepaExample(id=name, params=())


_USABLE: Mapping[str, object] = {
    "preset": "paper",  # with which every other setting can be used
    "minibatch_size": 1,
    "pareto_set_size": 1,
    "training_examples": (_example("a"), _example("b")),
    "feedback_fn": _example,
    "target_tools": ("any",),
}


_CONFIG: Callable[..., GepaConfig] = GepaConfig


def _alone(name: str, kind: Kind[object]) -> Kind[object]:
    """Hold one setting against ``GepaConfig``, so that all faults are found at once."""

    def read(node: Node) -> object:
        value = kind.read(node)
        if value is None:
            return None
        try:
            _CONFIG(**{"rollout_budget": 1_000_000, **_USABLE, name: value})
        except ConfigError as error:
            # What it says of other settings only holds of these made-up ones.
            if str(error).startswith(f"{name}: "):
                node.fault(without_name(str(error), name))
                return None
        return value

    return Kind(read, kind.schema)


_SPECIAL: Mapping[str, Kind[object]] = {
    **CHECKS,
    "acceptance": class_of(Strict, MinGain, Paired),
    "rollout_budget": integer(1),
    **dict.fromkeys(FORMATTERS, REFERENCE),
}


def _setting_keys() -> Keys:
    keys = keys_of(GepaConfig, skip=tuple(ELSEWHERE), special=_SPECIAL)
    return {
        name: Key(key.kind if name in _SPECIAL else _alone(name, key.kind), key.about)
        for name, key in keys.items()
    }


_TARGETS: Kind[TargetsConfig] = record_of(
    TargetsConfig,
    special=dict.fromkeys(abouts_of(TargetsConfig), listed(TEXT, "a list of names")),
)


def _optimizer(targets: TargetsConfig | None = None, **settings: object) -> OptimizerConfig:
    if "auto" in settings and "rollout_budget" in settings:
        raise ConfigError("expected either `auto` or `rollout_budget`, found both")
    return OptimizerConfig(settings=settings, targets=targets)


OPTIMIZER: Kind[OptimizerConfig] = record(
    _optimizer,
    {**_setting_keys(), "targets": Key(_TARGETS)},
    elsewhere=ELSEWHERE,
    about="The search; by default `auto: light`.",
    rules={"not": {"required": ["auto", "rollout_budget"]}},
)
