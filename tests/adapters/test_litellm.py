"""Models through litellm: what it is asked, what it costs, and what becomes of its errors."""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Iterator
from decimal import Decimal

import pytest

from image_files import picture
from promptgraft import (
    MarkdownSection,
    ModelPrice,
    Prices,
    Prompt,
    PromptTemplate,
    RetryPolicy,
    Session,
    Usage,
)
from promptgraft.adapters.base import ModelCalled, evaluated
from promptgraft.adapters.litellm import LiteLLMAdapter
from promptgraft.adapters.named import named_adapter
from promptgraft.errors import (
    ConfigError,
    PermanentProviderError,
    PromptgraftError,
    PromptTooLongError,
    RateLimitedError,
    RejectedRequestError,
    TransientProviderError,
)
from servers.behaviour import Behaviour, Break, Fault, always, says
from servers.loopback import KEY, LoopbackServer
from servers.openai_chat import OpenAIChat

IS_THERE = importlib.util.find_spec("litellm") is not None
needs_litellm = pytest.mark.skipif(not IS_THERE, reason="litellm is not installed")
MODEL = "gpt-4.1-mini"


def prompt() -> Prompt[object]:
    section = MarkdownSection(title="Task", key="task", template="Say it.")
    return Prompt(PromptTemplate[object](ns="tests", key="litellm", sections=(section,)))


def adapter(server: LoopbackServer, prices: Prices | None = None) -> LiteLLMAdapter:
    return LiteLLMAdapter(
        f"openai/{MODEL}",
        api_key=KEY,
        base_url=server.base_url,
        max_output_tokens=50,
        prices=prices or Prices(),
        policy=RetryPolicy(attempts=2, wait_initial=0.001, wait_max=0.002),
    )


def server_that(behaviour: Behaviour) -> LoopbackServer:
    return LoopbackServer(OpenAIChat(), brain=says("it"), script=always(behaviour), models=[MODEL])


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with server_that(Behaviour()) as server:
        yield server


@needs_litellm
def test_a_model_answers_with_tokens_and_its_listed_price(server: LoopbackServer) -> None:
    session, model = Session(), adapter(server)
    assert evaluated(model, prompt(), session=session).text == "it"
    [call] = session.select_all(ModelCalled)
    # 0.40 and 1.60 US dollars for a million tokens.
    sent, received = call.usage.input_tokens, call.usage.output_tokens
    assert call.cost == (sent * Decimal("0.4") + received * Decimal("1.6")) / 1_000_000
    assert call.cost == model.price_of(call.usage)
    assert server.asked[0].body["max_tokens"] == 50
    own = adapter(server, Prices({f"openai/{MODEL}": ModelPrice(input=1, output=1)}))
    assert own.price_of(Usage(input_tokens=500_000, output_tokens=500_000)) == 1
    nobody = LiteLLMAdapter("groq/no-such-model", api_key=KEY)
    assert nobody.price_of(Usage(input_tokens=1)) is None


@needs_litellm
def test_it_passes_images_on(server: LoopbackServer) -> None:
    photo = picture()
    section = MarkdownSection(title="Photo", key="photo", template="$photo")
    template = PromptTemplate[object](ns="tests", key="litellm", sections=(section,))
    evaluated(adapter(server), Prompt(template).bind({"photo": photo}), session=Session())
    sent = json.dumps(server.asked[0].body["messages"])
    assert f"data:image/png;base64,{base64.b64encode(photo.read()).decode()}" in sent


FAULTS: dict[str, tuple[Behaviour, type[PromptgraftError], int]] = {
    "key": (Behaviour(status=401), PermanentProviderError, 1),
    "forbidden": (Behaviour(status=403), PermanentProviderError, 1),
    "model": (Behaviour(status=404), PermanentProviderError, 1),
    "request": (Behaviour(status=400), RejectedRequestError, 1),
    "limit": (Behaviour(status=429), RateLimitedError, 2),
    "far limit": (
        Behaviour(status=429, headers={"retry-after": "3600"}),
        RateLimitedError,
        1,
    ),
    "server": (Behaviour(status=500), TransientProviderError, 2),
    "overloaded": (Behaviour(status=503), TransientProviderError, 2),
    "connection": (Behaviour(breaks=Break.BEFORE_HEADERS), TransientProviderError, 2),
    "length": (
        Behaviour(
            status=400,
            fault=Fault(
                status=400,
                kind="invalid_request_error",
                message="This model's maximum context length is 128000 tokens.",
                code="context_length_exceeded",
            ),
        ),
        PromptTooLongError,
        1,
    ),
}


@needs_litellm
@pytest.mark.parametrize("case", FAULTS)
def test_its_errors_are_faults_as_those_of_any_model(case: str) -> None:
    behaviour, error, requests = FAULTS[case]
    session = Session()
    with server_that(behaviour) as server:
        with pytest.raises(error) as raised:
            evaluated(adapter(server), prompt(), session=session)
        assert server.counts.requests == requests
    assert KEY not in str(raised.value)
    assert [call.requests for call in session.select_all(ModelCalled)] == [requests]


@pytest.mark.skipif(IS_THERE, reason="litellm is installed")
def test_the_extra_is_named_where_it_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"needs the package `litellm`.*promptgraft\[litellm\]"):
        named_adapter("litellm/groq/llama-3.3-70b-versatile", "model")
