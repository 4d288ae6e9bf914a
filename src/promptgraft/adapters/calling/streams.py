"""Streams of server-sent events, put together to the answer that comes without streaming."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from promptgraft.ground.serde import Json, parse_json
from promptgraft.prompt.schema import JsonObject

# Not `splitlines`, which also splits at characters that texts in JSON may hold.
_LINE_END = re.compile(r"\r\n|\n|\r")
_ENDS = {"response.completed", "response.incomplete", "response.failed"}


class _FunctionPart(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _CallPart(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _FunctionPart = msgspec.field(default_factory=_FunctionPart)


class _MessagePart(msgspec.Struct):
    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: list[_CallPart] | None = None


class _ChoicePart(msgspec.Struct):
    index: int | None = None
    delta: _MessagePart | None = None
    message: _MessagePart | None = None  # of servers that send the whole answer in one event
    finish_reason: str | None = None


class _AnswerPart(msgspec.Struct):
    choices: list[_ChoicePart]
    model: str | None = None
    usage: Any = None


def is_stream(content: str) -> bool:
    """Return whether a body is a stream of events."""
    return content.lstrip().startswith(("data:", "event:", "id:", ":"))


def whole_answer(content: str) -> JsonObject | None:
    """Return the answer of a stream of Chat Completions or Responses, or the error in it.

    None for any other stream.

    Raises:
        DataFormatError: an event is not JSON.
        msgspec.ValidationError: a chunk has another shape.
    """
    chunks: list[_AnswerPart] = []
    for event in _events(content):
        match event:
            case {"error": error} if error:
                return event
            case {"type": "error"}:
                return event
            case {"type": str(kind), "response": dict(response)} if kind in _ENDS:
                return response
            case {"choices": list()}:
                chunks.append(msgspec.convert(event, _AnswerPart))
    return _put_together(chunks) if chunks else None


def _events(content: str) -> Iterator[JsonObject]:
    data: list[str] = []
    for line in (*_LINE_END.split(content), ""):
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").strip())
        elif not line and data:
            text, data = "\n".join(data), []
            event = None if text == "[DONE]" else parse_json(text, where="an event of the answer")
            if isinstance(event, dict):
                yield event


def _put_together(chunks: list[_AnswerPart]) -> JsonObject:
    content: list[Json] = []
    refusal, thoughts, finish_reason = "", "", None
    calls: list[_CallPart] = []
    # Nobody asks for other choices than the first, which some servers do not number.
    for choice in (choice for chunk in chunks for choice in chunk.choices if not choice.index):
        finish_reason = choice.finish_reason or finish_reason
        if (delta := choice.delta or choice.message) is not None:
            # A text, or parts of which some are thoughts.
            content += delta.content if isinstance(delta.content, list) else [delta.content or ""]
            refusal += delta.refusal or ""
            thought = delta.reasoning_content or delta.reasoning
            thoughts += thought if isinstance(thought, str) else ""
            for call in delta.tool_calls or ():
                _add(calls, call)
    message: JsonObject = {
        "role": "assistant",
        "content": content,
        "refusal": refusal or None,
        "reasoning_content": thoughts or None,
        "tool_calls": [_call_json(call, number) for number, call in enumerate(calls)] or None,
    }
    return {
        "model": next((chunk.model for chunk in chunks if chunk.model), None),
        "choices": [{"message": message, "finish_reason": finish_reason}],
        "usage": next((chunk.usage for chunk in reversed(chunks) if chunk.usage), None),
    }


def _add(calls: list[_CallPart], part: _CallPart) -> None:
    """Add a part of a call; calls without a number are whole."""
    for call in calls:
        if part.index is not None and call.index == part.index:
            call.function.name = call.function.name or part.function.name
            more = part.function.arguments or ""
            call.function.arguments = f"{call.function.arguments or ''}{more}"
            return
    calls.append(part)


def _call_json(call: _CallPart, number: int) -> Json:
    function: Json = {"name": call.function.name, "arguments": call.function.arguments or ""}
    return {"id": call.id or f"call_{number}", "type": "function", "function": function}
