"""The prompt and the adapter that stand for a graph where one prompt is expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from promptgraft.adapters.base import PromptResponse, ProviderAdapter, adapter_identity
from promptgraft.errors import ConfigError
from promptgraft.graphs.flow import GraphRunner
from promptgraft.graphs.graph import Graph
from promptgraft.ground.functions import function_identity
from promptgraft.ground.serde import digest, shown
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import TextsPrompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol
from promptgraft.targets.prompts import address_of


@attrs.frozen
class GraphPrompt(TextsPrompt):
    """Stands for the prompts of a graph: one prompt with the texts of all nodes.

    Attributes:
        graph: the graph.
    """

    graph: Graph = attrs.field(kw_only=True)

    @classmethod
    def standing_for(cls, graph: Graph) -> GraphPrompt:
        """Return the prompt that stands for a graph; it is bound to the input of a case."""
        template = _texts_of(graph, graph.by_address).template
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
        return _texts_of(self.graph, self.prompts).render(session)

    def with_placeholders(self) -> RenderedPrompt[object]:
        return _texts_of(self.graph, self.prompts).with_placeholders()


def _texts_of(graph: Graph, prompts: Mapping[str, Prompt[object]]) -> TextsPrompt:
    """Return the texts of a graph's nodes as one prompt; ``prompts`` are by their addresses."""
    ns, _, key = graph.name.rpartition("/")
    texts = {
        node: prompts[address_of(source)].with_placeholders().text
        for node, source in graph.prompts.items()
    }
    return TextsPrompt.of(texts, ns=ns or key, key=key)


@attrs.frozen
class GraphAdapter:
    """Answers a :class:`GraphPrompt`; picklable if its flow and its adapters are.

    Attributes:
        graph: the graph.
        adapter: answers the nodes that have no adapter of their own; None if all have one.
    """

    kept_whole: ClassVar[bool] = False

    graph: Graph
    adapter: ProviderAdapter | None
    _flow: GraphRunner = attrs.field(init=False, repr=False, eq=False)

    @_flow.default
    def _flow_of_graph(self) -> GraphRunner:
        return self.graph.flow_on(self.adapter)

    def check_prompt(self, rendered: RenderedPrompt[object]) -> None:
        """Raise a ``ConfigError`` if the adapter of a node cannot answer its prompt."""
        del rendered  # the texts of all nodes
        self._flow.check_nodes(self.graph.by_address)

    @property
    def identity(self) -> str:
        """The graph, with everything that determines its answers."""
        models = [
            adapter
            for adapter in (self.adapter, *self.graph.adapters.values())
            if adapter is not None
        ]
        names = ", ".join(dict.fromkeys(map(adapter_identity, models)))
        graph_digest = digest([dict(self.graph.details), function_identity(self.graph.flow)])
        return f"graph {self.graph.name} {graph_digest[:12]} on {names}"

    def evaluate(
        self,
        prompt: Prompt[Any],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[Any]:
        """Answer with the graph.

        Raises:
            ConfigError: ``prompt`` is not a :class:`GraphPrompt`.
            FlowError, CandidateError, ProviderError, LimitReachedError: as :meth:`Graph.answer`.
        """
        if not isinstance(prompt, GraphPrompt):
            raise ConfigError(f"{self.identity}: expected a GraphPrompt, found {shown(prompt)}")
        tags = session.tags
        return self._flow.answer(
            prompt.prompts,
            prompt.params,
            case=tags.get("case") or tags.get("example", ""),
            session=session,
            deadline=deadline,
        )
