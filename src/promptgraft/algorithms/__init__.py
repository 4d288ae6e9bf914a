"""The algorithms that improve a target, found by name.

Anyone may add one: a package registers its subclass of
:class:`promptgraft.search.config.RunConfig` under the entry point group ``promptgraft.algorithms``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from promptgraft.ground.entry_points import Group
from promptgraft.prompt.template import PromptTemplate
from promptgraft.search.config import RunConfig
from promptgraft.targets.part_kinds import VISIBILITY_QUESTION

DEFAULT = "gepa"
"""The algorithm of those who name none."""

_OWN = {DEFAULT: ("gepa.config", "GepaConfig"), "gradient": ("gradient.config", "GradientConfig")}
_GROUP = Group[RunConfig](
    "promptgraft.algorithms",
    "algorithm",
    RunConfig,  # type: ignore[type-abstract] # only its subclasses are called
    _OWN,
)


def algorithm(name: str = DEFAULT) -> type[RunConfig]:
    """Return the settings of an algorithm, by its name.

    Raises:
        ConfigError: there is none of that name, or it cannot be loaded; lists those that exist.
    """
    if name not in _OWN:
        return _GROUP.load(name)
    module, settings = _OWN[name]
    config_type: type[RunConfig] = getattr(
        importlib.import_module(f"{__name__}.{module}"), settings
    )
    return config_type


def shipped_questions() -> Mapping[str, PromptTemplate[object]]:
    """Return the questions of promptgraft's own algorithms and kinds of parts, by their keys."""
    questions: dict[str, PromptTemplate[object]] = {}
    for name in _OWN:
        questions |= algorithm(name).questions
    return {**questions, VISIBILITY_QUESTION.key: VISIBILITY_QUESTION}


__all__ = ["DEFAULT", "algorithm", "shipped_questions"]
