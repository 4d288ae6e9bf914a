"""How the settings of GEPA may be written, and what a preset makes of them."""

from __future__ import annotations

from typing import Any

import attrs

from promptgraft.algorithms.gepa.policies import STRATEGIES, MinibatchChoice, ModuleChoice, Preset
from promptgraft.search.config_fields import as_one_of
from promptgraft.search.frontier import EXAMPLE_CELLS, FrontierPruning
from promptgraft.search.validation import Full


def by_preset(name: str) -> Any:
    """Return a default that is what the field ``preset`` says."""

    def found(config: Any) -> object:
        part: object = getattr(STRATEGIES[config.preset], name)
        return part

    return attrs.Factory(found, takes_self=True)


def validation_by_preset() -> Any:
    """Return the default of ``validation``: ``Full()`` where settings need every mean."""

    def found(config: Any) -> object:
        if config.pick or config.frontier_type not in EXAMPLE_CELLS:
            return Full()
        return STRATEGIES[config.preset].validation

    return attrs.Factory(found, takes_self=True)


def pruning_by_preset() -> Any:
    """Return the default of ``frontier_pruning``: by means only where all are exact."""

    def found(config: Any) -> FrontierPruning:
        if not isinstance(config.validation, Full):
            return FrontierPruning.DOMINATED
        return STRATEGIES[config.preset].frontier_pruning

    return attrs.Factory(found, takes_self=True)


def as_preset(name: object) -> Preset:
    """Return a strategy by its name."""
    return as_one_of(Preset, "preset", name)


def as_minibatches(choice: object) -> MinibatchChoice:
    """Return how minibatches are chosen, by name."""
    return as_one_of(MinibatchChoice, "minibatches", choice)


def as_module_choice(choice: object) -> ModuleChoice:
    """Return how modules are chosen, by name."""
    return as_one_of(ModuleChoice, "module_choice", choice)


def as_pruning(rule: object) -> FrontierPruning:
    """Return which leaders are dropped, by name."""
    return as_one_of(FrontierPruning, "frontier_pruning", rule)
