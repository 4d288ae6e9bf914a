"""Kinds without the settings that reach outside, to read what strangers send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from promptgraft.ground.strict.checks import Kind, Reach

T = TypeVar("T")

Parts: TypeAlias = "Mapping[str, Kind[Any]]"


def values_only(kind: Kind[T]) -> Kind[T]:
    """Return a kind without the settings that reach outside, to read what strangers send.

    A key that reaches outside is refused without a look at its value. An object that needs such a
    key, and a list or a choice of nothing else, are refused as a whole.
    """
    if kind.reach is not None:
        return closed(kind.reach)
    if kind.rebuild is None:
        return kind
    return kind.rebuild({place: values_only(part) for place, part in kind.parts.items()})


def closed(reach: Reach) -> Kind[Any]:
    """Return a kind that refuses every value, without showing it."""
    return Kind(lambda node: node.fault(outside(reach)), {"not": {}}, reach=reach)


def outside(reach: Reach) -> str:
    """Return the message for a setting that only trusted files may give."""
    return f"names {reach}, which only the project file may; set it there"


def around(
    part: Kind[Any], make: Callable[[Kind[Any]], Kind[Any]]
) -> tuple[Parts, Callable[[Parts], Kind[Any]]]:
    """Return parts and rebuilding of a kind around a single one, which it needs."""

    def rebuild(parts: Parts) -> Kind[Any]:
        return parts["*"] if parts["*"].reach is not None else make(parts["*"])

    return {"*": part}, rebuild
