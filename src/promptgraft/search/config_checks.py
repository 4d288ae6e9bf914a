"""What must hold of the settings of a run, before the first rollout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from promptgraft.errors import ConfigError
from promptgraft.parts.descriptors import show_path
from promptgraft.parts.validation import MAX_BODY_CHARS
from promptgraft.search.config_fields import ToolExampleTarget
from promptgraft.search.context import PersistenceScope
from promptgraft.serde import shown
from promptgraft.strict.checks import (
    COUNT,
    DOLLARS,
    FINITE,
    FLAG,
    SECONDS,
    SHARE,
    Check,
    instance,
    integer,
    one_of,
)
from promptgraft.targets.types import GepaExample

if TYPE_CHECKING:
    from promptgraft.search.config import RunConfig

CHECKS: Mapping[str, Check[object]] = {
    "max_reflections": COUNT.or_none,
    "max_cost": DOLLARS.or_none,
    "max_tokens": COUNT.or_none,
    "timeout": SECONDS.or_none,
    "pareto_set_size": COUNT,
    "seed": integer(0),
    "enable_example_generation": FLAG,
    "max_task_examples_per_section": COUNT,
    "max_prompt_chars": COUNT.or_none,
    "shuffle_examples": FLAG,
    "perfect_score": FINITE,
    "max_example_chars": integer(100),
    "max_trace_chars": integer(100),
    "max_part_chars": integer(1, MAX_BODY_CHARS),  # which is what stores keep
    "on_error": one_of("unscored", "zero"),
    "max_unscored_share": SHARE,
    "persist": FLAG,
    "persist_scope": instance(PersistenceScope),
}
"""What each setting must be by itself; what project files may say of it too."""

_BUDGET = attrs.evolve(COUNT, mend="or give auto='light', 'medium' or 'heavy' instead")
TARGETS = (
    "target_section_paths",
    "target_tools",
    "target_output_fields",
    "target_tool_examples",
    "target_task_examples",
)
"""Settings that name what may change."""


def check_config(config: RunConfig) -> None:
    """Check everything that can be checked without a prompt.

    Raises:
        ConfigError: naming the field, what was expected and what was found.
    """
    check_sizes(config)
    _check_objectives(config)
    _check_choices(config)
    _check_targets(config)
    config.check()
    _check_budget(config)


def check_sizes(config: RunConfig) -> None:
    """Check what decides how many rollouts a step takes.

    Raises:
        ConfigError: as ``check_config``.
    """
    for name, check in {**CHECKS, **config.checks}.items():
        check.hold(name, getattr(config, name))
    _check_examples(config)


def _check_objectives(config: RunConfig) -> None:
    policy: object = config.acceptance
    if isinstance(policy, type) or not callable(getattr(policy, "decide", None)):
        raise ConfigError(
            "acceptance: expected a policy such as Strict(), MinGain(0.05) or Paired(), "
            f"found {shown(policy)}"
        )


def _check_choices(config: RunConfig) -> None:
    for position, stopper in enumerate(config.stoppers):
        if isinstance(stopper, type) or not callable(stopper):
            raise ConfigError(
                f"stoppers[{position}]: expected a stopper such as MaxProposals(30), or a "
                f"function of the run's state, found {shown(stopper)}"
            )
    for name in ("feedback_fn", "example_formatter", "trace_formatter"):
        value = getattr(config, name)
        if not callable(value) and value is not None:
            raise ConfigError(f"{name}: expected a function, found {shown(value)}")


def _check_targets(config: RunConfig) -> None:
    for name in ("target_section_paths", "target_task_examples"):
        for path in getattr(config, name):
            keys: object = path
            if not isinstance(keys, tuple) or not keys or not _are_names(keys):
                raise ConfigError(
                    f"{name}: expected tuples of section keys such as ('policies', 'refunds'), "
                    f"found {shown(path)}"
                )
    for example in config.target_tool_examples:
        if not isinstance(example, ToolExampleTarget):
            raise ConfigError(
                f"target_tool_examples: expected ToolExampleTarget, found {shown(example)}"
            )
    for name in TARGETS:
        seen: set[object] = set()
        for target in getattr(config, name):
            if target in seen:
                named = show_path(target) if isinstance(target, tuple) else target
                raise ConfigError(f"{name}: `{named}` is named twice")
            seen.add(target)


def _check_examples(config: RunConfig) -> None:
    seen: set[str] = set()
    for name in ("training_examples", "held_out_examples"):
        for position, example in enumerate(getattr(config, name)):
            if not isinstance(example, GepaExample):
                raise ConfigError(
                    f"{name}[{position}]: expected a GepaExample, found {shown(example)}"
                )
            if example.id in seen:
                raise ConfigError(f"{name}: the id `{example.id}` occurs twice")
            seen.add(example.id)
    if config.feedback_size < 1:
        raise ConfigError(
            f"pareto_set_size: {config.pareto_set_size} of {len(config.training_examples)} "
            "examples leave none to learn from; lower it or add examples"
        )


def _check_budget(config: RunConfig) -> None:
    budget = config.rollout_budget
    _BUDGET.hold("rollout_budget", budget)
    if config.auto is not None and budget != (derived := config.budget_of(config.auto)):
        raise ConfigError(
            f"rollout_budget: {budget} is given, but auto={str(config.auto)!r} makes it {derived}; "
            "leave one of them out"
        )
    if config.rollout_budget < config.least_budget:
        kept = {
            "the rest of the validation set": config.finals_size,
            "confirming the winner": config.confirmation_size,
            "the held-out examples": config.following_size - config.confirmation_size,
        }
        last = "".join(f", {what} {size}" for what, size in kept.items() if size)
        raise ConfigError(
            f"rollout_budget: expected at least {config.least_budget} (the baseline takes "
            f"{config.baseline_size} rollouts, one step up to {config.step_size}{last}), found "
            f"{config.rollout_budget}; raise it or lower pareto_set_size{config.smaller_steps}"
        )


def _are_names(keys: tuple[object, ...]) -> bool:
    return all(isinstance(key, str) for key in keys)
