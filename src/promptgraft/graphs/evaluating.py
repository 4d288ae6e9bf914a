"""A graph where a single prompt is wanted: in evaluations, gates and tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from promptgraft.adapters.base import PromptResponse, ProviderAdapter, adapter_identity
from promptgraft.errors import ConfigError
from promptgraft.functions import function_identity
from promptgraft.graphs.flow import GraphFlow
from promptgraft.graphs.graph import Graph
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import TextsPrompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import digest, shown
from promptgraft.targets.prompts import address_of


@attrs.frozen
class GraphPrompt(TextsPrompt):
    """Stands for the prompts of a graph: their texts in one prompt, which a graph answers.

    Attributes:
        graph: the graph.
    """

    graph: Graph = attrs.field(kw_only=True)

    @classmethod
    def standing_for(cls, graph: Graph) -> GraphPrompt:
        """Return what stands for a graph; it takes the input of a case."""
        ns, _, key = graph.name.rpartition("/")
        texts = {node: prompt.with_placeholders().text for node, prompt in graph.prompts.items()}
        template = TextsPrompt.of(texts, ns=ns or key, key=key).template
        return cls(template, takes_inputs=True, graph=graph)

    @property
    def prompts(self) -> Mapping[str, Prompt[object]]:
        """The prompts of the graph with the overrides of this one, by ``namespace/key``."""
        if self.overrides_store is None:
            return self.graph.by_address
        return {
            at: attrs.evolve(
                prompt, overrides_store=self.overrides_store, overrides_tag=self.overrides_tag
            )
            for at, prompt in self.graph.by_address.items()
        }

    def render(self, session: SessionProtocol | None = None) -> RenderedPrompt[object]:
        return self._in_force.render(session)

    def with_placeholders(self) -> RenderedPrompt[object]:
        return self._in_force.with_placeholders()

    @property
    def _in_force(self) -> TextsPrompt:
        prompts, own = self.prompts, self.template
        texts = {
            node: prompts[address_of(source)].with_placeholders().text
            for node, source in self.graph.prompts.items()
        }
        return TextsPrompt.of(texts, ns=own.ns, key=own.key)


@attrs.frozen
class GraphAdapter:
    """Answers what stands for a graph; pickles when its flow and its adapters do.

    Attributes:
        graph: the graph.
        adapter: answers nodes that bring no adapter; None where all do.
    """

    graph: Graph
    adapter: ProviderAdapter | None
    _flow: GraphFlow = attrs.field(init=False, repr=False, eq=False)

    @_flow.default
    def _flow_of_graph(self) -> GraphFlow:
        return self.graph.flow_on(self.adapter)

    @property
    def identity(self) -> str:
        """The graph, with what decides its answers."""
        models = [one for one in (self.adapter, *self.graph.adapters.values()) if one is not None]
        names = ", ".join(dict.fromkeys(map(adapter_identity, models)))
        told = digest([dict(self.graph.details), function_identity(self.graph.flow)])
        return f"graph {self.graph.name} {told[:12]} on {names}"

    def evaluate(
        self,
        prompt: Prompt[Any],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[Any]:
        """Have the graph answer.

        Raises:
            ConfigError: ``prompt`` does not stand for a graph.
            FlowError, CandidateError, ProviderError, LimitReachedError: as :meth:`Graph.answer`.
        """
        if not isinstance(prompt, GraphPrompt):
            raise ConfigError(
                f"{self.identity}: expected what stands for it, found {shown(prompt)}"
            )
        tags = session.tags
        return self._flow.answer(
            prompt.prompts,
            prompt.params,
            case=tags.get("case") or tags.get("example", ""),
            session=session,
            deadline=deadline,
        )
