"""How the settings of a run may be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation

import attrs

from promptgraft.errors import ConfigError
from promptgraft.optimizers.gepa.budgets import Auto
from promptgraft.optimizers.types import GepaExample
from promptgraft.overrides.entries import SectionPath
from promptgraft.serde import shown


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


def as_auto(size: object) -> Auto | None:
    """Return a size by its name."""
    if size is None:
        return None
    if isinstance(size, str) and size in tuple(Auto):
        return Auto(size)
    raise ConfigError(f"auto: expected 'light', 'medium' or 'heavy', found {shown(size)}")


def as_dollars(amount: object) -> Decimal | None:
    """Return an exact amount of money."""
    if amount is None or isinstance(amount, Decimal):
        return amount
    if isinstance(amount, (int, float, str)) and not isinstance(amount, bool):
        try:
            return Decimal(str(amount))
        except InvalidOperation:
            pass
    raise ConfigError(f"max_cost: expected US dollars such as 2.50, found {shown(amount)}")


def _check_sequence(values: object, expected: str) -> None:
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, Mapping)):
        raise ConfigError(f"{expected}, found {shown(values)}")
