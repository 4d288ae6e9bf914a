"""What comes back from a server that means no good: keys, cookies, nothing at all."""

from __future__ import annotations

import base64
import json
import socket
from typing import Any
from urllib.parse import quote

import attrs
import pytest

from promptgraft import MarkdownSection, Prompt, PromptTemplate, Session
from promptgraft.adapters.anthropic import AnthropicAdapter
from promptgraft.adapters.base import ModelCalled, PromptExecuted, ToolInvoked
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.adapters.openai import OpenAIAdapter
from promptgraft.errors import ConfigError, PermanentProviderError, ToolRoundsError
from promptgraft.prompt import Tool
from servers.anthropic_messages import AnthropicMessages
from servers.behaviour import Answer, Behaviour, Call, always, says
from servers.loopback import KEY, MODEL, LoopbackServer
from servers.openai_chat import OpenAIChat

FAMILIES = [
    pytest.param(AnthropicAdapter, AnthropicMessages, id="anthropic"),
    pytest.param(OpenAIAdapter, OpenAIChat, id="openai"),
]
BEARER = {"Authorization": f"Bearer {KEY}"}
PASTED = "sk-proj-abcdefghijklmnop0123456789"


@attrs.frozen
class Nothing:
    """No parameters."""


NOTHING = Tool[Nothing, str](
    name="nothing", description="Does nothing.", params_type=Nothing, result_type=str
)


def question(*tools: Tool[Any, Any]) -> Prompt[str]:
    section = MarkdownSection(title="Task", key="task", template="Say something.", tools=tools)
    return Prompt(PromptTemplate[str](ns="n", key="k", sections=(section,), output_type=str))


@pytest.mark.parametrize(("adapter", "provider"), FAMILIES)
@pytest.mark.parametrize(
    "form",
    [
        KEY,
        json.dumps(KEY),
        base64.b64encode(f"user:{KEY}".encode()).decode(),
        quote(f"key={KEY}&"),
    ],
    ids=["plain", "json", "base64", "percent"],
)
def test_the_own_key_in_an_answer_is_recorded_nowhere(
    adapter: Any, provider: Any, form: str
) -> None:
    session = Session()
    with LoopbackServer(provider(), brain=says(f"Your key is {form}.")) as server:
        model = adapter(MODEL, api_key=KEY, base_url=server.base_url)
        response = model.evaluate(question(), session=session)
    assert "[secret]" in response.text
    assert form not in repr((response, session.select_all(PromptExecuted)))
    assert KEY not in repr((response, session.select_all(PromptExecuted)))


@pytest.mark.parametrize(("adapter", "provider"), FAMILIES)
def test_the_own_key_as_the_name_of_a_tool_is_not_raised(adapter: Any, provider: Any) -> None:
    answer = Answer(calls=(Call(KEY, "{}"),))
    session = Session()
    with LoopbackServer(provider(), brain=lambda _: answer) as server:
        model = adapter(MODEL, api_key=KEY, base_url=server.base_url, max_tool_rounds=1)
        with pytest.raises(ToolRoundsError) as caught:
            model.evaluate(question(NOTHING), session=session)
    assert KEY not in repr((caught.value, session.select_all(ToolInvoked)))
    assert "[secret]" in str(caught.value)


@pytest.mark.parametrize(
    ("secret", "options"),
    [
        ("correcthorsebattery", {"api_key": "correcthorsebattery"}),
        ("OpenSesame", {"headers": {"X-Gateway-Token": "OpenSesame"}}),
        ("OpenSesame", {"user": "me:OpenSesame@", "headers": BEARER}),
    ],
    ids=["key", "header", "password"],
)
def test_a_secret_of_letters_only_is_blanked_in_answers(
    secret: str, options: dict[str, Any]
) -> None:
    answers = AnthropicMessages()
    key, user = options.get("api_key", KEY), options.get("user", "")
    with LoopbackServer(answers, brain=says(f"It is {secret}."), key=key) as server:
        address = server.base_url.replace("://", f"://{user}")
        headers = options.get("headers", {})
        model = AnthropicAdapter(MODEL, api_key=key, base_url=address, headers=headers)
        assert model.evaluate(question(), session=Session()).text == "It is [secret]."


def test_a_key_that_is_a_word_changes_no_answer() -> None:
    with LoopbackServer(OpenAIChat(), brain=says("unused text/plain"), key="unused") as server:
        headers = {"Accept": "text/plain"}
        model = OpenAIAdapter(MODEL, api_key="unused", base_url=server.base_url, headers=headers)
        assert model.evaluate(question(), session=Session()).text == "unused text/plain"


@pytest.mark.parametrize(("adapter", "provider"), FAMILIES)
def test_cookies_of_a_server_are_not_sent_back(adapter: Any, provider: Any) -> None:
    script = always(Behaviour(headers={"set-cookie": "who=you; Path=/"}))
    with LoopbackServer(provider(), brain=says("fine"), script=script) as server:
        model = adapter(MODEL, api_key=KEY, base_url=server.base_url)
        for _ in range(2):
            model.evaluate(question(), session=Session())
        assert [asked.headers.get("cookie") for asked in server.asked] == [None, None]


@pytest.mark.parametrize(("adapter", "provider"), FAMILIES)
def test_a_redirect_is_not_followed_with_the_prompt(adapter: Any, provider: Any) -> None:
    with LoopbackServer(provider(), brain=says("stolen")) as other:
        script = always(Behaviour(status=307, headers={"location": other.base_url}))
        with LoopbackServer(provider(), brain=says("fine"), script=script) as server:
            model = adapter(MODEL, api_key=KEY, base_url=server.base_url)
            with pytest.raises(PermanentProviderError, match="which is not followed"):
                model.evaluate(question(), session=Session())
            assert server.counts.requests == 1
        assert other.counts.requests == 0


def test_a_server_that_never_listens_is_given_up_soon() -> None:
    session = Session()
    with socket.socket() as taken:  # so that no other test listens there
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        # Pauses are drawn: the usual attempts may all be made before it is given up.
        policy = RetryPolicy(attempts=20)
        model = OpenAIAdapter(MODEL, api_key=KEY, base_url=address, policy=policy)
        with pytest.raises(PermanentProviderError, match="check base_url and the network"):
            model.evaluate(question(), session=session)
    (call,) = session.select_all(ModelCalled)
    assert 1 < call.requests < policy.attempts


@pytest.mark.parametrize("adapter", [AnthropicAdapter, OpenAIAdapter])
@pytest.mark.parametrize(
    "options",
    [{"model": PASTED}, {"stop": PASTED}, {"policy": PASTED}, {"headers": PASTED}],
    ids=lambda options: next(iter(options)),
)
def test_a_key_that_stands_elsewhere_is_not_shown(adapter: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        adapter(**{"model": MODEL, "api_key": KEY, **options})
    assert PASTED not in str(caught.value)
