"""Named texts of an agent that can only be called, so that they can be improved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from promptgraft.adapters.base import ProviderAdapter, check_adapter
from promptgraft.agents.adapter import DEFAULT_TURNS, AgentAdapter, OnAgentError
from promptgraft.agents.call import Agent, Delivery
from promptgraft.agents.delivery import InCall
from promptgraft.agents.python import as_agent
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import Placeholders, TextsPrompt
from promptgraft.strict.checks import COUNT, one_of
from promptgraft.targets.texts import as_texts

AGENTS_NS = "agents"
"""The namespace of the prompts of agents, unless another one is given."""


@attrs.frozen
class BlackBox:
    """Named texts of an agent that can only be called.

    They are a prompt of plain sections, each bound to a case, together with an adapter that asks
    the agent; a run takes the object in place of a prompt. Cases need no ``params``.

    Attributes:
        texts: the texts by name. Every character is literal.
        agent: what is asked: a function, or an agent such as ``HttpAgent``.
        delivery: hands the texts over; by default they travel with the call.
        ns: namespace of the prompt.
        key: key of the prompt.
        placeholders: strings that must stay; see ``Texts``.
        frozen: names of texts that are handed over and never changed.
        on_agent_error: what becomes of a rollout whose agent failed: ``zero`` scores 0,
            ``unscored`` leaves it without a score, ``stop`` ends the run.
        user: the model that plays the user of cases with a ``conversation_scenario``.
        max_turns: turns that such a conversation has at most.
        prompt: the prompt: one section for each text.
        adapter: asks the agent.

    Raises:
        ConfigError: an argument is not what it must be, or the texts do not reach the agent.
        InvalidIdentifierError: a name, ``ns`` or ``key`` is no identifier.
        PromptDefinitionError: a text does not hold its placeholder.
    """

    texts: Mapping[str, str] = attrs.field(converter=as_texts)
    agent: Agent | Callable[..., Any] = attrs.field(kw_only=True)
    delivery: Delivery = attrs.field(factory=InCall, kw_only=True)
    ns: str = attrs.field(default=AGENTS_NS, kw_only=True)
    key: str = attrs.field(default="agent", kw_only=True)
    placeholders: Placeholders = attrs.field(default=(), kw_only=True)
    frozen: tuple[str, ...] = attrs.field(default=(), converter=tuple, kw_only=True)
    on_agent_error: OnAgentError = attrs.field(
        default="zero", validator=one_of("zero", "unscored", "stop"), kw_only=True
    )
    user: ProviderAdapter | None = attrs.field(default=None, kw_only=True)
    max_turns: int = attrs.field(default=DEFAULT_TURNS, validator=COUNT, kw_only=True)
    prompt: Prompt[object] = attrs.field(init=False, repr=False)
    adapter: ProviderAdapter = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        agent = as_agent(self.agent)
        if self.user is not None:
            check_adapter(self.user, "user")
        agent.check(self.delivery.kind, tuple(self.texts))
        prompt = TextsPrompt.of(
            self.texts,
            ns=self.ns,
            key=self.key,
            placeholders=self.placeholders,
            frozen=self.frozen,
            takes_cases=True,
        )
        adapter = AgentAdapter(
            agent=agent,
            names=tuple(self.texts),
            delivery=self.delivery,
            on_agent_error=self.on_agent_error,
            user=self.user,
            max_turns=self.max_turns,
        )
        object.__setattr__(self, "prompt", prompt)
        object.__setattr__(self, "adapter", adapter)
