"""Anthropic's Messages: ``POST /v1/messages``."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping

from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

from promptgraft.ground.serde import Json, canonical_json
from servers.behaviour import Answer, Asked, Fault, JsonObject, Stop
from servers.provider import Prefixes, Tokens
from servers.shapes import is_recursive, loose_places, misfit, shape_of

# What Anthropic's `strict` takes beside what every provider takes.
_KEYWORDS = ("allOf", "default", "minItems")
_CACHED = ("tools", "system", "messages")
_USUAL = {
    400: ("invalid_request_error", "messages: the request is not valid"),
    401: ("authentication_error", "invalid x-api-key"),
    402: ("billing_error", "Your credit balance is too low to access the Anthropic API."),
    403: ("permission_error", "Your API key does not have permission to use this resource."),
    404: ("not_found_error", "Not Found"),
    405: ("invalid_request_error", "Method Not Allowed"),
    408: ("timeout_error", "Request timed out."),
    409: ("conflict_error", "The request conflicts with another one."),
    413: ("request_too_large", "Request exceeds the maximum size"),
    422: ("invalid_request_error", "The request cannot be processed."),
    425: ("api_error", "Too early"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit."),
    500: ("api_error", "Internal server error"),
    503: ("api_error", "Service unavailable"),
    504: ("timeout_error", "The request timed out while processing."),
    529: ("overloaded_error", "Overloaded"),
}
_STOPS = {
    Stop.DONE: "end_turn",
    Stop.LENGTH: "max_tokens",
    Stop.REFUSED: "refusal",
    Stop.FILTERED: "refusal",
}


def _invalid(message: str) -> Fault:
    return Fault(status=400, kind="invalid_request_error", message=message)


class AnthropicMessages:
    """The protocol of Anthropic's Messages."""

    name = "anthropic"
    path = "/v1/messages"
    base_path = ""
    cached_in_steps_of = 1

    def __init__(self) -> None:
        shape_of(MessageCreateParamsNonStreaming)  # takes too long for the first request

    def error_text(self, path: str) -> JsonObject | None:
        return {} if path == self.path else None

    def key_of(self, headers: Mapping[str, str]) -> str | None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return headers.get("x-api-key") or (token if scheme == "Bearer" and token else None)

    def fault(self, status: int) -> Fault:
        kind, message = _USUAL.get(status, ("api_error", "Internal server error"))
        return Fault(status=status, kind=kind, message=message)

    def wrong_key(self, key: str | None) -> Fault:
        if key is None:
            return Fault(
                status=401, kind="authentication_error", message="Authorization header is required"
            )
        return self.fault(401)

    def no_model(self, model: str) -> Fault:
        return Fault(status=404, kind="not_found_error", message=f"model: {model}")

    def check(self, body: JsonObject, headers: Mapping[str, str]) -> Fault | None:
        if "anthropic-version" not in headers:
            return _invalid("anthropic-version: header is required")
        if unfit := misfit(MessageCreateParamsNonStreaming, body):
            return _invalid(f"{unfit[0]}: {unfit[1]}")
        faults = itertools.chain(_number_faults(body), _turn_faults(body), _schema_faults(body))
        fault = next(faults, None)
        return None if fault is None else _invalid(fault)

    def read(self, body: JsonObject, headers: Mapping[str, str], number: int) -> Asked:
        blocks = [*_blocks(body.get("system", [])), *_message_blocks(body)]
        said = [block for role, block in blocks if role != "assistant"]
        return Asked(
            number=number,
            model=str(body["model"]),
            texts=tuple(str(block["text"]) for block in said if block["type"] == "text"),
            tools=tuple(str(tool["name"]) for tool in _objects(body.get("tools"))),
            results=tuple(_result(block) for block in said if block["type"] == "tool_result"),
            schema=_schema(body),
            body=body,
            headers=headers,
        )

    def prefixes(self, asked: Asked) -> Prefixes:
        system, tools = _objects(asked.body.get("system")), _objects(asked.body.get("tools"))
        marked = [index for index, block in enumerate(system) if block.get("cache_control")]
        is_marked = bool(tools) and "cache_control" in tools[-1]
        texts = [canonical_json([*tools])] if is_marked else []
        if marked:
            texts = [canonical_json([[*tools], [*system[: marked[-1] + 1]]])]
        return Prefixes(read=texts, kept=texts)

    def answer_body(self, asked: Asked, answer: Answer, tokens: Tokens) -> JsonObject:
        content: list[Json] = [{"type": "text", "text": answer.text}] if answer.text else []
        content.extend(
            {
                "type": "tool_use",
                "id": f"toolu_{asked.number:06}{index:06}",
                "name": call.tool,
                "input": json.loads(call.arguments),
            }
            for index, call in enumerate(answer.calls)
        )
        return {
            "id": f"msg_{asked.number:012}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": content,
            "stop_reason": "tool_use" if answer.calls else _STOPS[answer.stop],
            "stop_sequence": None,
            "usage": {
                "input_tokens": tokens.sent - tokens.cached - tokens.written,
                "cache_creation_input_tokens": tokens.written,
                "cache_read_input_tokens": tokens.cached,
                "output_tokens": tokens.received,
                "output_tokens_details": {"thinking_tokens": tokens.thought},
                "service_tier": "standard",
            },
        }

    def fault_body(self, fault: Fault, request_id: str) -> JsonObject:
        error: JsonObject = {"type": fault.kind, "message": fault.message}
        return {"type": "error", "error": error, "request_id": request_id}

    def headers(self, request_id: str, *, limit: int, remaining: int) -> dict[str, str]:
        rates = {"limit": str(limit), "remaining": str(remaining), "reset": "2026-11-21T00:00:00Z"}
        return {
            "request-id": request_id,
            "anthropic-organization-id": "00000000-0000-4000-8000-000000000000",
            **{f"anthropic-ratelimit-requests-{name}": value for name, value in rates.items()},
            **{f"anthropic-ratelimit-tokens-{name}": value for name, value in rates.items()},
        }


