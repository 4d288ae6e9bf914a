"""What must hold of the settings of GEPA, before the first rollout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptgraft.errors import ConfigError
from promptgraft.evals.statistics import check_installed
from promptgraft.search.acceptance import Paired
from promptgraft.search.frontier import EXAMPLE_CELLS, FrontierPruning
from promptgraft.search.validation import Full, Racing
from promptgraft.serde import shown
from promptgraft.strict.checks import COUNT, DOLLARS, FLAG, SHARE, Check, integer

if TYPE_CHECKING:
    from promptgraft.algorithms.gepa.settings import GepaSettings

CHECKS: Mapping[str, Check[object]] = {
    "exploration": SHARE,
    "reuse_rollouts": FLAG,
    "reflections_per_module": COUNT,
    "proposals_per_step": COUNT,
    "steps_at_once": COUNT,
    "minibatch_size": COUNT,
    "enable_merge": FLAG,
    "max_merge_invocations": integer(0),
    "example_mutation_rate": SHARE,
    "max_rollout_cost": DOLLARS.or_none,
    "max_copied_words": COUNT.or_none,
    "history_top_k": integer(0),
    "max_failed_reflections": COUNT,
    "max_idle_steps": COUNT,
}
"""What each setting must be by itself."""

DECISIVE = (
    "proposals_per_step",
    "steps_at_once",
    "minibatch_size",
    "exploration",
    "minibatches",
    "reuse_rollouts",
    "module_choice",
    "reflections_per_module",
    "enable_merge",
    "max_merge_invocations",
    "example_mutation_rate",
    "frontier_pruning",
    "max_copied_words",
    "history_top_k",
)
"""Settings that decide the path of a run."""

_MOST_AT_ONCE = 1_000
"""Proposals under way: each has a thread, and all of them begin before the first one ends."""


def check_gepa(config: GepaSettings) -> None:
    """Check the settings that only GEPA has.

    Raises:
        ConfigError: naming the field, what was expected and what was found.
    """
    at_once = config.proposals_per_step * config.steps_at_once
    if at_once > _MOST_AT_ONCE:
        raise ConfigError(
            f"steps_at_once: {config.steps_at_once} steps of {config.proposals_per_step} proposals "
            f"are {at_once} proposals at once, expected at most {_MOST_AT_ONCE}; lower one of them"
        )
    _check_power(config)
    _check_validation(config)


def _check_power(config: GepaSettings) -> None:
    """Refuse a test that cannot be made, or that no comparison can pass."""
    policy = config.acceptance
    if config.pick and policy.confirmations:
        raise ConfigError(
            "pick: expected none with a policy that confirms the winner by its score; give the "
            "same weights as `weights` instead"
        )
    if not isinstance(policy, Paired):
        return
    check_installed()
    answers = config.batch_size * (1 + policy.max_repeats)
    if 2.0**-answers > policy.level:
        raise ConfigError(
            f"acceptance: with {answers} answers a comparison cannot reach level {policy.level:g}: "
            f"the least p is {2.0**-answers:g}; raise minibatch_size or max_repeats"
        )


def _check_validation(config: GepaSettings) -> None:
    """Refuse races together with what needs the means of all candidates."""
    if not isinstance(config.validation, Full | Racing):
        raise ConfigError(
            f"validation: expected Full() or Racing(), found {shown(config.validation)}"
        )
    if isinstance(config.validation, Full):
        return
    if config.pick:
        raise ConfigError(
            "pick: expected none with validation=Racing(), which tries few candidates on "
            "everything; give the same weights as `weights` instead, or preset='paper'"
        )
    if config.frontier_type not in EXAMPLE_CELLS:
        raise ConfigError(
            "frontier_type: expected 'instance' or 'cartesian' with validation=Racing(), found "
            f"'{config.frontier_type}'; give preset='paper' to use it"
        )
    if config.frontier_pruning is not FrontierPruning.DOMINATED:
        raise ConfigError(
            "frontier_pruning: expected 'dominated' with validation=Racing(), which tries "
            f"candidates on different examples, found '{config.frontier_pruning}'; give "
            "validation=Full() to use it"
        )
