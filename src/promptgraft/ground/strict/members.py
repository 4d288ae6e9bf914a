"""The members of an object by the keys that are known for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

from promptgraft.ground.serde import did_you_mean
from promptgraft.ground.strict.nodes import Node

_MOST_NAMED = 10
_MOST_UNKNOWN = 100
"""Unknown keys of one object that get a line and a suggestion each; the others are counted."""


def known_members(
    node: Node,
    known: Collection[str],
    *,
    elsewhere: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> dict[str, Node]:
    """Return the members of an object that have a value, by key.

    Unknown and repeated keys are reported. The arguments are those of :func:`record`.
    """
    members: dict[str, Node] = {}
    unknown = 0
    if not isinstance(node.value, dict):
        node.expected("an object")
        return members
    for key, value in node.value.items():
        name = key if aliases is None else aliases.get(snake_case(key), snake_case(key))
        if value is None and aliases is not None:
            continue  # other tools write null for absent values
        if name not in known:
            unknown += 1
            if unknown <= _MOST_UNKNOWN:
                place_of_key = (elsewhere or {}).get(name)
                node.member(key).fault(place_of_key or f"unknown key{_known(name, known)}")
        elif name in members:
            node.member(key).fault(f"repeats `{members[name].path[-1]}`; keep one")
        elif value is not None:
            members[name] = node.member(key)
    if unknown > _MOST_UNKNOWN:
        node.fault(f"{unknown - _MOST_UNKNOWN:,} more unknown keys")
    return members


def snake_case(key: str) -> str:
    """Return ``finalResponse`` as ``final_response``."""
    if key.islower():
        return key
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in key).removeprefix("_")


def _known(name: str, keys: Collection[str]) -> str:
    if near := did_you_mean(name, keys):
        return near
    more = len(keys) - _MOST_NAMED
    listed = ", ".join(f"`{key}`" for key in islice(keys, _MOST_NAMED))
    return f"; known here: {listed}{f' and {more} more' if more > 0 else ''}"
