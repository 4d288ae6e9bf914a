"""Prompt caches: what is marked, in which order calls are made, and what is counted and paid.

The server caches as the providers do: a beginning is in the cache once an answer to it was sent,
if it is long enough, and, for newer models, only where a breakpoint is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import attrs
import pytest

from promptgraft import (
    AnthropicAdapter,
    MarkdownSection,
    ModelPrice,
    OpenAIAdapter,
    Prices,
    Prompt,
    PromptTemplate,
    RetryPolicy,
    Session,
)
from promptgraft.adapters.anthropic import AnthropicProfile
from promptgraft.adapters.base import ModelCalled
from promptgraft.adapters.openai import OpenAIProfile
from promptgraft.errors import TransientProviderError
from promptgraft.prompt import Tool
from servers.anthropic_messages import AnthropicMessages
from servers.behaviour import Answer, Asked, Behaviour, Call, in_turn, says
from servers.loopback import KEY, LoopbackServer
from servers.openai_chat import OpenAIChat
from servers.openai_responses import OpenAIResponses
from servers.provider import Provider

LEAST = 1_024
WORDS = "The customer is asked for the number of the order before anything else is said. "
CASES = [f"case {number}" for number in range(12)]
PRICE = ModelPrice(input=2, cached_input="0.2", cache_write="2.5", output=8)


@attrs.frozen(kw_only=True)
class Host:
    """A model with a cache, and the server that it is behind."""

    protocol: Callable[[], Provider]
    adapter: Callable[..., Any]
    model: str
    options: dict[str, Any]
    pays_for_writes: bool

    def of(self, server: LoopbackServer, **more: Any) -> Any:
        options = {"prices": Prices({self.model: PRICE}), **self.options, **more}
        return self.adapter(self.model, api_key=KEY, base_url=server.base_url, **options)


MARKED = OpenAIProfile(cache_breakpoints=True, cached_from=LEAST)
HOSTS = {
    "anthropic": Host(
        protocol=AnthropicMessages,
        adapter=AnthropicAdapter,
        model="claude-sonnet-5-5",
        options={"profile": AnthropicProfile(prompt_caching=True, cached_from=LEAST)},
        pays_for_writes=True,
    ),
    "responses": Host(
        protocol=OpenAIResponses,
        adapter=OpenAIAdapter,
        model="gpt-6-luna",
        options={"api": "responses", "profile": MARKED},
        pays_for_writes=True,
    ),
    "chat": Host(
        protocol=OpenAIChat,
        adapter=OpenAIAdapter,
        model="gpt-5.6-terra",
        options={
            "api": "chat",
            "profile": attrs.evolve(MARKED, output_limit="max_completion_tokens"),
        },
        pays_for_writes=True,
    ),
    "without breakpoints": Host(
        protocol=OpenAIResponses,
        adapter=OpenAIAdapter,
        model="gpt-5.4-mini",
        options={"api": "responses"},
        pays_for_writes=False,
    ),
}


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest) -> Host:
    return HOSTS[str(request.param)]


@pytest.fixture
def server(host: Host) -> Iterator[LoopbackServer]:
    with serving(host) as running:
        yield running


class Patient:
    """Takes its time with the first request of each candidate, as models do with all."""

    def __init__(self) -> None:
        self._asked: set[str] = set()

    def __call__(self, asked: Asked) -> Behaviour:
        candidate = asked.texts[0]
        is_first = candidate not in self._asked
        self._asked.add(candidate)
        return Behaviour(seconds=0.2 if is_first else 0.0)


def serving(host: Host, **more: Any) -> LoopbackServer:
    options: dict[str, Any] = {"brain": says("fine"), "script": Patient(), **more}
    return LoopbackServer(
        host.protocol(), models=(host.model,), caching=True, cached_from=LEAST, **options
    )


def template(rules: str, *tools: Tool[Any, Any]) -> PromptTemplate[object]:
    return PromptTemplate[object](
        ns="tests",
        key="cached",
        sections=(
            MarkdownSection(title="Rules", key="rules", template=rules, tools=tools),
            MarkdownSection(title="Case", key="case", template="$text"),
        ),
    )


def asked_at_once(adapter: Any, prompt: Prompt[Any], texts: list[str]) -> list[ModelCalled]:
    """Ask about all texts at the same time and return the calls."""
    sessions = [Session() for _ in texts]
    start = threading.Barrier(len(texts))

    def ask(text: str, session: Session) -> None:
        start.wait(10)
        adapter.evaluate(prompt.bind({"text": text}), session=session)

    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(ask, texts, sessions))
    return [call for session in sessions for call in session.select_all(ModelCalled)]


def test_rollouts_of_a_candidate_find_its_beginning_in_the_cache(
    host: Host, server: LoopbackServer
) -> None:
    adapter = host.of(server)
    calls: list[ModelCalled] = []
    for name in ("first", "second"):
        prompt = Prompt(template(f"This is the {name} candidate. {WORDS * 90}"))
        calls += asked_at_once(adapter, prompt, CASES)
    assert server.counts.refused == ()
    beginning = len(WORDS) * 90 // 4
    repeated = beginning * 2 * (len(CASES) - 1)
    assert server.counts.cached_tokens >= 0.8 * repeated
    assert sum(call.usage.cached_tokens for call in calls) == server.counts.cached_tokens


def test_what_is_paid_is_what_the_rule_says(host: Host, server: LoopbackServer) -> None:
    calls = asked_at_once(host.of(server), Prompt(template(WORDS * 90)), CASES)
    [first] = [call for call in calls if not call.usage.cached_tokens]
    others = [call for call in calls if call.usage.cached_tokens]
    assert len({call.usage.cached_tokens for call in others}) == 1
    cached = others[0].usage.cached_tokens
    written = cached if host.pays_for_writes else 0
    for call in others:
        fresh = call.usage.input_tokens - cached
        dollars = 2 * fresh + Decimal("0.2") * cached + 8 * call.usage.output_tokens
        assert call.cost == dollars / 1_000_000
    fresh = first.usage.input_tokens - written
    dollars = 2 * fresh + Decimal("2.5") * written + 8 * first.usage.output_tokens
    assert first.cost == dollars / 1_000_000


def test_short_prompts_do_not_wait_for_each_other(host: Host) -> None:
    with serving(host) as server, ThreadPoolExecutor(3) as pool:
        adapter, prompt = host.of(server), Prompt(template("Be kind."))
        server.hold()
        answers = [
            pool.submit(adapter.evaluate, prompt.bind({"text": text}), session=Session())
            for text in CASES[:3]
        ]
        server.wait_for(3)
        server.release()
        assert [answer.result().text for answer in answers] == ["fine"] * 3
        assert server.counts.cached_tokens == 0


def test_another_call_goes_ahead_if_the_first_one_fails(host: Host) -> None:
    script = in_turn(Behaviour(status=500))
    with serving(host, script=script) as server, ThreadPoolExecutor(3) as pool:
        adapter = host.of(server, policy=RetryPolicy(attempts=1))
        prompt = Prompt(template(WORDS * 90))
        answers = [
            pool.submit(adapter.evaluate, prompt.bind({"text": text}), session=Session())
            for text in CASES[:3]
        ]
        faults = [answer.exception() for answer in answers]
    assert sum(isinstance(fault, TransientProviderError) for fault in faults) == 1
    assert faults.count(None) == 2


@attrs.frozen
class Order:
    number: str


FIND = Tool[Order, str](
    name="find",
    description="Finds an order.",
    params_type=Order,
    result_type=str,
    handler=lambda order: f"order {order.number} is paid",
)


def finding(asked: Asked) -> Answer:
    if asked.results:
        return Answer(text="paid")
    return Answer(calls=(Call("find", '{"number": "7"}'),))


def test_only_prompts_with_tools_are_cached_as_a_whole() -> None:
    host = HOSTS["responses"]
    with serving(host, brain=finding) as server:
        adapter = host.of(server)
        case = {"text": "a long case " * 100}
        plain = adapter.wire.open(Prompt(template(WORDS * 90)).bind(case).render())
        adapter.evaluate(Prompt(template(WORDS * 90, FIND)).bind(case), session=Session())
        first, second = server.asked
    assert server.counts.refused == ()
    assert plain["prompt_cache_options"] == {"mode": "explicit"}
    assert "prompt_cache_options" not in first.body
    assert first.body["prompt_cache_key"] == second.body["prompt_cache_key"]
    assert str(first.body["prompt_cache_key"]).startswith("promptgraft-")
    # The second turn reads all of the first.
    assert server.counts.cached_tokens > (len(WORDS) * 90 + 1_000) // 4


def test_without_marks_a_newer_model_pays_for_writing_what_nothing_reads() -> None:
    host = HOSTS["responses"]
    with serving(host) as server:
        adapter = host.of(server, profile=attrs.evolve(MARKED, cache_breakpoints=False))
        calls = asked_at_once(adapter, Prompt(template(WORDS * 90)), CASES)
    assert server.counts.cached_tokens == 0
    assert all((call.cost or 0) * 1_000_000 > 2 * call.usage.input_tokens for call in calls)


def test_marks_are_for_the_models_and_the_address_that_know_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    rendered = Prompt(template(WORDS * 90)).bind({"text": "x"}).render()
    marked = '"prompt_cache_breakpoint"'
    for model, address, is_marked, least in (
        ("gpt-6-luna", None, True, LEAST),
        ("gpt-5.6-sol", None, True, LEAST),
        ("gpt-5.4-mini", None, False, LEAST),
        ("gpt-3.5-turbo", None, False, 0),
        ("gpt-6-luna", "http://localhost:8000/v1", False, 0),
        ("llama3", "http://localhost:8000/v1", False, 0),
    ):
        adapter = OpenAIAdapter(model, api_key=KEY, base_url=address)
        body = str(adapter.wire.open(rendered)).replace("'", '"')
        assert (marked in body) is is_marked, model
        assert ("prompt_cache_key" in body) is is_marked
        assert adapter.cached_from == least


def test_options_of_the_user_come_first() -> None:
    adapter = OpenAIAdapter(
        "gpt-6-luna",
        api_key=KEY,
        profile=MARKED,
        extra_body={"prompt_cache_key": "mine", "prompt_cache_options": {"ttl": "12h"}},
    )
    body = adapter.wire.open(Prompt(template("Be kind.")).bind({"text": "x"}).render())
    assert body["prompt_cache_key"] == "mine"
    assert body["prompt_cache_options"] == {"ttl": "12h"}
