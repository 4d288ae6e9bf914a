"""The format of Anthropic's Messages, against the shapes that its SDK declares."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

from adapters.wire_world import noted, sent
from agent_prompts import SOURCE
from promptgraft.adapters.anthropic import (
    AnthropicAdapter,
    AnthropicProfile,
    AnthropicWire,
    profile_of,
)
from promptgraft.adapters.base import Usage
from promptgraft.adapters.calling.turns import Finish, UnreadableTurnError
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json
from promptgraft.prompt.schema import JsonObject
from servers.shapes import misfit

NATIVE = AnthropicProfile(structured_output="native", prompt_caching=True)


def wire(profile: AnthropicProfile = NATIVE, **options: Any) -> AnthropicWire:
    options = {"max_output_tokens": 9, **options}
    return AnthropicAdapter("m", api_key="unused", profile=profile, **options).wire


def answer(*content: JsonObject, stop: str | None = "end_turn", **usage: int) -> JsonObject:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [*content],
        "stop_reason": stop,
        "usage": {"input_tokens": 10, "output_tokens": 2, **usage},
    }


def said(text: str) -> JsonObject:
    return {"type": "text", "text": text, "citations": None}


def use(number: int, arguments: JsonObject | None = None) -> JsonObject:
    name: Json = f"toolu_{number}"
    return {"type": "tool_use", "id": name, "name": "search", "input": arguments or {}}


def test_a_prompt_becomes_a_documented_request() -> None:
    body = wire(stop=("END",), effort="low", extra_body={"metadata": {"user_id": "u"}}).open(
        SOURCE.prompt().render()
    )
    assert misfit(MessageCreateParamsNonStreaming, body) is None
    found = sent(body)
    assert found["max_tokens"] == 9
    assert found["stop_sequences"] == ["END"]
    assert found["metadata"] == {"user_id": "u"}
    assert found["output_config"]["effort"] == "low"
    assert found["output_config"]["format"]["schema"]["required"] == ["level"]
    assert [tool["name"] for tool in found["tools"]] == ["search", "read"]
    (message,) = found["messages"]
    assert message["role"] == "user"
    assert "Review Python code." in message["content"]


@pytest.mark.parametrize(
    ("model", "taken"),
    [
        ("claude-3-5-sonnet-20241022", True),
        ("claude-haiku-4-5", True),
        ("claude-sonnet-4-6", True),
        ("us.anthropic.claude-opus-4-6-v1", True),
        ("claude-sonnet-4-5@20250929", True),
        ("somebody-elses", True),
        ("claude-opus-4-7", False),
        ("global.anthropic.claude-opus-4-8", False),
        ("anthropic/claude-sonnet-5-5", False),
    ],
)
def test_models_that_sample_take_a_temperature(model: str, taken: bool) -> None:
    def made(**options: Any) -> JsonObject:
        adapter = AnthropicAdapter(model, api_key="unused", **options)
        return adapter.wire.open(SOURCE.prompt().render())

    assert "temperature" not in made()
    if taken:
        body = made(temperature=0, top_p=0.5)
        assert (body["temperature"], body["top_p"]) == (0, 0.5)
    else:
        with pytest.raises(ConfigError, match=f"temperature: `{model}` does not take it"):
            made(temperature=0)
    with pytest.raises(ConfigError, match="temperature: expected a number from 0 to 1, found 2"):
        made(temperature=2)


def test_what_never_changes_is_marked_to_be_cached() -> None:
    rendered = noted("x")
    block: JsonObject = {"type": "text", "text": "## Rules\n\nBe kind."}
    assert wire().open(rendered)["system"] == [{**block, "cache_control": {"type": "ephemeral"}}]
    assert wire(AnthropicProfile()).open(rendered)["system"] == [block]
    tools = sent(wire().open(SOURCE.prompt().render()))["tools"]
    assert ["cache_control" in tool for tool in tools] == [False, True]


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", Finish.DONE),
        ("stop_sequence", Finish.DONE),
        ("something_new", Finish.DONE),
        ("pause_turn", Finish.PAUSED),
        ("max_tokens", Finish.LENGTH),
        ("model_context_window_exceeded", Finish.LENGTH),
        ("refusal", Finish.REFUSED),
    ],
)
def test_an_answer_is_read(stop: str, finish: Finish) -> None:
    cached = {"cache_read_input_tokens": 5, "cache_creation_input_tokens": 3}
    thought: JsonObject = {"type": "thinking", "thinking": "hm", "signature": "s"}
    turn = wire().read(answer(thought, said("one "), said("two"), stop=stop, **cached))
    assert (turn.text, turn.finish, turn.finish_reason, turn.model) == (
        "one two",
        finish,
        stop,
        "m-1",
    )
    assert turn.usage == Usage(input_tokens=18, output_tokens=2, cached_tokens=5)
    assert turn.cache_write_tokens == 3


def test_a_blank_text_is_not_sent_back() -> None:
    turn = wire().read(answer(said(" "), use(1), stop="tool_use"))
    assert turn.messages == ({"role": "assistant", "content": [use(1)]},)


def test_a_paused_turn_is_sent_back_alone() -> None:
    turn = wire().read(answer(said("so far"), stop="pause_turn"))
    body = wire().extend({"messages": []}, turn, [])
    assert body["messages"] == [*turn.messages]


def test_calls_count_whatever_the_reason() -> None:
    assert wire().read(answer(use(1), stop="end_turn")).finish is Finish.TOOLS


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        answer(said("x"), stop=None),
        {**answer(), "content": "text"},
        answer({"type": "text", "text": 1}),
        {**answer(), "type": "ping"},
    ],
)
def test_what_is_no_answer_cannot_be_read(body: JsonObject) -> None:
    with pytest.raises(UnreadableTurnError, match="does not have the shape of one"):
        wire().read(body)


@pytest.mark.parametrize(
    ("model", "structured", "tokens", "seller"),
    [
        ("claude-sonnet-4-5", "native", 8192, "anthropic"),
        ("claude-opus-4-1", "native", 8192, "anthropic"),
        ("claude-opus-5-5", "native", 8192, "anthropic"),
        ("anthropic/claude-haiku-4-5", "native", 8192, "anthropic"),
        ("claude-sonnet-4-20250514", "text", 8192, "anthropic"),
        ("claude-3-haiku-20240307", "text", 4096, "anthropic"),
        ("my-model", "text", 4096, None),
    ],
)
def test_a_model_is_known_by_its_name(
    model: str, structured: str, tokens: int, seller: str | None
) -> None:
    profile = profile_of(model)
    assert profile.structured_output == structured
    assert profile.max_output_tokens == tokens
    assert profile.seller == seller
    assert profile.prompt_caching is (seller is not None)
