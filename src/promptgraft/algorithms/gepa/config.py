"""GEPA as an algorithm: its settings, its questions and its search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from promptgraft.algorithms.gepa.prompts import META_PROMPTS
from promptgraft.algorithms.gepa.search import GepaSearch
from promptgraft.algorithms.gepa.settings import GepaSettings
from promptgraft.algorithms.gepa.sizes import longest_question
from promptgraft.prompt.template import PromptTemplate
from promptgraft.search.algorithm import Kit, Questions
from promptgraft.targets.base import Target


@attrs.frozen(kw_only=True)
class GepaConfig(GepaSettings):
    """What a GEPA run does.

    Its settings are those of every run (:class:`promptgraft.search.config.RunConfig`) and those of
    :class:`promptgraft.algorithms.gepa.settings.GepaSettings`.

    Raises:
        ConfigError: naming the field, what was expected and what was found.
    """

    algorithm: ClassVar[str] = "gepa"
    questions: ClassVar[Mapping[str, PromptTemplate[object]]] = {
        key.value: template for key, template in META_PROMPTS.items()
    }

    def search(self, kit: Kit) -> GepaSearch:
        return GepaSearch(self, kit)

    def longest_question(self, target: Target, questions: Questions, *, answer: int | None) -> int:
        return longest_question(target, self, questions, answer=answer)
