"""How the settings of a run may be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

import attrs

from promptgraft.algorithms.gepa.budgets import Auto
from promptgraft.algorithms.gepa.policies import STRATEGIES, MinibatchChoice, ModuleChoice, Preset
from promptgraft.errors import ConfigError
from promptgraft.frozenmap import FrozenMap
from promptgraft.parts.descriptors import SectionPath
from promptgraft.search.frontier import EXAMPLE_CELLS, FrontierPruning, FrontierType
from promptgraft.search.stoppers import Stopper
from promptgraft.search.validation import Full
from promptgraft.serde import shown
from promptgraft.strict.checks import money, number, one_of
from promptgraft.targets.types import GepaExample, named_numbers_fault

_DOLLARS = money(texts=True).or_none
ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


@attrs.frozen(kw_only=True)
class ToolExampleTarget:
    """An example of a tool that may change.

    Attributes:
        tool_name: the tool.
        example_index: position among its examples, from 0.
    """

    tool_name: str
    example_index: int


def as_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple."""
    _check_sequence(names, "expected a tuple of names")
    return tuple(names)


def as_targets(targets: Iterable[ToolExampleTarget]) -> tuple[ToolExampleTarget, ...]:
    """Return examples of tools as a tuple."""
    _check_sequence(targets, "target_tool_examples: expected a tuple of ToolExampleTarget")
    return tuple(targets)


def as_sections(paths: Iterable[SectionPath]) -> tuple[SectionPath, ...]:
    """Return section paths as a tuple."""
    _check_sequence(paths, "target_section_paths: expected a tuple of section paths")
    return tuple(paths)


def as_task_examples(paths: Iterable[SectionPath]) -> tuple[SectionPath, ...]:
    """Return paths of task examples as a tuple."""
    _check_sequence(paths, "target_task_examples: expected a tuple of paths")
    return tuple(paths)


def as_examples(examples: Iterable[GepaExample]) -> tuple[GepaExample, ...]:
    """Return the data as a tuple."""
    _check_sequence(examples, "training_examples: expected a sequence of GepaExample")
    return tuple(examples)


def as_held_out(examples: Iterable[GepaExample]) -> tuple[GepaExample, ...]:
    """Return the held-out data as a tuple."""
    _check_sequence(examples, "held_out_examples: expected a sequence of GepaExample")
    return tuple(examples)


def as_stoppers(stoppers: Iterable[Stopper]) -> tuple[Stopper, ...]:
    """Return stoppers as a tuple."""
    expected = "stoppers: expected a sequence of stoppers such as (MaxProposals(30),)"
    _check_sequence(stoppers, expected)
    return tuple(stoppers)


def as_auto(size: object) -> Auto | None:
    """Return a size by its name."""
    return None if size is None else _one_of(Auto, "auto", size)


def as_frontier(kind: object) -> FrontierType:
    """Return what the cells of the frontier are, by name."""
    return _one_of(FrontierType, "frontier_type", kind)


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
    return _one_of(Preset, "preset", name)


def as_minibatches(choice: object) -> MinibatchChoice:
    """Return how minibatches are chosen, by name."""
    return _one_of(MinibatchChoice, "minibatches", choice)


def as_pruning(rule: object) -> FrontierPruning:
    """Return which leaders are dropped, by name."""
    return _one_of(FrontierPruning, "frontier_pruning", rule)


def as_module_choice(choice: object) -> ModuleChoice:
    """Return how modules are chosen, by name."""
    return _one_of(ModuleChoice, "module_choice", choice)


def _one_of(kind: type[ChoiceT], field: str, name: object) -> ChoiceT:
    one_of(*kind).hold(field, name)
    return kind(str(name))


def as_weights(weights: Mapping[str, float] | str) -> Mapping[str, float]:
    """Return weights by objective; ``"score=0.8,tokens=0.2"`` is read too."""
    return _weights("weights", weights)


def as_pick(weights: Mapping[str, float] | str) -> Mapping[str, float]:
    """Return the weights that a winner is picked by."""
    return _weights("pick", weights)


def _weights(what: str, weights: Mapping[str, float] | str) -> Mapping[str, float]:
    found = _numbers(what, weights)
    for name, weight in found.items():
        number(above=0).hold(f"{what}: `{name}`", weight)
    return found


def as_thresholds(thresholds: Mapping[str, float] | str) -> Mapping[str, float]:
    """Return the least means by objective, written as weights are."""
    return _numbers("required_objectives", thresholds)


def _numbers(what: str, given: Mapping[str, float] | str) -> Mapping[str, float]:
    if isinstance(given, str):
        given = _read_numbers(what, given)
    if fault := named_numbers_fault(given):
        raise ConfigError(f"{what}: {fault}")
    return FrozenMap(given)


def _read_numbers(what: str, text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in (piece.strip() for piece in text.split(",")):
        name, sign, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            sign = ""
            value = 0.0
        if not sign:
            raise ConfigError(
                f"{what}: expected text such as 'score=0.8,tokens=0.2', found {part!r}"
            )
        if name.strip() in found:
            raise ConfigError(f"{what}: `{name.strip()}` is named twice")
        found[name.strip()] = value
    return found


def as_cost_limit(amount: object) -> Decimal | None:
    """Return the money of a run, exactly."""
    return _as_dollars("max_cost", amount)


def as_rollout_cost(amount: object) -> Decimal | None:
    """Return the money of a rollout, exactly."""
    return _as_dollars("max_rollout_cost", amount)


def _as_dollars(name: str, amount: object) -> Decimal | None:
    _DOLLARS.hold(name, amount)
    return _DOLLARS.fits(amount)


def _check_sequence(values: object, expected: str) -> None:
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, Mapping)):
        raise ConfigError(f"{expected}, found {shown(values)}")
