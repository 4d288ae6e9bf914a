"""OpenAI's Chat Completions: ``POST /v1/chat/completions``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

from promptgraft.ground.serde import Json, canonical_json
from servers.behaviour import Answer, Asked, Fault, JsonObject, Stop
from servers.provider import Prefixes, Tokens
from servers.shapes import loose_places, misfit, shape_of

# What OpenAI's `strict` takes beside what every provider takes.
_KEYWORDS = (
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maximum",
    "minItems",
    "minimum",
    "multipleOf",
)
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ALWAYS_REASONS = re.compile(r"o\d|gpt-5(?:-|$)")
_MAY_REASON = re.compile(r"o\d|gpt-[5-9](?!.*-chat)")
_TOOLS_ELSEWHERE = re.compile(r"gpt-5\.(?:[4-9]|\d\d)|gpt-[6-9]")
_INVALID = "invalid_request_error"
_ORPHAN = (
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message "
    "with 'tool_calls'."
)
_USUAL = {
    400: (_INVALID, "The request is not valid.", None),
    402: (_INVALID, "Your account has no credit left.", "billing_not_active"),
    403: (_INVALID, "Country, region, or territory not supported", "unsupported_country"),
    404: (_INVALID, "Invalid URL (POST /v1/chat/completion)", None),
    405: (_INVALID, "Not allowed to POST on /v1/chat/completions.", None),
    408: ("server_error", "Request timed out.", None),
    409: (_INVALID, "The request conflicts with another one.", None),
    413: (_INVALID, "The request is too large.", None),
    422: (_INVALID, "The request cannot be processed.", None),
    425: ("server_error", "Too early.", None),
    429: (
        "requests",
        "Rate limit reached for requests per min (RPM): Limit 500, Used 500, Requested 1.",
        "rate_limit_exceeded",
    ),
    503: ("server_error", "The engine is currently overloaded, please try again later.", None),
}
_FAILED = (
    "server_error",
    "The server had an error while processing your request. Sorry about that!",
    None,
)
_STOPS = {
    Stop.DONE: "stop",
    Stop.LENGTH: "length",
    Stop.REFUSED: "stop",
    Stop.FILTERED: "content_filter",
}


def invalid(message: str, param: str | None = None) -> Fault:
    """Return the error for a request that breaks a rule."""
    return Fault(status=400, kind=_INVALID, message=message, param=param)


class OpenAIChat:
    """The protocol of OpenAI's Chat Completions."""

    name = "openai"
    path = "/v1/chat/completions"
    base_path = "/v1"
    cached_in_steps_of = 128

    def __init__(self) -> None:
        shape_of(CompletionCreateParamsNonStreaming)  # takes too long for the first request

    def error_text(self, path: str) -> JsonObject | None:
        return {} if path == self.path else None

    def key_of(self, headers: Mapping[str, str]) -> str | None:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        return key if scheme == "Bearer" and key else None

    def fault(self, status: int) -> Fault:
        kind, message, code = _USUAL.get(status, _FAILED)
        return Fault(status=status, kind=kind, message=message, code=code)

    def wrong_key(self, key: str | None) -> Fault:
        if key is None:
            message = "You didn't provide an API key. You need to provide your API key in an header"
            return Fault(status=401, kind=_INVALID, message=message)
        starred = f"{key[:8]}{'*' * max(0, len(key) - 12)}{key[-4:]}"
        message = (
            f"Incorrect API key provided: {starred}. You can find your API key at "
            "https://platform.openai.com/account/api-keys."
        )
        return Fault(status=401, kind=_INVALID, message=message, code="invalid_api_key")

    def no_model(self, model: str) -> Fault:
        message = f"The model `{model}` does not exist or you do not have access to it."
        return Fault(status=404, kind=_INVALID, message=message, code="model_not_found")

    def check(self, body: JsonObject, headers: Mapping[str, str]) -> Fault | None:
        if unfit := misfit(CompletionCreateParamsNonStreaming, body):
            return invalid(f"Invalid '{unfit[0]}': {unfit[1]}", unfit[0])
        faults = itertools.chain(
            _value_faults(body), _model_faults(body), _turn_faults(body), _schema_faults(body)
        )
        return next((invalid(message, param) for message, param in faults), None)

    def read(self, body: JsonObject, headers: Mapping[str, str], number: int) -> Asked:
        messages = objects(body["messages"])
        said = [message for message in messages if message["role"] not in {"assistant", "tool"}]
        return Asked(
            number=number,
            model=str(body["model"]),
            texts=tuple(text for message in said for text in _texts(message["content"])),
            tools=tuple(str(_function(tool)["name"]) for tool in objects(body.get("tools"))),
            results=tuple(
                "\n".join(_texts(message["content"]))
                for message in messages
                if message["role"] == "tool"
            ),
            schema=_schema(body),
            body=body,
            headers=headers,
        )

    def prefixes(self, asked: Asked) -> Prefixes:
        return prefixes_of(asked, [*objects(asked.body["messages"])])

    def answer_body(self, asked: Asked, answer: Answer, tokens: Tokens) -> JsonObject:
        refused = answer.stop is Stop.REFUSED
        message: JsonObject = {
            "role": "assistant",
            "content": None if refused or (answer.calls and not answer.text) else answer.text,
            "refusal": answer.text if refused else None,
            "annotations": [],
        }
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{asked.number:06}{index:06}",
                    "type": "function",
                    "function": {"name": call.tool, "arguments": call.arguments},
                }
                for index, call in enumerate(answer.calls)
            ]
        finish = "tool_calls" if answer.calls else _STOPS[answer.stop]
        return {
            "id": f"chatcmpl-{asked.number:012}",
            "object": "chat.completion",
            "created": 1_795_000_000,
            "model": asked.model,
            "choices": [
                {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
            ],
            "usage": {
                "prompt_tokens": tokens.sent,
                "completion_tokens": tokens.received,
                "total_tokens": tokens.sent + tokens.received,
                "prompt_tokens_details": {
                    "cached_tokens": tokens.cached,
                    "cache_write_tokens": tokens.written,
                    "audio_tokens": 0,
                },
                "completion_tokens_details": {
                    "reasoning_tokens": tokens.thought,
                    "audio_tokens": 0,
                },
            },
            "service_tier": "default",
            "system_fingerprint": "fp_0123456789",
        }

    def fault_body(self, fault: Fault, request_id: str) -> JsonObject:
        error: JsonObject = {
            "message": fault.message,
            "type": fault.kind,
            "param": fault.param,
            "code": fault.code,
        }
        return {"error": error}

    def headers(self, request_id: str, *, limit: int, remaining: int) -> dict[str, str]:
        return {
            "x-request-id": request_id,
            "openai-organization": "org-loopback",
            "openai-processing-ms": "1",
            "openai-version": "2020-10-01",
            "x-ratelimit-limit-requests": str(limit),
            "x-ratelimit-remaining-requests": str(remaining),
            "x-ratelimit-reset-requests": "1ms",
            "x-ratelimit-limit-tokens": "1000000",
            "x-ratelimit-remaining-tokens": "999000",
            "x-ratelimit-reset-tokens": "6ms",
        }


_PAYS_FOR_WRITES = re.compile(r"gpt-5\.(?:[6-9]|\d\d)|gpt-[6-9]")
_STEP = 512
"""Characters of 128 tokens."""


def prefixes_of(asked: Asked, messages: list[JsonObject]) -> Prefixes:
    """Return what OpenAI caches of a request, by the rules of the model's generation."""
    tools = canonical_json(asked.body.get("tools"))
    if not _PAYS_FOR_WRITES.match(asked.model):
        whole = tools + "".join(map(canonical_json, messages))
        steps = [whole[:end] for end in range(_STEP, len(whole) + 1, _STEP)]
        return Prefixes(read=steps, kept=steps, are_paid=False)
    options = asked.body.get("prompt_cache_options")
    is_explicit = isinstance(options, dict) and options.get("mode") == "explicit"
    read, kept, text = [], [], tools
    for index, message in enumerate(messages):
        text += canonical_json(message)
        is_marked = '"prompt_cache_breakpoint"' in canonical_json(message)
        # What an earlier turn ended with was a breakpoint then.
        read += [text] if is_marked or not is_explicit else []
        is_last = index == len(messages) - 1
        kept += [text] if is_marked or (is_last and not is_explicit) else []
    return Prefixes(read=read, kept=kept)


def objects(value: Json | None) -> list[JsonObject]:
    """Return the objects in a list; none of anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _function(tool: JsonObject) -> JsonObject:
    found = tool.get("function")
    return found if isinstance(found, dict) else {"name": ""}


def _texts(content: Json) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [str(part["text"]) for part in objects(content) if part["type"] == "text"]


def _value_faults(body: JsonObject) -> Iterator[tuple[str, str]]:
    for name in ("max_tokens", "max_completion_tokens"):
        most = body.get(name)
        if isinstance(most, int) and most < 1:
            yield f"Invalid '{name}': integer below minimum value.", name
    if "max_tokens" in body and "max_completion_tokens" in body:
        yield "Setting 'max_tokens' and 'max_completion_tokens' at the same time.", "max_tokens"
    if "parallel_tool_calls" in body and not body.get("tools"):
        param = "parallel_tool_calls"
        yield "'parallel_tool_calls' is only allowed when 'tools' are specified.", param


def _model_faults(body: JsonObject) -> Iterator[tuple[str, str]]:
    """Models that reason take fewer parameters, and the latest no tools."""
    model, effort = str(body["model"]), body.get("reasoning_effort")
    if body.get("tools") and _TOOLS_ELSEWHERE.match(model) and effort != "none":
        yield (
            (
                f"Function tools with reasoning_effort are not supported for {model} in "
                "/v1/chat/completions. To use function tools, use /v1/responses or set "
                "reasoning_effort to 'none'."
            ),
            "reasoning_effort",
        )
    if not may_reason(model):
        return
    if "max_tokens" in body:
        yield (
            (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead."
            ),
            "max_tokens",
        )
    yield from sampling_faults(body, effort)


def may_reason(model: str) -> bool:
    """Return whether a model of OpenAI reasons, at least where it is asked to."""
    return _MAY_REASON.match(model) is not None


def sampling_faults(body: JsonObject, effort: Json) -> Iterator[tuple[str, str]]:
    """Yield the sampling parameters of a request that a model that reasons does not take."""
    always = _ALWAYS_REASONS.match(str(body["model"])) is not None
    for name in ("temperature", "top_p") if always or effort != "none" else ():
        if body.get(name, 1) != 1:
            fault = f"Unsupported value: '{name}' does not support {body[name]} with this model."
            yield f"{fault} Only the default (1) value is supported.", name


def _turn_faults(body: JsonObject) -> Iterator[tuple[str, str]]:
    messages = objects(body["messages"])
    if not messages:
        yield "Invalid 'messages': empty array.", "messages"
    waiting: list[str] = []
    for index, message in enumerate(messages):
        param = f"messages.[{index}].role"
        if message["role"] == "tool":
            if str(message["tool_call_id"]) not in waiting:
                yield _ORPHAN, param
                return
            waiting.remove(str(message["tool_call_id"]))
            continue
        if waiting:
            yield _unanswered(waiting, param)
            return
        waiting = [str(call["id"]) for call in objects(message.get("tool_calls"))]
        if message["role"] == "assistant" and message.get("content") is None and not waiting:
            yield "Invalid value for 'content': expected a string, got null.", param
    if waiting:
        yield _unanswered(waiting, f"messages.[{len(messages)}].role")


def _unanswered(ids: list[str], param: str) -> tuple[str, str]:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        "each 'tool_call_id'. The following tool_call_ids did not have response messages: "
        f"{', '.join(ids)}"
    ), param


def _schema_faults(body: JsonObject) -> Iterator[tuple[str, str]]:
    tools = body.get("tools")
    if tools == []:
        yield "Invalid 'tools': empty array. Expected an array with minimum length 1.", "tools"
    for index, tool in enumerate(objects(tools)):
        function = _function(tool)
        param = f"tools[{index}].function"
        if not NAME.fullmatch(str(function["name"])):
            yield f"Invalid '{param}.name': string does not match pattern.", f"{param}.name"
        if function.get("strict"):
            what = f"function '{function['name']}'"
            yield from strict_faults(what, f"{param}.parameters", function.get("parameters"))
    form = body.get("response_format")
    if not isinstance(form, dict) or form.get("type") == "text":
        return
    if form.get("type") == "json_object" and "json" not in canonical_json(body["messages"]).lower():
        yield (
            (
                "'messages' must contain the word 'json' in some form, to use 'response_format' of "
                "type 'json_object'."
            ),
            "messages",
        )
    described = form.get("json_schema")
    if not isinstance(described, dict):
        return
    name = str(described["name"])
    if not NAME.fullmatch(name):
        param = "response_format.json_schema.name"
        yield f"Invalid '{param}': string does not match pattern.", param
    if described.get("strict"):
        yield from strict_faults(
            f"response_format '{name}'", "response_format", described.get("schema")
        )


def _schema(body: JsonObject) -> JsonObject | None:
    """Return the schema that the answer is held to."""
    form = body.get("response_format")
    described = form.get("json_schema") if isinstance(form, dict) else None
    schema = described.get("schema") if isinstance(described, dict) else None
    return schema if isinstance(schema, dict) else None


def strict_faults(what: str, param: str, schema: Json | None) -> Iterator[tuple[str, str]]:
    """Yield what OpenAI does not take in a schema that is strict."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        found = schema.get("type") if isinstance(schema, dict) else None
        wanted = f"a JSON Schema of 'type: \"object\"', got 'type: \"{found}\"'"
        yield f"Invalid schema for {what}: schema must be {wanted}.", param
    for where, fault in loose_places(schema, keywords=_KEYWORDS, all_required=True):
        yield f"Invalid schema for {what}: In context={where}, {fault}.", param
