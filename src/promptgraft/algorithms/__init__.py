"""The algorithms that improve a target, found by name.

Anyone may add one: a package registers its subclass of
:class:`promptgraft.search.config.RunConfig` under the entry point group ``promptgraft.algorithms``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from promptgraft.errors import ConfigError
from promptgraft.ground.serde import did_you_mean
from promptgraft.prompt.template import PromptTemplate
from promptgraft.search.config import RunConfig

DEFAULT = "gepa"
"""The algorithm of those who name none."""

_GROUP = "promptgraft.algorithms"
_OWN = {DEFAULT: ("gepa.config", "GepaConfig"), "gradient": ("gradient.config", "GradientConfig")}


def algorithm(name: str = DEFAULT) -> type[RunConfig]:
    """Return the settings of an algorithm, by its name.

    Raises:
        ConfigError: there is none of that name, or it cannot be loaded; lists those that exist.
    """
    if name not in _OWN:
        return _of_another_package(name)
    module, settings = _OWN[name]
    found: type[RunConfig] = getattr(importlib.import_module(f"{__name__}.{module}"), settings)
    return found


def _of_another_package(name: str) -> type[RunConfig]:
    from importlib.metadata import entry_points  # loads much of the standard library

    points = list(entry_points(group=_GROUP, name=name))
    if not points:
        known = sorted({*_OWN, *entry_points(group=_GROUP).names})
        raise ConfigError(
            f"algorithm: there is none called `{name}`{did_you_mean(name, known)}; "
            f"there are {', '.join(known)}"
        )
    try:
        found: object = points[-1].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"algorithm: `{name}` cannot be loaded: {error}") from error
    if not isinstance(found, type) or not issubclass(found, RunConfig):
        raise ConfigError(
            f"algorithm: `{name}` is {points[-1].value}, expected a subclass of RunConfig"
        )
    return found


def shipped_questions() -> Mapping[str, PromptTemplate[object]]:
    """Return the questions of the algorithms that promptgraft brings, by their keys."""
    return {key: one for name in _OWN for key, one in algorithm(name).questions.items()}


__all__ = ["DEFAULT", "algorithm", "shipped_questions"]
