"""Finds additions by name: those of this package, and those of others by entry point."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from promptgraft.algorithms.gepa.additions.base import Addition
from promptgraft.errors import ConfigError
from promptgraft.ground.entry_points import Group
from promptgraft.ground.strict.checks import Kind
from promptgraft.ground.strict.kinds import listed, record_of, without_name
from promptgraft.ground.strict.nodes import Node

_OWN: Mapping[str, str] = {
    "lines": "lines.addition:Lines",
    "whole_prompt": "whole_prompt:WholePrompt",
    "blame": "blame:Blame",
    "history": "history:History",
    "restart": "restart:Restart",
    "shorten": "shorten:Shorten",
}
GROUP = Group("promptgraft.additions", "addition", Addition, _OWN)


def addition_class(name: str) -> type[Addition]:
    """Return an addition by its name.

    Raises:
        ConfigError: there is none of that name, or it cannot be loaded; lists those that exist.
    """
    if name in _OWN:
        module, _, attribute = _OWN[name].partition(":")
        home = importlib.import_module(f"promptgraft.algorithms.gepa.additions.{module}")
        addition_type: type[Addition] = getattr(home, attribute)
        return addition_type
    return GROUP.load(name)


def _read(node: Node) -> Addition | None:
    """Read an addition: its name, or its name with its settings."""
    if not isinstance(node.value, str) and not (
        isinstance(node.value, dict) and len(node.value) == 1
    ):
        node.expected("the name of an addition, or `NAME: {SETTING: ...}`")
        return None
    name = node.value if isinstance(node.value, str) else next(iter(node.value))
    try:
        kind = addition_class(name)
        if isinstance(node.value, str):
            return kind()
        return record_of(kind).read(node.member(name))
    except ConfigError as error:
        node.fault(without_name(str(error), "additions"))
        return None


ADDITIONS_KIND: Kind[object] = listed(
    Kind(
        _read,
        {"anyOf": [{"type": "string"}, {"type": "object", "minProperties": 1, "maxProperties": 1}]},
    ),
    "a list of additions",
)
"""How files write additions: ``[lines, shorten: {margin: 0.02}]``."""
