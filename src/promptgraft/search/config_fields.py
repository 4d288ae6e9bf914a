"""How the settings of a run may be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import TypeVar

import attrs

from promptgraft.errors import ConfigError
from promptgraft.frozenmap import FrozenMap
from promptgraft.parts.descriptors import SectionPath
from promptgraft.search.budgets import Auto
from promptgraft.search.frontier import FrontierType
from promptgraft.search.stoppers import Stopper
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
    return None if size is None else as_one_of(Auto, "auto", size)


def as_frontier(kind: object) -> FrontierType:
    """Return what the cells of the frontier are, by name."""
    return as_one_of(FrontierType, "frontier_type", kind)


def as_one_of(kind: type[ChoiceT], field: str, name: object) -> ChoiceT:
    """Return one of a few choices by its name."""
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
