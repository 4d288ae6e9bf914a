"""The format of OpenAI's Responses, against the shapes that its SDK declares, and who speaks it."""

from __future__ import annotations

from typing import Any, get_type_hints

import attrs
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses import Response
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

from adapters.wire_world import noted, sent
from agent_prompts import SOURCE
from promptgraft import MarkdownSection, OpenAIAdapter, Prompt, PromptTemplate, Session
from promptgraft.adapters import responses
from promptgraft.adapters.base import ModelCalled, Usage
from promptgraft.adapters.calling.turns import Finish, UnreadableTurnError
from promptgraft.adapters.openai import ChatWire, OpenAIProfile
from promptgraft.adapters.responses import ResponsesWire
from promptgraft.errors import ConfigError, PermanentProviderError
from promptgraft.ground.serde import Json
from promptgraft.prompt import Tool
from promptgraft.prompt.schema import JsonObject
from servers.behaviour import Answer, Asked, Call, says
from servers.loopback import KEY, LoopbackServer
from servers.openai_chat import OpenAIChat
from servers.openai_responses import OpenAIResponses
from servers.shapes import misfit

NATIVE = OpenAIProfile(structured_output="native")
THOUGHTS: JsonObject = {"type": "reasoning", "id": "rs_1", "summary": []}


def wire(profile: OpenAIProfile = NATIVE, **options: Any) -> ResponsesWire:
    adapter = OpenAIAdapter("m", api="responses", api_key="unused", profile=profile, **options)
    assert isinstance(adapter.wire, ResponsesWire)
    return adapter.wire


def said(text: str, **further: Json) -> JsonObject:
    part: JsonObject = {"type": "output_text", "text": text, "annotations": []}
    message: JsonObject = {"type": "message", "id": "msg_1", "role": "assistant"}
    return {**message, "status": "completed", "content": [part], **further}


def answer(*output: Json, **further: Json) -> JsonObject:
    body: JsonObject = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m-1",
        "output": [*output],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 18,
            "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 2},
            "output_tokens": 9,
            "output_tokens_details": {"reasoning_tokens": 7},
            "total_tokens": 27,
        },
        **further,
    }
    Response.model_validate(body)
    return body


def call(number: int, arguments: str = "{}") -> JsonObject:
    named: JsonObject = {"call_id": f"call_{number}", "name": "search", "arguments": arguments}
    return {"type": "function_call", "id": f"fc_{number}", "status": "completed", **named}


def test_a_prompt_becomes_a_documented_request() -> None:
    body = wire(
        max_output_tokens=20,
        temperature=0,
        top_p=0.5,
        effort="low",
        extra_body={
            "text": {"verbosity": "low"},
            "reasoning": {"summary": "auto"},
            "safety_identifier": "u",
        },
    ).open(SOURCE.prompt().render())
    assert misfit(ResponseCreateParamsNonStreaming, body) is None
    found = sent(body)
    text = found.pop("text")
    assert text["verbosity"] == "low"
    assert text["format"]["strict"] is True
    assert text["format"]["schema"]["required"] == ["level", "note"]
    tools = found.pop("tools")
    assert [(tool["name"], tool["strict"]) for tool in tools] == [
        ("search", False),
        ("read", False),
    ]
    (message,) = found.pop("input")
    assert message["role"] == "user"
    assert "Review Python code." in message["content"]
    assert found == {
        "model": "m",
        "max_output_tokens": 20,
        "temperature": 0,
        "top_p": 0.5,
        "reasoning": {"summary": "auto", "effort": "low"},
        "store": False,
        "safety_identifier": "u",
    }


def test_what_is_not_set_is_not_sent() -> None:
    assert sent(wire().open(noted("x"))) == {
        "model": "m",
        "instructions": "## Rules\n\nBe kind.",
        "input": [{"role": "user", "content": "## Note\n\nx"}],
        "store": False,
    }


@pytest.mark.parametrize(
    ("status", "reason", "finish", "shown"),
    [
        ("completed", None, Finish.DONE, "completed"),
        ("incomplete", "max_output_tokens", Finish.LENGTH, "max_output_tokens"),
        ("incomplete", "content_filter", Finish.REFUSED, "content_filter"),
    ],
)
def test_an_answer_is_read(status: str, reason: str | None, finish: Finish, shown: str) -> None:
    details: Json = None if reason is None else {"reason": reason}
    body = answer(THOUGHTS, said("one"), status=status, incomplete_details=details)
    turn = wire().read(body)
    assert (turn.text, turn.finish, turn.finish_reason) == ("one", finish, shown)
    assert turn.model == "m-1"
    assert turn.cache_write_tokens == 2
    assert turn.usage == Usage(
        input_tokens=18, output_tokens=9, cached_tokens=5, reasoning_tokens=7
    )


def test_a_refusal_is_one_whatever_the_status() -> None:
    refused: JsonObject = {"type": "refusal", "refusal": "I won't."}
    turn = wire().read(answer(said("", content=[refused])))
    assert (turn.text, turn.finish, turn.finish_reason) == ("I won't.", Finish.REFUSED, "refusal")


def test_an_answer_is_what_follows_the_commentary() -> None:
    remark = said("Let me see. ", phase="commentary")
    assert wire().read(answer(remark, said("one", phase="final_answer"))).text == "one"
    assert wire().read(answer(remark)).text == "Let me see. "


