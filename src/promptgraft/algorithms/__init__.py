"""The algorithms that improve a target, found by name.

Anyone may add one: a package registers its subclass of
:class:`promptgraft.search.config.RunConfig` under the entry point group ``promptgraft.algorithms``.
"""

from __future__ import annotations

from collections.abc import Mapping

from promptgraft.ground.entry_points import Group
from promptgraft.prompt.template import PromptTemplate
from promptgraft.search.config import RunConfig
from promptgraft.targets.part_kinds import VISIBILITY_QUESTION

DEFAULT = "gepa"
"""The algorithm of those who name none."""

SHIPPED = {
    DEFAULT: f"{__name__}.gepa.config:GepaConfig",
    "gradient": f"{__name__}.gradient.config:GradientConfig",
}
_GROUP = Group[RunConfig](
    "promptgraft.algorithms",
    "algorithm",
    RunConfig,  # type: ignore[type-abstract] # only its subclasses are called
    SHIPPED,
)


def algorithm(name: str = DEFAULT) -> type[RunConfig]:
    """Return the settings of an algorithm, by its name.

    Raises:
        ConfigError: there is none of that name, or it cannot be loaded; lists those that exist.
    """
    return _GROUP.load(name)


def shipped_questions() -> Mapping[str, PromptTemplate[object]]:
    """Return the questions of promptgraft's own algorithms and kinds of parts, by their keys."""
    questions: dict[str, PromptTemplate[object]] = {}
    for name in SHIPPED:
        questions |= algorithm(name).questions
    return {**questions, VISIBILITY_QUESTION.key: VISIBILITY_QUESTION}


__all__ = ["DEFAULT", "SHIPPED", "algorithm", "shipped_questions"]
