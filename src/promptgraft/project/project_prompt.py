"""A prompt, or a graph of prompts, of a project."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.ground.yaml_text import YamlPath
from promptgraft.overrides.base_store import InMemoryPromptOverridesStore
from promptgraft.overrides.types import PromptOverride
from promptgraft.project.files import PromptSource
from promptgraft.prompt.rendering import values_of
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import takes_cases
from promptgraft.targets.part import named_in
from promptgraft.targets.prompts import PromptSet, StandIn, address_of, name_of, prompts_of


@attrs.frozen(kw_only=True)
class ProjectPrompt:
    """A prompt of a project, or a graph of prompts.

    Attributes:
        name: its name in the project file.
        prompt: the source, without a store; for a graph, a prompt that stands for all of its
            prompts.
        source: the files that a winner can be written back to; None for a prompt in Python.
        graph: the graph; None for a prompt.
    """

    name: str
    prompt: Prompt[object]
    source: PromptSource | None = None
    graph: PromptSet | None = None

    @property
    def place(self) -> YamlPath:
        """Its place in the project file."""
        return ("prompts" if self.graph is None else "graphs", self.name)

    @property
    def subject(self) -> Prompt[object] | PromptSet:
        """What a run improves."""
        return self.graph or self.prompt

    @property
    def prompts(self) -> tuple[Prompt[object], ...]:
        """The prompts whose parts may change, in the order of their addresses."""
        return tuple(prompts_of(self.subject).values())

    @property
    def answers_itself(self) -> bool:
        """Whether the prompt brings its own agent, as a BAML function does."""
        return getattr(self.source, "agent", None) is not None

    @property
    def address(self) -> str:
        """Its name in runs: ``namespace/key`` for a prompt."""
        return name_of(self.subject)

    def part_name(self, prompt: Prompt[object], part: str) -> str:
        """Return what ``describe`` and runs call a part of one of the prompts."""
        if self.graph is None:
            return part
        address = address_of(prompt)
        names = {each.part.name: each.name for each in self.graph.parts if each.address == address}
        return names.get(part) or named_in(address, part)

    def answered_by(self, adapter: ProviderAdapter) -> ProviderAdapter:
        """Return the adapter that answers :attr:`prompt` with the model ``adapter``."""
        return self.prompt.asked_on(adapter) if isinstance(self.prompt, StandIn) else adapter

    @property
    def placeholders(self) -> frozenset[str] | None:
        """The names that the prompt reads from a case; none for agents.

        None for graphs, whose code takes what it needs.
        """
        if self.graph is not None:
            return None
        if takes_cases(self.prompt):
            return frozenset()
        walked = self.prompt.template.walked
        bound = {name for param in self.prompt.params for name in values_of(param)}
        reads = {name for _, section in walked for name in section.source.reads}
        return frozenset(reads - bound)

    def with_overrides(self, overrides: Sequence[PromptOverride]) -> Prompt[object]:
        """Return :attr:`prompt` with overrides that share one tag."""
        store = InMemoryPromptOverridesStore(overrides)
        return attrs.evolve(self.prompt, overrides_store=store, overrides_tag=overrides[0].tag)