def test_thoughts_that_are_only_named_are_not_repeated() -> None:
    turn = wire().read(answer(THOUGHTS, call(1)))
    assert [item["type"] for item in turn.messages] == ["function_call"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"output": None}, "output"),
        ({"status": "in_progress"}, "expected the status `completed` or `incomplete`"),
        ({"status": "cancelled"}, "found `cancelled`"),
        ({"output": [{"type": "function_call", "name": "search"}]}, "expected `call_id` and"),
    ],
)
def test_another_body_is_unreadable(change: JsonObject, fault: str) -> None:
    with pytest.raises(UnreadableTurnError, match=fault):
        wire().read({**answer(said("one")), **change})


def test_the_fields_that_only_chat_has_are_those_of_the_sdk() -> None:
    chat = set(get_type_hints(CompletionCreateParamsNonStreaming))
    assert chat - set(get_type_hints(ResponseCreateParamsNonStreaming)) == responses.CHAT_ONLY


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, ResponsesWire),
        ({"base_url": "https://api.openai.com/v1"}, ResponsesWire),
        ({"base_url": "https://eu.api.openai.com/v1"}, ResponsesWire),
        ({"extra_body": {"service_tier": "flex"}}, ResponsesWire),
        ({"max_output_tokens": 16}, ResponsesWire),
        ({"base_url": "http://localhost:8000/v1"}, ChatWire),
        ({"base_url": "https://api.openai.com.example/v1"}, ChatWire),
        ({"stop": ["END"]}, ChatWire),
        ({"seed": 1}, ChatWire),
        ({"max_output_tokens": 15}, ChatWire),
        ({"extra_body": {"presence_penalty": 1}}, ChatWire),
        ({"api": "chat"}, ChatWire),
        ({"api": "responses", "base_url": "http://localhost:8000/v1"}, ResponsesWire),
    ],
)
def test_auto_takes_responses_for_openai_and_chat_for_others(
    options: dict[str, Any], kind: type[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    adapter = OpenAIAdapter("gpt-6-luna", api_key="unused", **options)
    assert type(adapter.wire) is kind
    assert adapter.identity.endswith(" api=responses") == (kind is ResponsesWire)


def test_an_address_in_the_environment_is_not_openai_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8000/v1")
    assert isinstance(OpenAIAdapter("m", api_key="unused").wire, ChatWire)


@pytest.mark.parametrize("model", ["o1-mini", "gpt-audio-mini", "gpt-4o-search-preview"])
def test_models_that_responses_does_not_have_are_asked_through_chat(model: str) -> None:
    assert isinstance(OpenAIAdapter(model, api_key="unused").wire, ChatWire)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"stop": ["END"]}, "stop"),
        ({"seed": 1}, "seed"),
        ({"max_output_tokens": 15}, "max_output_tokens"),
        ({"extra_body": {"logit_bias": {}}}, "extra_body.logit_bias"),
    ],
)
def test_what_only_chat_knows_is_refused_beside_responses(
    options: dict[str, Any], name: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAIAdapter("m", api="responses", api_key="unused", **options)
    assert str(caught.value) == (
        f"OpenAIAdapter: {name}: the Responses API does not take it; leave it out, or give "
        "api='chat'"
    )


@attrs.frozen
class Question:
    words: str


def prompt() -> Prompt[object]:
    tool = Tool(
        name="find",
        description="Finds.",
        params_type=Question,
        result_type=str,
        handler=lambda question: f"found {question.words}",
    )
    section = MarkdownSection(title="Task", key="task", template="Is it so?", tools=[tool])
    return Prompt(PromptTemplate[object](ns="n", key="k", sections=[section]))


def thinking(asked: Asked) -> Answer:
    if asked.results:
        return Answer(text="yes", thought_tokens=30)
    return Answer(calls=(Call("find", '{"words": "é"}'),), thought_tokens=200)


def test_a_model_that_thinks_is_given_its_thoughts_with_the_results_of_tools() -> None:
    model, session = "gpt-6-sol", Session()
    with LoopbackServer(OpenAIResponses(), brain=thinking, models=(model,)) as server:
        adapter = OpenAIAdapter(
            model, api="responses", api_key=KEY, base_url=server.base_url, effort="low"
        )
        response = adapter.evaluate(prompt(), session=session)
        first, second = server.asked
    assert server.counts.refused == ()
    assert (response.text, response.usage.reasoning_tokens) == ("yes", 230)
    assert [call.usage.reasoning_tokens for call in session.select_all(ModelCalled)] == [200, 30]
    assert first.body["reasoning"] == {"effort": "low"}
    items = second.body["input"]
    assert isinstance(items, list)
    assert [isinstance(item, dict) and item.get("type") for item in items] == [
        None,
        "reasoning",
        "function_call",
        "function_call_output",
    ]


def test_a_refusal_that_names_the_other_api_ends_the_call_and_says_what_to_set() -> None:
    model = "gpt-6-sol"
    with LoopbackServer(OpenAIChat(), brain=says("hi"), models=(model,)) as server:
        adapter = OpenAIAdapter(model, api_key=KEY, base_url=server.base_url)
        with pytest.raises(PermanentProviderError) as caught:
            adapter.evaluate(prompt(), session=Session())
        assert server.counts.requests == 1
    assert str(caught.value).endswith("; set `api: responses` for this model")


def test_a_server_without_responses_is_told_as_a_setting() -> None:
    with LoopbackServer(OpenAIChat(), brain=says("hi"), models=("m",)) as server:
        adapter = OpenAIAdapter("m", api="responses", api_key=KEY, base_url=server.base_url)
        with pytest.raises(PermanentProviderError) as caught:
            adapter.evaluate(prompt(), session=Session())
        assert server.counts.requests == 1
    assert str(caught.value).endswith("; set `api: chat` for this model, or check base_url")
