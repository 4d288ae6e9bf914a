"""Answers that come as streams of server-sent events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from adapters.calling.endpoints import received
from adapters.calling.test_faults import NOW, fault_of
from promptgraft.adapters.base import Usage
from promptgraft.adapters.calling.faults import judge
from promptgraft.adapters.calling.turns import BrokenTurnError, Finish, Turn
from promptgraft.adapters.openai import OpenAIAdapter
from promptgraft.errors import PermanentProviderError, TransientProviderError
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.prompt.schema import JsonObject

USAGE = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}


def stream(*events: object, end: str = "\n\n") -> str:
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join(f"data: {text}{end}" for text in (*texts, "[DONE]"))


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "model": "m-1", "choices": [choice], "usage": None}


def adapter(api: str = "chat", **extra: Any) -> OpenAIAdapter:
    return OpenAIAdapter("m", api=api, api_key="none", extra_body={"stream": True, **extra})


def turn_of(content: str, api: str = "chat") -> Turn:
    body = judge(received(200, content, content_type="text/event-stream"), now=NOW)
    assert isinstance(body, dict)
    return adapter(api).wire.read(body)


def call(at: int | None, name: str | None, arguments: str, **more: str) -> dict[str, Any]:
    return {"index": at, "function": {"name": name, "arguments": arguments}, **more}


def test_a_whole_answer_in_one_event_is_read() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "one"}}
    turn = turn_of(stream({"choices": [{**choice, "finish_reason": "stop"}]}))
    assert (turn.text, turn.finish) == ("one", Finish.DONE)


@pytest.mark.parametrize("finish", ["error", "abort"])
def test_a_stream_that_the_server_broke_off_is_no_answer(finish: str) -> None:
    with pytest.raises(BrokenTurnError):
        turn_of(stream(chunk(content="on"), chunk(finish)))


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\n: ping\n\n"])
def test_chunks_are_put_together_to_an_answer(end: str) -> None:
    content = stream(
        chunk(role="assistant", content=""),
        chunk(reasoning_content="Is it one?"),
        chunk(content="li\u2028gh", tool_calls=None),
        chunk(content="ting"),
        {"choices": [{"index": 1, "delta": {"content": "another choice"}}]},
        chunk(content=[{"type": "thinking", "thinking": []}, {"type": "text", "text": "!"}]),
        chunk("stop"),
        {"choices": [], "usage": USAGE},
        end=end,
    )
    turn = turn_of(content)
    assert (turn.text, turn.finish, turn.model) == ("li\u2028ghting!", Finish.DONE, "m-1")
    assert turn.usage == Usage(input_tokens=10, output_tokens=3)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_a_stream_of_nothing_but_thoughts_has_no_answer(name: str) -> None:
    content = stream(chunk(**{name: "H"}), chunk(**{name: "m"}), chunk("stop"))
    assert turn_of(content).text == "<think>Hm</think>"


def test_thoughts_of_another_form_are_no_fault_of_a_stream() -> None:
    content = stream(chunk(reasoning={"steps": 1}, content="a"), chunk("stop"))
    assert turn_of(content).text == "a"


def test_calls_of_tools_are_put_together() -> None:
    content = stream(
        chunk(tool_calls=[call(0, "search", "", id="a", type="function")]),
        chunk(tool_calls=[call(0, None, '{"q":'), call(1, "read", "{}", id="b")]),
        chunk(tool_calls=[call(0, None, " 1}", id="")]),
        chunk(tool_calls=[call(None, "whole", "{}"), call(None, "whole", "{}")]),
        chunk("tool_calls"),
    )
    turn = turn_of(content)
    assert turn.finish is Finish.TOOLS
    assert [(each.id, each.name, each.arguments) for each in turn.requests] == [
        ("a", "search", '{"q": 1}'),
        ("b", "read", "{}"),
        ("call_2", "whole", "{}"),
        ("call_3", "whole", "{}"),
    ]


def test_the_last_event_of_responses_has_the_answer() -> None:
    text = {"type": "output_text", "text": "lighting"}
    message = {"type": "message", "role": "assistant", "content": [text]}
    response = {"model": "m-1", "status": "completed", "output": [message]}
    content = (
        'event: response.output_text.delta\ndata: {"type":"response.output_text.delta",'
        '"delta":"li"}\n\nevent: response.completed\n'
        f"data: {json.dumps({'type': 'response.completed', 'response': response})}\n\n"
    )
    assert turn_of(content, "responses").text == "lighting"


@pytest.mark.parametrize(
    "content",
    [
        stream(chunk(content="half"))[:-20],
        stream({"choices": ["x"]}),
        stream({"choices": [{"delta": {"content": 3}}]}),
        stream('{"choices":'),
        stream({"type": "message_start", "message": {}}),
    ],
)
def test_a_stream_that_is_none_of_an_answer_is_tried_again(content: str) -> None:
    fault = fault_of(received(200, content, content_type="text/event-stream"))
    assert (fault.error, fault.retried) == (TransientProviderError, True)
    assert fault.what == "unreadable answer"


def test_an_error_in_a_stream_is_the_error_of_the_answer() -> None:
    error = {"error": {"message": "busy", "code": 529}}
    fault = fault_of(received(200, stream(chunk(content="half"), error)))
    assert (fault.error, fault.detail) == (TransientProviderError, "busy")


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "This model only supports streaming. Set stream=true."}},
        {"error": {"message": "enable_thinking must be false for non-streaming calls"}},
        {"error": {"message": "Stream must be set to true"}},
        {"error": "streaming is required"},
        {"detail": [{"loc": ["body", "stream"], "msg": "must be true"}]},
    ],
)
def test_a_model_that_only_streams_ends_the_run_with_the_setting(body: Mapping[str, Any]) -> None:
    fault = fault_of(received(400, body))
    assert fault.error is PermanentProviderError
    assert fault.mend == "set `extra_body: {stream: true}` for this model"


def test_a_server_in_trouble_is_asked_again_whatever_it_says_of_streams() -> None:
    fault = fault_of(received(503, {"error": {"message": "only streams are served now"}}))
    assert (fault.error, fault.retried) == (TransientProviderError, True)


def test_a_request_for_a_stream_asks_for_its_tokens() -> None:
    rendered = Prompt(
        PromptTemplate(
            ns="a", key="b", sections=(MarkdownSection(title="T", key="t", template="x"),)
        )
    ).render()

    def options(body: JsonObject) -> object:
        return body["stream"], body.get("stream_options")

    assert options(adapter().wire.open(rendered)) == (True, {"include_usage": True})
    assert options(adapter(stream_options={}).wire.open(rendered)) == (True, {})
    assert options(adapter("responses").wire.open(rendered)) == (True, None)
