"""Teachers: a prompt or a graph that provides the missing ground truth of cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from promptgraft.adapters.base import ProviderAdapter, adapter_identity, check_adapter
from promptgraft.errors import ConfigError
from promptgraft.evals.binding import ParamsOf
from promptgraft.ground.functions import function_identity
from promptgraft.ground.serde import Json, digest, shown
from promptgraft.prompt.template import Prompt
from promptgraft.targets.prompts import PromptSet, StandIn, address_of


def _as_prompt(prompt: Prompt[Any] | PromptSet) -> Prompt[Any] | PromptSet:
    return (isinstance(prompt, PromptSet) and prompt.stand_in()) or prompt


@attrs.frozen
class Teacher:
    """Answers the cases of a run that have no ``expected``, once, before its first rollout.

    Attributes:
        prompt: a prompt, bound to each case; or a graph, whose flow is called with its input.
        adapter: answers the prompt; may be omitted for a graph whose nodes have adapters.
        params: returns the prompt's parameters for a case; without it a text is bound to the only
            open placeholder, and an object to the placeholders of its names.

    Raises:
        ConfigError: an argument is invalid.
    """

    prompt: Prompt[Any] = attrs.field(converter=_as_prompt)
    adapter: ProviderAdapter | None = None
    params: ParamsOf | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        prompt: object = self.prompt
        if not isinstance(prompt, Prompt):
            raise ConfigError(f"teacher: expected a Prompt or a Graph, found {shown(prompt)}")
        if self.adapter is not None or not isinstance(prompt, StandIn):
            check_adapter(self.adapter, "teacher: adapter")

    @property
    def asked(self) -> ProviderAdapter:
        """The adapter that answers, or the graph on top of it."""
        if isinstance(self.prompt, StandIn):
            return self.prompt.asked_on(self.adapter)
        assert self.adapter is not None  # noqa: S101 - checked when it was made
        return self.adapter

    @property
    def models(self) -> tuple[ProviderAdapter, ...]:
        """The adapters that it uses."""
        node_adapters = (
            self.prompt.graph.adapters.values() if isinstance(self.prompt, StandIn) else ()
        )
        return tuple(adapter for adapter in (self.adapter, *node_adapters) if adapter is not None)

    def answered_by(self, adapter: ProviderAdapter) -> Teacher:
        """Return the teacher with ``adapter`` in place of all its adapters."""
        prompt = self.prompt
        if isinstance(prompt, StandIn):
            prompt = attrs.evolve(prompt, graph=prompt.graph.answered_by(adapter))
        return attrs.evolve(self, prompt=prompt, adapter=adapter)

    @property
    def name(self) -> str:
        """The prompt or graph and its adapter, as cases name their teacher."""
        teacher_identity = adapter_identity(self.asked)
        is_graph = isinstance(self.prompt, StandIn)
        return teacher_identity if is_graph else f"{address_of(self.prompt)} on {teacher_identity}"

    @property
    def identity(self) -> Mapping[str, Json]:
        """What decides its answers."""
        texts, params = self.prompt.with_placeholders(), self.params
        shown_texts = [
            texts.text,
            texts.output_schema,
            [shown(param) for param in self.prompt.params],
        ]
        return {
            "name": self.name,
            "prompt": digest(shown_texts),
            "params": None if params is None else function_identity(params),
        }
