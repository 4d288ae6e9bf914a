"""Copies of what users hand over, so that no use of it changes what another one sees."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, TypeVar

import attrs

from promptgraft.errors import ConfigError
from promptgraft.frozenmap import FrozenMap
from promptgraft.serde import field_names
from promptgraft.text import raised

T = TypeVar("T")

_ATOMS = (str, int, float, bool, bytes, type(None))


@attrs.frozen
class _Frozen:
    """All frozen classes of attrs refuse changes with the function that this one has."""


def isolated(value: T, *, where: str) -> T:
    """Return a deep copy of ``value``, or ``value`` itself where nothing can change it.

    Raises:
        ConfigError: something in it cannot be copied; begins with ``where``.
    """
    if _is_fixed(value):
        return value
    try:
        return copy.deepcopy(value)
    except Exception as error:  # whatever a class of the user raises
        raise ConfigError(
            f"{where}: every use needs a copy, and copying raised {raised(error)}; use plain data "
            "or give the class a `__deepcopy__`"
        ) from error


def _is_fixed(value: object) -> bool:
    kind: Any = type(value)
    parts_of = _parts_of(kind)
    return parts_of is not None and all(map(_is_fixed, parts_of(value)))


@functools.cache
def _parts_of(kind: type[Any]) -> Callable[[Any], Iterable[object]] | None:
    """Return what takes apart a value that nothing can change if nothing can change its parts.

    None for a class whose values can change.
    """
    if kind in _ATOMS or issubclass(kind, Enum):
        return lambda _: ()
    if issubclass(kind, (tuple, frozenset)):
        return iter
    if issubclass(kind, FrozenMap):
        return FrozenMap.values
    if not _is_frozen(kind):
        return None
    names = field_names(kind) or ()
    return lambda value: [getattr(value, name) for name in names]


def _is_frozen(kind: type[Any]) -> bool:
    if attrs.has(kind):
        return kind.__setattr__ is _Frozen.__setattr__
    params = getattr(kind, "__dataclass_params__", None)
    return params is not None and bool(params.frozen)
