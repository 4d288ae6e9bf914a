"""An immutable mapping, and deep copies of mutable values."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from enum import Enum
from typing import Any, TypeVar, overload

import attrs

from promptgraft.errors import ConfigError, user_errors
from promptgraft.ground.serde import field_names
from promptgraft.ground.text import raised

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class FrozenMap(Mapping[K, V]):
    """A read-only copy of a mapping, in its order.

    Values that cross threads, processes and journals must pickle, hash and not share state;
    ``types.MappingProxyType`` does none of these.
    """

    __slots__ = ("_data",)

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._data: dict[K, V] = dict(items)

    def __getitem__(self, key: K) -> V:
        return self._data[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, key: object) -> bool:
        return key in self._data

    # Delegated for speed: the versions that Mapping derives are many times slower.
    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...
    def get(self, key: K, /, default: object = None) -> object:
        return self._data.get(key, default)

    def keys(self) -> KeysView[K]:
        return self._data.keys()

    def values(self) -> ValuesView[V]:
        return self._data.values()

    def items(self) -> ItemsView[K, V]:
        return self._data.items()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenMap):
            return self._data == other._data
        return self._data == other

    def __hash__(self) -> int:
        return hash(frozenset(self._data.items()))

    def __reduce__(self) -> tuple[type[FrozenMap[K, V]], tuple[dict[K, V]]]:
        return type(self), (self._data,)

    def __repr__(self) -> str:
        return f"FrozenMap({self._data!r})"


_ATOMS = (str, int, float, bool, bytes, type(None))


@attrs.frozen
class _Frozen:
    """A sample of frozen classes, which all share one ``__setattr__``."""


def isolated(value: T, *, where: str) -> T:
    """Return a deep copy of ``value``, or ``value`` itself if it is immutable.

    Raises:
        ConfigError: a part of it cannot be copied; the message begins with ``where``.
    """
    if _is_fixed(value):
        return value
    try:
        return copy.deepcopy(value)
    except user_errors() as error:
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
    """Return a function that yields the parts that decide whether a value is immutable.

    None for a class whose values are mutable.
    """
    if kind in _ATOMS or issubclass(kind, Enum):
        return lambda _: ()
    if issubclass(kind, (tuple, frozenset)):
        return iter
    if issubclass(kind, FrozenMap):
        # Keys can be hashed, and are therefore taken for immutable.
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
