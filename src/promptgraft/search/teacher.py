"""What gives cases a ground truth that have none: a prompt or a graph, and what answers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from promptgraft.adapters.base import ProviderAdapter, adapter_identity, check_adapter
from promptgraft.errors import ConfigError
from promptgraft.evals.attempt import ParamsOf
from promptgraft.functions import function_identity
from promptgraft.graphs.flow import GraphAdapter, GraphPrompt
from promptgraft.graphs.graph import Graph
from promptgraft.prompt.template import Prompt
from promptgraft.serde import Json, digest, shown
from promptgraft.targets.prompts import address_of


def _as_prompt(given: Prompt[Any] | Graph) -> Prompt[Any]:
    return GraphPrompt.standing_for(given) if isinstance(given, Graph) else given


@attrs.frozen
class Teacher:
    """Answers the cases of a run that have no ``expected``, once, before its first rollout.

    Attributes:
        prompt: a prompt, bound to each case; or a graph, whose flow is called with its input.
        adapter: answers it; may be left out for a graph whose nodes bring their adapters.
        params: makes the parameters of the prompt of a case; without it a text goes to the one
            placeholder that is open, and an object to the placeholders of its names.

    Raises:
        ConfigError: an argument is not what it must be.
    """

    prompt: Prompt[Any] = attrs.field(converter=_as_prompt)
    adapter: ProviderAdapter | None = None
    params: ParamsOf | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        given: object = self.prompt
        if not isinstance(given, Prompt):
            raise ConfigError(f"teacher: expected a Prompt or a Graph, found {shown(given)}")
        if self.adapter is not None or not isinstance(given, GraphPrompt):
            check_adapter(self.adapter, "teacher: adapter")

    @property
    def asked(self) -> ProviderAdapter:
        """What answers: the adapter, or the graph on it."""
        if isinstance(self.prompt, GraphPrompt):
            return GraphAdapter(self.prompt.graph, self.adapter)
        assert self.adapter is not None  # noqa: S101 - checked when it was made
        return self.adapter

    @property
    def models(self) -> tuple[ProviderAdapter, ...]:
        """The adapters that it is answered by."""
        own = self.prompt.graph.adapters.values() if isinstance(self.prompt, GraphPrompt) else ()
        return tuple(one for one in (self.adapter, *own) if one is not None)

    def answered_by(self, adapter: ProviderAdapter) -> Teacher:
        """Return the same with ``adapter`` in the place of each one that answers it."""
        prompt = self.prompt
        if isinstance(prompt, GraphPrompt):
            prompt = attrs.evolve(prompt, graph=prompt.graph.answered_by(adapter))
        return attrs.evolve(self, prompt=prompt, adapter=adapter)

    @property
    def name(self) -> str:
        """The prompt or graph, and what answers it, as cases name their teacher."""
        asked = adapter_identity(self.asked)
        is_graph = isinstance(self.prompt, GraphPrompt)
        return asked if is_graph else f"{address_of(self.prompt)} on {asked}"

    @property
    def identity(self) -> Mapping[str, Json]:
        """What decides its answers."""
        texts, params = self.prompt.with_placeholders(), self.params
        told = [texts.text, texts.output_schema, [shown(one) for one in self.prompt.params]]
        return {
            "name": self.name,
            "prompt": digest(told),
            "params": None if params is None else function_identity(params),
        }
