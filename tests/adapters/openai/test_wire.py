"""The format of OpenAI's Chat Completions, against the shapes that its SDK declares."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

from adapters.wire_world import noted, sent
from agent_prompts import SOURCE
from promptgraft.adapters.base import Usage
from promptgraft.adapters.calling.turns import BrokenTurnError, Finish, UnreadableTurnError
from promptgraft.adapters.openai import ChatWire, OpenAIAdapter, OpenAIProfile, profile_of
from promptgraft.ground.serde import Json
from promptgraft.prompt.schema import JsonObject
from servers.shapes import misfit

NATIVE = OpenAIProfile(structured_output="native", output_limit="max_completion_tokens")


def wire(profile: OpenAIProfile = NATIVE, **options: Any) -> ChatWire:
    adapter = OpenAIAdapter("m", api="chat", api_key="unused", profile=profile, **options)
    assert isinstance(adapter.wire, ChatWire)
    return adapter.wire


def answer(reason: str | None = "stop", **message: Json) -> JsonObject:
    said: JsonObject = {"role": "assistant", "content": None, **message}
    return {
        "id": "c",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [{"index": 0, "finish_reason": reason, "message": said}],
        "usage": {
            "prompt_tokens": 18,
            "completion_tokens": 2,
            "total_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 5},
        },
    }


def call(number: int, arguments: str = "{}") -> JsonObject:
    function: JsonObject = {"name": "search", "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function}


def test_a_prompt_becomes_a_documented_request() -> None:
    options: dict[str, Any] = {
        "max_output_tokens": 9,
        "temperature": 0,
        "top_p": 0.5,
        "stop": ("END",),
        "seed": 7,
        "effort": "low",
        "extra_body": {"user": "u"},
    }
    body = wire(**options).open(SOURCE.prompt().render())
    assert misfit(CompletionCreateParamsNonStreaming, body) is None
    found = sent(body)
    schema = found.pop("response_format")["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"]["required"] == ["level", "note"]
    assert [tool["function"]["name"] for tool in found.pop("tools")] == ["search", "read"]
    (message,) = found.pop("messages")
    assert message["role"] == "user"
    assert "Review Python code." in message["content"]
    assert found == {
        "model": "m",
        "max_completion_tokens": 9,
        "temperature": 0,
        "top_p": 0.5,
        "stop": ["END"],
        "seed": 7,
        "reasoning_effort": "low",
        "user": "u",
    }


def test_what_is_not_given_is_not_sent() -> None:
    assert sent(wire().open(noted("x"))) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "## Rules\n\nBe kind."},
            {"role": "user", "content": "## Note\n\nx"},
        ],
    }


def test_the_limit_has_the_name_that_the_model_knows() -> None:
    body = wire(OpenAIProfile(), max_output_tokens=9).open(noted("x"))
    assert body["max_tokens"] == 9
    assert "max_completion_tokens" not in body


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", Finish.DONE),
        ("something_new", Finish.DONE),
        ("tool_calls", Finish.DONE),
        ("length", Finish.LENGTH),
        ("content_filter", Finish.REFUSED),
        ("eos_token", Finish.DONE),
        ("model_length", Finish.LENGTH),
        ("MAX_TOKENS", Finish.LENGTH),
        ("content_filter: SAFETY", Finish.REFUSED),
        ("ERROR_TOXIC", Finish.REFUSED),
    ],
)
def test_an_answer_is_read(reason: str, finish: Finish) -> None:
    turn = wire().read(answer(reason, content="one"))
    assert (turn.text, turn.finish, turn.finish_reason) == ("one", finish, reason)
    assert turn.model == "m-1"
    assert turn.usage == Usage(input_tokens=18, output_tokens=2, cached_tokens=5)


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource"])
def test_a_part_of_an_answer_that_the_server_broke_off_is_no_answer(reason: str) -> None:
    with pytest.raises(BrokenTurnError, match=rf"did not finish it \({reason}\)"):
        wire().read(answer(reason, content="on"))
    body: Any = answer("stop", content="on")
    body["choices"][0]["provider_specific_fields"] = {"native_finish_reason": reason}
    with pytest.raises(BrokenTurnError, match=reason):  # as litellm says it
        wire().read(body)
    body["choices"][0]["provider_specific_fields"] = None
    assert wire().read(body).text == "on"
    body["choices"][0]["error"] = {"code": 502, "message": "Upstream"}
    with pytest.raises(BrokenTurnError, match="Upstream"):
        wire().read(body)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"completion_tokens": 3, "total_tokens": 112}, (9, 103, 0, 100)),  # Gemini
        (
            {
                "completion_tokens": 3,
                "total_tokens": 112,
                "completion_tokens_details": {"reasoning_tokens": 100},
            },
            (9, 103, 0, 100),  # xAI
        ),
        (
            {
                "completion_tokens": 103,
                "total_tokens": 112,
                "completion_tokens_details": {"reasoning_tokens": 100},
            },
            (9, 103, 0, 100),
        ),
        ({"completion_tokens": 3, "prompt_cache_hit_tokens": 4}, (9, 3, 4, 0)),  # DeepSeek
        ({"completion_tokens": 3, "cached_tokens": 4}, (9, 3, 4, 0)),  # Moonshot
        ({"completion_tokens": 3, "total_tokens": 1}, (9, 3, 0, 0)),
        ({"total_tokens": 12}, (0, 0, 0, 0)),
    ],
)
def test_every_token_that_is_charged_is_counted(
    counts: JsonObject, expected: tuple[int, ...]
) -> None:
    body = answer(content="one")
    turn = wire().read({**body, "usage": {"prompt_tokens": 9, **counts}})
    assert attrs.astuple(turn.usage) == expected


def test_a_refusal_is_one_whatever_the_reason() -> None:
    turn = wire().read(answer("stop", refusal="I won't."))
    assert (turn.text, turn.finish, turn.finish_reason) == ("I won't.", Finish.REFUSED, "refusal")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_a_server_that_sends_nothing_but_thoughts_is_told_from_one_that_sends_nothing(
    field: str,
) -> None:
    assert wire().read(answer(**{field: "Hm."})).text == "<think>Hm.</think>"
    assert wire().read(answer(content="one", **{field: "Hm."})).text == "one"
    assert wire().read(answer(tool_calls=[call(1)], **{field: "Hm."})).text == ""


def test_further_fields_of_a_call_are_sent_back() -> None:
    signed: JsonObject = {**call(1), "extra_content": {"google": {"thought_signature": "s"}}}
    turn = wire().read(answer("tool_calls", tool_calls=[signed]))
    assert turn.messages[0]["tool_calls"] == [signed]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"error": {"message": "Overloaded", "type": "server_error"}},
        {**answer(), "choices": []},
        answer(None, content="x"),
        answer(content=1),
        answer(tool_calls=[{"id": "1", "type": "custom"}]),
    ],
)
def test_what_is_no_answer_cannot_be_read(body: JsonObject) -> None:
    with pytest.raises(UnreadableTurnError, match="does not have the shape of one"):
        wire().read(body)


@pytest.mark.parametrize(
    ("model", "structured", "sampling"),
    [
        ("gpt-4.1-mini", "native", True),
        ("gpt-4o-2024-08-06", "native", True),
        ("ft:gpt-4o-mini:org::id", "native", True),
        ("gpt-4-turbo", "text", True),
        ("gpt-4", "text", True),
        ("gpt-3.5-turbo", "text", True),
        ("o3-mini", "native", False),
        ("o1-mini", "text", False),
        ("gpt-5", "native", False),
        ("gpt-5-mini", "native", False),
        ("gpt-5-chat-latest", "native", True),
        ("gpt-5.1", "native", False),
        ("gpt-5.4-mini-2026-03-17", "native", False),
        ("gpt-5.5", "native", False),
        ("gpt-5.6-terra", "native", False),
        ("gpt-6-sol", "native", False),
        ("gpt-6.2-astra", "native", False),
    ],
)
def test_a_model_of_openai_is_known_by_its_name(
    model: str, structured: str, sampling: bool
) -> None:
    profile = profile_of(model)
    assert (profile.structured_output, profile.sampling) == (structured, sampling)
    assert profile.output_limit == "max_completion_tokens"
    assert profile.seller == "openai"


@pytest.mark.parametrize("model", ["llama3.1", "qwen/qwen3", "openai/gpt-4o", "gpt-oss-20b"])
def test_little_is_known_of_other_models(model: str) -> None:
    assert profile_of(model) == OpenAIProfile(thinking=500, assumed=True)
