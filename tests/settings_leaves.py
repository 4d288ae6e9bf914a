"""Settings of tests written flat: each goes into the group that has it."""

from __future__ import annotations

from typing import Any, TypeVar

import attrs

from promptgraft.algorithms.gepa import (
    Addition,
    Blame,
    GepaConfig,
    History,
    Lines,
    Shorten,
    WholePrompt,
)
from promptgraft.algorithms.gepa.earlier import FORMER, additions_of
from promptgraft.search.config import RunConfig
from promptgraft.search.settings import groups_of

ConfigT = TypeVar("ConfigT", bound=RunConfig)

_GROUPS = groups_of(GepaConfig)
_GROUP_OF = {field.name: group for group, kind in _GROUPS.items() for field in attrs.fields(kind)}


_ADDITIONS: dict[str, type[Addition]] = {
    one.name: one for one in (Blame, History, Lines, Shorten, WholePrompt)
}


def grouped(**leaves: Any) -> dict[str, Any]:
    """Return settings with each leaf, such as ``max_tokens=9``, in its group.

    Additions may be written as leaves of the strategy, as in earlier versions.
    """
    if any(name in leaves for name in FORMER):
        former = [_ADDITIONS[name](**given) for name, given in additions_of(leaves).items()]
        choice = leaves.get("module_choice", "blamed")
        leaves = {name: value for name, value in leaves.items() if name not in FORMER}
        leaves = {"additions": former, **leaves}
        if choice != "blamed":
            leaves["module_choice"] = choice
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
