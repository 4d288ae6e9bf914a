"""Finds additions by name: those of this package, and those of others by entry point."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from promptgraft.algorithms.gepa.additions.base import Addition
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import did_you_mean
from promptgraft.ground.strict.checks import Kind
from promptgraft.ground.strict.kinds import listed, record_of, without_name
from promptgraft.ground.strict.nodes import Node

GROUP = "promptgraft.additions"
"""The entry point group under which a package registers a subclass of :class:`Addition`."""

_OWN: Mapping[str, str] = {
    "lines": "lines.addition:Lines",
    "whole_prompt": "whole_prompt:WholePrompt",
    "blame": "blame:Blame",
    "history": "history:History",
    "shorten": "shorten:Shorten",
}


def addition_class(name: str) -> type[Addition]:
    """Return an addition by its name.

    Raises:
        ConfigError: there is none of that name, or it cannot be loaded; lists those that exist.
    """
    if name in _OWN:
        module, _, attribute = _OWN[name].partition(":")
        home = importlib.import_module(f"promptgraft.algorithms.gepa.additions.{module}")
        own: type[Addition] = getattr(home, attribute)
        return own
    return _of_another_package(name)


def addition_named(name: str) -> Addition:
    """Return an addition by its name, with the settings that it has by default.

    Raises:
        ConfigError: there is none of that name, or it cannot be loaded; lists those that exist.
    """
    return addition_class(name)()


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


def names() -> list[str]:
    """Return the names of all installed additions."""
    from importlib.metadata import entry_points  # loads much of the standard library

    return sorted({*_OWN, *entry_points(group=GROUP).names})


def _of_another_package(name: str) -> type[Addition]:
    from importlib.metadata import entry_points  # loads much of the standard library

    points = list(entry_points(group=GROUP, name=name))
    if not points:
        known = names()
        raise ConfigError(
            f"additions: there is none called `{name}`{did_you_mean(name, known)}; "
            f"there are {', '.join(known)}"
        )
    try:
        loaded: object = points[-1].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"additions: `{name}` cannot be loaded: {error}") from error
    if not isinstance(loaded, type) or not issubclass(loaded, Addition):
        raise ConfigError(
            f"additions: `{name}` is {points[-1].value}, expected a subclass of Addition"
        )
    return loaded
