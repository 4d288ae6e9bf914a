"""Strict reading of data: located values, checks of values, and classes built from data."""

from __future__ import annotations

from typing import Any, TypeVar

from promptgraft.errors import DataFormatError

__all__ = ["check_readable", "structure"]

T = TypeVar("T")


def structure(data: object, kind: type[T], *, where: str) -> T:
    """Build a ``kind`` (an attrs class, tuple, enum, ...) from plain data.

    Nothing is coerced: ``"4"`` is not an integer, ``1`` is not true, and unknown keys are refused.
    ``where`` names the source of the data in a ``DataFormatError``, which has one line per fault.
    """
    from promptgraft.ground.strict import converter  # loads cattrs, which plain prompts do not need

    try:
        return converter.get().structure(data, kind)
    except converter.UNFIT as error:
        faults = converter.describe_all(error)
    # Raised outside of the handler, because errors of cattrs as its context would not pickle.
    raise DataFormatError.of([f"{where}: {fault}" for fault in faults])


def check_readable(kind: Any, *, where: str) -> None:
    """Refuse a type that :func:`structure` cannot build from any data."""
    from promptgraft.ground.strict import converter

    try:
        converter.check_type(kind)
    except (*converter.UNFIT, NameError) as error:
        raise DataFormatError(f"{where}: {converter.describe(error)}") from None
