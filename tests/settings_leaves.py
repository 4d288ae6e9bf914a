"""Settings of tests written flat: each goes into the group that has it."""

from __future__ import annotations

from typing import Any, TypeVar

import attrs

from promptgraft.algorithms.gepa import GepaConfig
from promptgraft.search.config import RunConfig
from promptgraft.search.settings import groups_of

ConfigT = TypeVar("ConfigT", bound=RunConfig)

_GROUPS = groups_of(GepaConfig)
_GROUP_OF = {field.name: group for group, kind in _GROUPS.items() for field in attrs.fields(kind)}


def grouped(**leaves: Any) -> dict[str, Any]:
    """Return settings with each leaf, such as ``max_tokens=9``, in its group."""
    flat, groups = _parted(leaves)
    return flat | {group: _GROUPS[group](**given) for group, given in groups.items()}


def evolved(config: ConfigT, **leaves: Any) -> ConfigT:
    """Return settings with other values of some leaves."""
    flat, groups = _parted(leaves)
    changed = {
        group: attrs.evolve(getattr(config, group), **given) for group, given in groups.items()
    }
    return attrs.evolve(config, **flat, **changed)


def _parted(leaves: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    flat: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    for name, value in leaves.items():
        (groups.setdefault(_GROUP_OF[name], {}) if name in _GROUP_OF else flat)[name] = value
    return flat, groups
