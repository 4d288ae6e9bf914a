"""The loopback servers are as strict as the providers, and break as they are told."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path

import anthropic
import attrs
import openai
import pytest

from promptgraft import MarkdownSection, Prompt, PromptTemplate
from promptgraft.ground.serde import Json
from servers.anthropic_messages import AnthropicMessages
from servers.behaviour import (
    Answer,
    Behaviour,
    Break,
    Call,
    JsonObject,
    Stop,
    always,
    in_turn,
    says,
    storm,
)
from servers.loopback import KEY, MODEL, LoopbackServer
from servers.openai_chat import OpenAIChat
from servers.openai_responses import OpenAIResponses
from servers.posting import Change, drop, nested, posted, put, said
from servers.tape import Tape


class Weather(Enum):
    """Good or bad."""

    YES = "yes"
    NO = "no"


WHOLE_IN_CHUNKS = Behaviour(chunked=True)
HELLO: Json = {"role": "user", "content": "hello"}
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}


def anthropic_body() -> JsonObject:
    use: JsonObject = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}
    result: JsonObject = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "text"}
    return {
        "model": MODEL,
        "max_tokens": 100,
        "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            HELLO,
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ],
        "tools": [{"name": "read", "description": "reads", "input_schema": SCHEMA, "strict": True}],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    }


def openai_body() -> JsonObject:
    function: JsonObject = {"name": "read", "arguments": '{"path": "a"}'}
    call: JsonObject = {"id": "call_1", "type": "function", "function": function}
    tool: JsonObject = {
        "name": "read",
        "description": "reads",
        "parameters": SCHEMA,
        "strict": True,
    }
    return {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "be brief"},
            HELLO,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "text"},
        ],
        "tools": [{"type": "function", "function": tool}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
        },
    }


def responses_body() -> JsonObject:
    call: JsonObject = {"type": "function_call", "call_id": "call_1", "name": "read"}
    tool: JsonObject = {"type": "function", "name": "read", "description": "reads"}
    return {
        "model": MODEL,
        "instructions": "be brief",
        "store": False,
        "input": [
            HELLO,
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
            {**call, "arguments": '{"path": "a"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "text"},
        ],
        "tools": [{**tool, "parameters": SCHEMA, "strict": True}],
        "text": {
            "format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}
        },
    }


@pytest.fixture(scope="module")
def messages() -> Iterator[LoopbackServer]:
    with LoopbackServer(AnthropicMessages(), brain=says("hi")) as server:
        yield server


@pytest.fixture(scope="module")
def chat() -> Iterator[LoopbackServer]:
    with LoopbackServer(OpenAIChat(), brain=says("hi")) as server:
        yield server


@pytest.fixture(scope="module")
def responses() -> Iterator[LoopbackServer]:
    models = (MODEL, "gpt-4o", "gpt-6-sol")
    with LoopbackServer(OpenAIResponses(), brain=says("hi"), models=models) as server:
        yield server


def test_a_good_request_is_answered_by_each(
    messages: LoopbackServer, chat: LoopbackServer, responses: LoopbackServer
) -> None:
    assert posted(messages, anthropic_body())[0] == 200
    assert posted(chat, openai_body())[0] == 200
    assert posted(responses, responses_body())[0] == 200


TEXT: JsonObject = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
LOOSE = SCHEMA | {"additionalProperties": True}
NUMBER: JsonObject = SCHEMA | {"properties": {"path": {"type": "integer", "minimum": 1}}}
OPTIONAL = SCHEMA | {"required": []}
CHOICE: JsonObject = {"type": "string", "enum": ["a", "b"]}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (drop("max_tokens"), "'max_tokens' is a required property"),
        (put(0, "max_tokens"), "greater than or equal to 1"),
        (put(True, "surprise"), "'surprise' was unexpected"),
        (put([], "messages"), "at least one message"),
        (put([HELLO, HELLO], "messages"), "roles must alternate"),
        (put([{"role": "assistant", "content": "x"}], "messages"), 'must use the "user" role'),
        (put([{"role": "tool", "content": "x"}], "messages"), "messages.0"),
        (put([{"role": "user", "content": []}], "messages"), "non-empty content"),
        (put([{"role": "user", "content": " "}], "messages"), "non-whitespace text"),
        (put([{"type": "text", "text": ""}], "system"), "non-whitespace text"),
        (put("toolu_2", "messages", 2, "content", 0, "tool_use_id"), "without `tool_result`"),
        (drop("messages", 2, "content", 0, "tool_use_id"), "messages.2.content"),
        (drop("tools"), "must define tools"),
        (put(LOOSE, "tools", 0, "input_schema"), "'additionalProperties'"),
        (put(LOOSE, "output_config", "format", "schema"), "'additionalProperties'"),
        (put(NUMBER, "output_config", "format", "schema"), "'minimum' is not supported"),
        (put([TEXT] * 5, "system"), "A maximum of 4 blocks with cache_control"),
        (put("xml", "output_config", "format", "type"), "output_config.format"),
    ],
)
def test_messages_refuses_what_breaks_a_documented_rule(
    messages: LoopbackServer, change: Change, fault: str
) -> None:
    body = anthropic_body()
    change(body)
    status, error = posted(messages, body)
    assert status == 400
    assert fault in said(error)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (drop("messages"), "'messages' is a required property"),
        (put(True, "surprise"), "'surprise' was unexpected"),
        (put([], "messages"), "empty array"),
        (put([], "tools"), "empty array"),
        (put("call_2", "messages", 3, "tool_call_id"), "must be a response to a preceeding"),
        (drop("messages", 3, "tool_call_id"), "messages.3"),
        (put("user", "messages", 3, "role"), "messages.3"),
        (put({"role": "user", "content": "x"}, "messages", 3, "x"), "messages.3"),
        (put(LOOSE, "tools", 0, "function", "parameters"), "'additionalProperties'"),
        (put(OPTIONAL, "tools", 0, "function", "parameters"), "'required' is required"),
        (put("a b", "tools", 0, "function", "name"), "does not match pattern"),
        (put(OPTIONAL, "response_format", "json_schema", "schema"), "'required' is required"),
        (put(CHOICE, "response_format", "json_schema", "schema"), "got 'type: \"string\"'"),
        (put("a b", "response_format", "json_schema", "name"), "does not match pattern"),
        (drop("response_format", "json_schema", "name"), "response_format"),
        (put(0, "max_completion_tokens"), "below minimum value"),
        (put({"type": "json_object"}, "response_format"), "must contain the word 'json'"),
    ],
)
def test_chat_refuses_what_breaks_a_documented_rule(
    chat: LoopbackServer, change: Change, fault: str
) -> None:
    body = openai_body()
    change(body)
    status, error = posted(chat, body)
    assert status == 400
    assert fault in said(error)


@pytest.mark.parametrize(
    ("change", "status", "fault"),
    [
        (drop("model"), 400, "Missing required parameter: 'model'."),
        (drop("input"), 400, "Missing required parameter: 'input'."),
        (put(["x"], "stop"), 400, "'stop' was unexpected"),
        (put([], "input"), 400, "empty array"),
        (put("call_2", "input", 3, "call_id"), 400, "No tool call found for function call output"),
        (put(9, "max_output_tokens"), 400, "Expected a value >= 16, but got 9 instead"),
        (drop("input", 1, "encrypted_content"), 404, "Items are not persisted when `store`"),
        (put(LOOSE, "tools", 0, "parameters"), 400, "'additionalProperties'"),
        (put(OPTIONAL, "tools", 0, "parameters"), 400, "'required' is required"),
        (drop("tools", 0, "strict"), 400, "tools.0"),
        (put("a b", "tools", 0, "name"), 400, "does not match pattern"),
        (put(OPTIONAL, "text", "format", "schema"), 400, "'required' is required"),
        (put(CHOICE, "text", "format", "schema"), 400, "got 'type: \"string\"'"),
        (put("a b", "text", "format", "name"), 400, "does not match pattern"),
        (put({"type": "json_object"}, "text", "format"), 400, "must contain the word 'json'"),
        (put({"effort": "huge"}, "reasoning"), 400, "reasoning.effort"),
    ],
)
def test_responses_refuses_what_breaks_a_documented_rule(
    responses: LoopbackServer, change: Change, status: int, fault: str
) -> None:
    body = responses_body()
    change(body)
    answered, error = posted(responses, body)
    assert (answered, fault in said(error)) == (status, True), said(error)


def test_responses_wants_every_call_answered(responses: LoopbackServer) -> None:
    body = responses_body()
    items = body["input"]
    assert isinstance(items, list)
    for kept, fault in (
        (items[:3], "No tool output found for function call call_1."),
        (items[:2], "'reasoning' was provided without its required following item."),
    ):
        status, error = posted(responses, body | {"input": kept})
        assert (status, fault in said(error)) == (400, True)


def test_responses_knows_which_models_reason(responses: LoopbackServer) -> None:
    thoughts: JsonObject = {"include": ["reasoning.encrypted_content"]}
    effort: JsonObject = {"reasoning": {"effort": "low"}}
    calm: JsonObject = {"temperature": 0.2}
    for model, good, bad, fault in (
        ("gpt-4o", calm, effort, "Unsupported parameter: 'reasoning.effort'"),
        ("gpt-4o", calm, thoughts, "Encrypted content is not supported"),
        ("gpt-6-sol", effort, calm, "'temperature' does not support 0.2"),
        ("gpt-6-sol", thoughts, effort | calm, "'temperature' does not support 0.2"),
    ):
        assert posted(responses, responses_body() | good | {"model": model})[0] == 200
        status, error = posted(responses, responses_body() | bad | {"model": model})
        assert (status, fault in said(error)) == (400, True), said(error)


def test_chat_has_no_tools_for_the_latest_models_that_reason() -> None:
    models = ("gpt-5.2", "gpt-5.4", "gpt-6-sol")
    with LoopbackServer(OpenAIChat(), brain=says("hi"), models=models) as server:
        for model, effort, expected in (
            ("gpt-5.2", "low", 200),
            ("gpt-5.4", None, 400),
            ("gpt-6-sol", "low", 400),
            ("gpt-6-sol", "none", 200),
        ):
            change: JsonObject = {} if effort is None else {"reasoning_effort": effort}
            status, body = posted(server, openai_body() | {"model": model} | change)
            assert status == expected
            assert status == 200 or "use /v1/responses" in said(body)


def test_chat_wants_every_call_answered_before_anything_else(chat: LoopbackServer) -> None:
    body = openai_body()
    messages = body["messages"]
    assert isinstance(messages, list)
    for last in ([], [HELLO]):
        status, error = posted(chat, body | {"messages": [*messages[:3], *last]})
        assert status == 400
        assert "must be followed by tool messages" in said(error)


def test_chat_takes_fewer_parameters_for_models_that_reason(chat: LoopbackServer) -> None:
    for change, fault in (
        ({"max_tokens": 9}, "Use 'max_completion_tokens' instead"),
        ({"temperature": 0.2}, "'temperature' does not support 0.2"),
    ):
        assert posted(chat, openai_body() | change)[0] == 200
        status, error = posted(chat, openai_body() | change | {"model": "gpt-5-mini"})
        assert status == 400
        assert fault in said(error)


def test_too_many_requests_at_once_are_refused() -> None:
    with (
        LoopbackServer(OpenAIChat(), brain=says("hi"), at_once=2) as server,
        ThreadPoolExecutor(3) as pool,
    ):
        server.hold()
        answers = [pool.submit(posted, server, openai_body()) for _ in range(3)]
        server.wait_for(3)
        server.release()
        assert sorted(answer.result()[0] for answer in answers) == [200, 200, 429]


def test_a_storm_hits_about_its_share_of_the_requests_and_always_the_same() -> None:
    faults = (Behaviour(status=500), Behaviour(status=529))
    with LoopbackServer(OpenAIChat(), brain=says("hi")) as server:
        posted(server, openai_body())
        (asked,) = server.asked
    script, again = (storm(*faults, share=0.3, seed=7) for _ in range(2))
    numbered = [attrs.evolve(asked, number=number) for number in range(500)]
    met = [script(one).status for one in numbered]
    assert met == [again(one).status for one in numbered]
    assert 110 <= len([status for status in met if status != 200]) <= 190
    assert set(met) == {200, 500, 529}


def test_both_refuse_wrong_keys_models_and_bodies(
    messages: LoopbackServer, chat: LoopbackServer
) -> None:
    for server, body in ((messages, anthropic_body()), (chat, openai_body())):
        assert posted(server, body, authorization="Bearer wrong-key-012345")[0] == 401
        assert posted(server, body, authorization="")[0] == 401
        assert posted(server, body | {"model": "nobody"})[0] == 404
        assert posted(server, "{")[0] == 400
        assert posted(server, body, **{"content-type": "text/plain"})[0] == 400


def test_a_wrong_key_is_shown_as_the_provider_shows_it(chat: LoopbackServer) -> None:
    _, error = posted(chat, openai_body(), authorization="Bearer sk-wrong-key-012345")
    assert said(error).startswith("Incorrect API key provided: sk-wrong*******2345.")


def test_counts_follow_what_was_reported() -> None:
    script = in_turn(Behaviour(status=529), Behaviour(breaks=Break.IN_BODY))
    with LoopbackServer(AnthropicMessages(), brain=says("hi"), script=script) as server:
        client = anthropic.Anthropic(api_key=KEY, base_url=server.base_url, max_retries=0)
        usage = []
        for fault in (anthropic.InternalServerError, anthropic.APIConnectionError):
            with pytest.raises(fault):
                client.messages.create(model=MODEL, max_tokens=9, messages=[HELLO])  # type: ignore[list-item]
        for _ in range(3):
            message = client.messages.create(model=MODEL, max_tokens=9, messages=[HELLO])  # type: ignore[list-item]
            usage.append(message.usage)
        client.close()
        counts = server.counts
    assert (counts.requests, counts.broken, counts.most_in_flight) == (5, 1, 1)
    assert counts.statuses == {529: 1, 200: 3}
    assert counts.input_tokens == sum(found.input_tokens for found in usage)
    assert counts.output_tokens == sum(found.output_tokens for found in usage)


def test_repeated_beginnings_are_reported_as_cached() -> None:
    with LoopbackServer(AnthropicMessages(), brain=says("hi"), caching=True) as server:
        first, second = (posted(server, anthropic_body())[1] for _ in range(2))
        assert isinstance(first, dict)
        assert isinstance(second, dict)
        written, read = nested(first, "usage"), nested(second, "usage")
        assert written["cache_creation_input_tokens"] == read["cache_read_input_tokens"]
        assert server.counts.cached_tokens == read["cache_read_input_tokens"] != 0


def test_requests_in_flight_are_counted_and_can_be_held() -> None:
    with (
        LoopbackServer(OpenAIChat(), brain=says("hi"), script=always(WHOLE_IN_CHUNKS)) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        server.hold()
        answers = [pool.submit(posted, server, openai_body()) for _ in range(4)]
        server.wait_for(4)
        assert server.counts.statuses == {}
        server.release()
        assert [answer.result()[0] for answer in answers] == [200] * 4
        assert server.counts.most_in_flight == 4


BROKEN = [
    Break.BEFORE_HEADERS,
    Break.IN_HEADERS,
    Break.AFTER_HEADERS,
    Break.IN_BODY,
    Break.ENDS_EARLY,
]
SILENT = [Break.HANGS, Break.HANGS_AFTER_HEADERS]


@pytest.mark.parametrize("breaks", [*BROKEN, *SILENT])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_broken_connection_is_one_for_the_sdk_and_the_next_request_is_answered(
    breaks: Break, chunked: bool
) -> None:
    script = in_turn(Behaviour(breaks=breaks, chunked=chunked))
    with (
        LoopbackServer(OpenAIChat(), brain=says("hi"), script=script) as server,
        openai.OpenAI(api_key=KEY, base_url=server.base_url, max_retries=0, timeout=5) as client,
    ):
        silent = breaks in SILENT
        hasty = client.with_options(timeout=0.1 if silent else 5)
        with pytest.raises(openai.APITimeoutError if silent else openai.APIConnectionError):
            hasty.chat.completions.create(model=MODEL, messages=[HELLO])  # type: ignore[list-item]
        answer = client.chat.completions.create(model=MODEL, messages=[HELLO])  # type: ignore[list-item]
        assert answer.choices[0].message.content == "hi"
        assert server.counts.broken == 1


def test_stops_and_calls_are_said_in_the_words_of_the_provider() -> None:
    call = Answer(calls=(Call("read", '{"path": "a"}'),))
    answers = [call, *(Answer(text="x", stop=stop) for stop in Stop)]
    script = in_turn(*(Behaviour(answer=answer) for answer in answers))
    with LoopbackServer(AnthropicMessages(), brain=says(""), script=script) as server:
        bodies = [posted(server, anthropic_body())[1] for _ in answers]
    assert [body["stop_reason"] for body in bodies if isinstance(body, dict)] == [
        "tool_use",
        "end_turn",
        "max_tokens",
        "refusal",
        "refusal",
    ]
    with LoopbackServer(OpenAIChat(), brain=says(""), script=script) as server:
        bodies = [posted(server, openai_body())[1] for _ in answers]
    choices = [nested(body, "choices", 0) for body in bodies if isinstance(body, dict)]
    assert [choice["finish_reason"] for choice in choices] == [
        "tool_calls",
        "stop",
        "length",
        "stop",
        "content_filter",
    ]
    with LoopbackServer(OpenAIResponses(), brain=says(""), script=script) as server:
        bodies = [posted(server, responses_body())[1] for _ in answers]
    assert [
        (body["status"], body["incomplete_details"]) for body in bodies if isinstance(body, dict)
    ] == [
        ("completed", None),
        ("completed", None),
        ("incomplete", {"reason": "max_output_tokens"}),
        ("completed", None),
        ("incomplete", {"reason": "content_filter"}),
    ]


def test_a_server_whose_brain_fails_says_so_when_it_ends() -> None:
    server = LoopbackServer(OpenAIChat(), brain=Tape()).__enter__()
    with pytest.raises(http.client.RemoteDisconnected):
        posted(server, openai_body())
    with pytest.raises(LookupError, match="does not know this prompt"):
        server.__exit__(None, None, None)


def test_a_tape_answers_what_the_offline_model_would() -> None:
    section = MarkdownSection(title="Task", key="task", template="- yes: sun\n- no: rain")
    asks = MarkdownSection(title="Text", key="text", template="rain all day", overridable=False)
    choice = PromptTemplate[Weather](
        ns="servers", key="tape", sections=(section, asks), output_type=Weather
    )
    tape = Tape()
    tape.learn(Prompt(choice))
    with LoopbackServer(OpenAIChat(), brain=tape) as server:
        text = Prompt(choice).render().text
        body: JsonObject = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
        status, answer = posted(server, body)
    assert status == 200
    assert isinstance(answer, dict)
    assert nested(answer, "choices", 0, "message")["content"] == "yes"


def test_a_server_runs_in_a_process_of_its_own() -> None:
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-m", "servers", "openai", "hello"]
    ended = subprocess.run(command, cwd=tests, input="", capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("http://127.0.0.1:")
