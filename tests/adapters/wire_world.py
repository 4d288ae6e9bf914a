"""The wire formats as their tests see them: what is sent, and what answers look like."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

from promptgraft import AnthropicAdapter, OpenAIAdapter
from promptgraft.adapters.anthropic import AnthropicProfile
from promptgraft.adapters.calling.turns import ToolAnswer, Wire
from promptgraft.adapters.openai import OpenAIProfile
from promptgraft.ground.serde import Json
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.schema import JsonObject


def sent(body: JsonObject) -> Any:
    """Return a body as it comes out of the JSON that is sent."""
    return json.loads(json.dumps(body, ensure_ascii=False).encode("utf-8"))


def noted(note: str) -> RenderedPrompt[Any]:
    """Return a prompt of which only the end depends on a value."""
    sections = [
        MarkdownSection(title="Rules", key="rules", template="Be kind."),
        MarkdownSection(title="Note", key="note", template="$note"),
    ]
    template = PromptTemplate[Any](ns="n", key="k", sections=sections)
    return Prompt(template).bind({"note": note}).render()


@attrs.frozen
class Call:
    """A call of a tool in an answer; ``arguments`` is its JSON."""

    number: int
    arguments: str = "{}"


@attrs.frozen(kw_only=True)
class WireCase:
    """One wire format.

    Attributes:
        request: the SDK's type of requests.
        new: returns a wire for a model that takes schemas, or for one that takes none.
        messages: the field of a request that holds the conversation.
        answer: returns an answer with thoughts, if the format has any that are sent back, a text
            and calls of tools; whole or ``cut``. 18 tokens were
            sent, 5 of them read from the cache, and 2 received.
        repeated: returns the part of an answer that the next request repeats.
        replies: returns what the next request says of calls.
    """

    request: type[Any]
    new: Callable[[bool], Wire]
    messages: str
    answer: Callable[..., JsonObject]
    repeated: Callable[[Any], list[Json]]
    replies: Callable[[Sequence[ToolAnswer]], list[Json]]


def _openai(api: str) -> Callable[[bool], Wire]:
    def new(native: bool) -> Wire:
        profile = OpenAIProfile(structured_output="native" if native else "text")
        return OpenAIAdapter("m", api=api, api_key="unused", profile=profile).wire

    return new


def _anthropic(native: bool) -> Wire:
    profile = AnthropicProfile(structured_output="native" if native else "text")
    return AnthropicAdapter("m", api_key="unused", profile=profile, max_output_tokens=9).wire


def _chat(text: str, *calls: Call, cut: bool = False) -> JsonObject:
    tool_calls: list[Json] = [
        {
            "id": f"call_{call.number}",
            "type": "function",
            "function": {"name": "search", "arguments": call.arguments},
        }
        for call in calls
    ]
    message: JsonObject = {"role": "assistant", "content": text, "tool_calls": tool_calls}
    reason = "length" if cut else "tool_calls" if calls else "stop"
    return {
        "id": "c",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [{"index": 0, "finish_reason": reason, "message": message}],
        "usage": {
            "prompt_tokens": 18,
            "completion_tokens": 2,
            "total_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 5},
        },
    }


def _chat_replies(answers: Sequence[ToolAnswer]) -> list[Json]:
    return [
        {
            "role": "tool",
            "tool_call_id": answer.request.id,
            "content": f"Error: {answer.content}" if answer.failed else answer.content,
        }
        for answer in answers
    ]


def _responses(text: str, *calls: Call, cut: bool = False) -> JsonObject:
    part: JsonObject = {"type": "output_text", "text": text, "annotations": []}
    message: JsonObject = {"type": "message", "id": "msg_1", "role": "assistant"}
    thoughts: JsonObject = {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAAA"}
    items: list[Json] = [
        {**thoughts, "summary": []},
        {**message, "status": "completed", "content": [part]},
    ]
    items += [
        {
            "type": "function_call",
            "id": f"fc_{call.number}",
            "status": "completed",
            "call_id": f"call_{call.number}",
            "name": "search",
            "arguments": call.arguments,
        }
        for call in calls
    ]
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "model": "m-1",
        "output": items,
        "usage": {
            "input_tokens": 18,
            "input_tokens_details": {"cached_tokens": 5},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 20,
        },
    }


def _responses_replies(answers: Sequence[ToolAnswer]) -> list[Json]:
    return [
        {
            "type": "function_call_output",
            "call_id": answer.request.id,
            "output": f"Error: {answer.content}" if answer.failed else answer.content,
        }
        for answer in answers
    ]


def _messages(text: str, *calls: Call, cut: bool = False) -> JsonObject:
    content: list[Json] = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": text, "citations": None},
    ]
    content += [
        {
            "type": "tool_use",
            "id": f"toolu_{call.number}",
            "name": "search",
            "input": json.loads(call.arguments),
        }
        for call in calls
    ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": content,
        "stop_reason": "max_tokens" if cut else "tool_use" if calls else "end_turn",
        "usage": {"input_tokens": 13, "cache_read_input_tokens": 5, "output_tokens": 2},
    }


def _messages_replies(answers: Sequence[ToolAnswer]) -> list[Json]:
    results: list[Json] = []
    for answer in answers:
        result: JsonObject = {"type": "tool_result", "tool_use_id": answer.request.id}
        result["content"] = answer.content
        results.append({**result, "is_error": True} if answer.failed else result)
    return [{"role": "user", "content": results}]


CASES = {
    "chat": WireCase(
        request=CompletionCreateParamsNonStreaming,
        new=_openai("chat"),
        messages="messages",
        answer=_chat,
        repeated=lambda answer: [answer["choices"][0]["message"]],
        replies=_chat_replies,
    ),
    "responses": WireCase(
        request=ResponseCreateParamsNonStreaming,
        new=_openai("responses"),
        messages="input",
        answer=_responses,
        repeated=lambda answer: answer["output"],
        replies=_responses_replies,
    ),
    "anthropic": WireCase(
        request=MessageCreateParamsNonStreaming,
        new=_anthropic,
        messages="messages",
        answer=_messages,
        repeated=lambda answer: [{"role": "assistant", "content": answer["content"]}],
        replies=_messages_replies,
    ),
}