def _objects(value: Json | None) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _blocks(content: Json, role: str = "user") -> list[tuple[str, JsonObject]]:
    if isinstance(content, str):
        return [(role, {"type": "text", "text": content})]
    return [(role, block) for block in _objects(content)]


def _message_blocks(body: JsonObject) -> list[tuple[str, JsonObject]]:
    return [
        block
        for message in _objects(body["messages"])
        for block in _blocks(message["content"], str(message["role"]))
    ]


def _result(block: JsonObject) -> str:
    texts = [str(inner["text"]) for _, inner in _blocks(block.get("content", ""))]
    return ("error: " if block.get("is_error") else "") + "\n".join(texts)


def _number_faults(body: JsonObject) -> Iterator[str]:
    most = body["max_tokens"]
    if not isinstance(most, int) or most < 1:
        yield "max_tokens: must be greater than or equal to 1"
    marks = canonical_json([body.get(name) for name in _CACHED]).count('"cache_control":{')
    if marks > 4:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."


def _turn_faults(body: JsonObject) -> Iterator[str]:
    messages = _objects(body["messages"])
    if not messages:
        yield "messages: at least one message is required"
        return
    roles = [message["role"] for message in messages]
    if roles[0] != "user":
        yield 'messages: first message must use the "user" role'
    if roles[-1] != "user":
        yield "This model does not support assistant message prefill."
    for index, (before, after) in enumerate(itertools.pairwise(roles), start=1):
        if before == after:
            yield (
                f'messages: roles must alternate between "user" and "assistant", but found '
                f'multiple "{after}" roles in a row at messages.{index}'
            )
    for index, message in enumerate(messages):
        yield from _content_faults(index, message)
    yield from _empty_faults("system", _blocks(body.get("system", [])))
    yield from _answer_faults(messages)


def _content_faults(index: int, message: JsonObject) -> Iterator[str]:
    blocks = _blocks(message["content"])
    if not blocks:
        yield f"messages.{index}: all messages must have non-empty content"
    yield from _empty_faults(f"messages.{index}.content", blocks)
    late = False
    for position, (_, block) in enumerate(blocks):
        if block["type"] == "tool_result" and late:
            yield (
                f"messages.{index}.content.{position}: tool_result blocks must come first in the "
                "content array"
            )
        late = late or block["type"] != "tool_result"


def _empty_faults(place: str, blocks: list[tuple[str, JsonObject]]) -> Iterator[str]:
    for position, (_, block) in enumerate(blocks):
        if block["type"] == "text" and not str(block["text"]).strip():
            yield f"{place}.{position}: text content blocks must contain non-whitespace text"


def _answer_faults(messages: list[JsonObject]) -> Iterator[str]:
    """Every tool_use is answered in the next message, and nothing else is."""
    asked: list[str] = []
    for index, message in enumerate(messages):
        blocks = [block for _, block in _blocks(message["content"])]
        answered = [str(b["tool_use_id"]) for b in blocks if b["type"] == "tool_result"]
        if missing := [name for name in asked if name not in answered]:
            yield (
                f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {', '.join(missing)}. Each `tool_use` block must have a "
                "corresponding `tool_result` block in the next message."
            )
        if foreign := [name for name in answered if name not in asked]:
            yield (
                f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{', '.join(foreign)}. Each `tool_result` block must have a corresponding "
                "`tool_use` block in the previous message."
            )
        if len(set(answered)) < len(answered):
            yield f"messages.{index}: each tool_use must have a single result"
        asked = [str(block["id"]) for block in blocks if block["type"] == "tool_use"]


def _schema_faults(body: JsonObject) -> Iterator[str]:
    tools = _objects(body.get("tools"))
    names = [str(tool["name"]) for tool in tools]
    if len(set(names)) < len(names):
        yield "tools: Tool names must be unique."
    uses = any(block["type"] == "tool_use" for _, block in _message_blocks(body))
    if uses and not tools:
        yield "tools: Requests which include `tool_use` blocks must define tools."
    for index, tool in enumerate(tools):
        schema = tool["input_schema"]
        if isinstance(schema, dict) and schema.get("type") != "object":
            yield f"tools.{index}.custom.input_schema.type: Input should be 'object'"
        if tool.get("strict"):
            yield from _strict_faults(f"tools.{index}.custom", schema)
    yield from _strict_faults("output_config.format.schema", _schema(body))


def _schema(body: JsonObject) -> JsonObject | None:
    """Return the schema that the answer is held to."""
    config = body.get("output_config")
    form = config.get("format") if isinstance(config, dict) else None
    schema = form.get("schema") if isinstance(form, dict) else None
    return schema if isinstance(schema, dict) else None


def _strict_faults(place: str, schema: Json | None) -> Iterator[str]:
    if schema is None:
        return
    for where, fault in loose_places(schema, keywords=_KEYWORDS, all_required=False):
        yield f"{place}: at {'.'.join(where) or 'the root'}: {fault}"
    if isinstance(schema, dict) and is_recursive(schema):
        yield f"{place}: recursive schemas are not supported"
