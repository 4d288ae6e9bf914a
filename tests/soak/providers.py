"""Hostile servers: whatever a provider sends is an answer, or a typed error."""

from __future__ import annotations

import contextlib
import functools
import json
import random
from pathlib import Path

from promptgraft import MarkdownSection, Prompt, PromptTemplate, Session
from promptgraft.adapters.anthropic import AnthropicAdapter
from promptgraft.adapters.base import evaluated
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.adapters.openai import OpenAIAdapter
from servers.anthropic_messages import AnthropicMessages
from servers.behaviour import Answer, Asked, Behaviour, Break, says
from servers.loopback import KEY, MODEL, LoopbackServer
from servers.openai_chat import OpenAIChat
from servers.provider import Tokens
from soak.hostile import damaged, mutated, text

ONCE = RetryPolicy(attempts=1, timeout=5.0)
PROMPT: Prompt[str] = Prompt(
    PromptTemplate[str](
        ns="soak",
        key="servers",
        sections=(MarkdownSection(title="Task", key="task", template="Say something."),),
        output_type=str,
    )
)
# A connection that hangs is only given up when the time is, which takes a second.
BREAKS = [one for one in Break if one not in {Break.HANGS, Break.HANGS_AFTER_HEADERS, Break.DRIPS}]
STATUSES = (200, 200, 200, 200, 302, 400, 401, 404, 413, 429, 500, 529, 999)
KINDS = ("application/json", "text/html", "application/json; charset=hex")
HEADERS = ("content-type", "retry-after", "content-encoding", "location", "set-cookie", "date")


class Hostile:
    """A server that answers as the present trial wants it, and what asks it."""

    def __init__(self, provider: OpenAIChat | AnthropicMessages) -> None:
        self.chance = random.Random(0)
        self._provider = provider
        server = LoopbackServer(provider, brain=says("fine"), script=self._behaviour)
        _OPEN.enter_context(server)
        kinds = {"openai": OpenAIAdapter, "anthropic": AnthropicAdapter}
        self.adapter = kinds[provider.name](
            MODEL, api_key=KEY, base_url=server.base_url, policy=ONCE, timeout=2.0
        )

    def _behaviour(self, asked: Asked) -> Behaviour:
        chance = self.chance
        answer = Answer(text=text(chance) if chance.random() < 0.5 else "fine")
        body = self._provider.answer_body(asked, answer, Tokens(sent=3, received=2))
        if chance.random() < 0.2:
            fault = self._provider.fault(chance.choice((400, 429, 500)))
            body = self._provider.fault_body(fault, "request-1")
        sent = json.dumps(mutated(body, chance) if chance.random() < 0.8 else body).encode()
        return Behaviour(
            status=chance.choice(STATUSES),
            headers={chance.choice(HEADERS): _header(chance) for _ in range(chance.randrange(3))},
            body=damaged(sent, chance) if chance.random() < 0.3 else sent,
            content_type=chance.choice(KINDS),
            breaks=chance.choice(BREAKS) if chance.random() < 0.1 else Break.NOWHERE,
            chunked=chance.random() < 0.3,
        )


def _header(chance: random.Random) -> str:
    return "".join(one for one in text(chance)[:200] if " " < one <= "~")


_OPEN = contextlib.ExitStack()


def close() -> None:
    """End the servers of this process, which could not end otherwise."""
    _hostile.cache_clear()
    _OPEN.close()


@functools.cache
def _hostile(name: str) -> Hostile:
    return Hostile(OpenAIChat() if name == "openai" else AnthropicMessages())


def providers(chance: random.Random, folder: Path) -> None:
    """Ask a server that answers anything."""
    del folder
    hostile = _hostile(chance.choice(("openai", "anthropic")))
    hostile.chance = chance
    response = evaluated(hostile.adapter, PROMPT, session=Session())
    assert isinstance(response.text, str)
    response.text.encode()
    assert min(response.usage.input_tokens, response.usage.output_tokens) >= 0
