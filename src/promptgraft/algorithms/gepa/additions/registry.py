"""Finds additions by name: those of this package, and those of others by entry point."""

from __future__ import annotations

from promptgraft.algorithms.gepa.additions.base import Addition
from promptgraft.errors import ConfigError
from promptgraft.ground.entry_points import Group
from promptgraft.ground.strict.checks import Kind
from promptgraft.ground.strict.kinds import listed, record_of, without_name
from promptgraft.ground.strict.nodes import Node

_HERE = __name__.rpartition(".")[0]
_OWN = {
    "lines": f"{_HERE}.lines.addition:Lines",
    "whole_prompt": f"{_HERE}.whole_prompt:WholePrompt",
    "blame": f"{_HERE}.blame:Blame",
    "history": f"{_HERE}.history:History",
    "restart": f"{_HERE}.restart:Restart",
    "shorten": f"{_HERE}.shorten:Shorten",
}
VERSIONS = "addition_versions"
"""The key of a fingerprint with the versions of additions above 1, by name."""
GROUP = Group("promptgraft.additions", "addition", Addition, _OWN)


def _read(node: Node) -> Addition | None:
    """Read an addition: its name, or its name with its settings."""
    if not isinstance(node.value, str) and not (
        isinstance(node.value, dict) and len(node.value) == 1
    ):
        node.expected("the name of an addition, or `NAME: {SETTING: ...}`")
        return None
    name = node.value if isinstance(node.value, str) else next(iter(node.value))
    try:
        kind = GROUP.load(name)
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
