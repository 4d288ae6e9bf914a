"""The wire format of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import msgspec

from promptgraft.adapters.base import Usage
from promptgraft.adapters.calling import turns
from promptgraft.adapters.calling.parts import check_seen, responses_content
from promptgraft.adapters.calling.schemas import SchemaRules, native_schema, with_object_root
from promptgraft.ground.serde import Json, digest
from promptgraft.prompt.by_role import by_role
from promptgraft.prompt.rendered import RenderedPrompt, RenderedTool
from promptgraft.prompt.schema import JsonObject

PATH = "/responses"
IF_ABSENT = "set `api: chat` for this model, or check base_url"
"""The advice for a server without this path, as most compatible ones are."""

TAKEN = {
    "model": "model",
    "max_output_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "input": "the prompt",
    "instructions": "the prompt",
    "messages": "the prompt",
    "tools": "the prompt",
    "background": "the adapter",
    "conversation": "the adapter",
    "previous_response_id": "the adapter",
}
"""Request fields that ``extra_body`` must not set, with what sets them."""

CHAT_ONLY = frozenset(
    {
        "audio",
        "frequency_penalty",
        "function_call",
        "functions",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "modalities",
        "n",
        "prediction",
        "presence_penalty",
        "reasoning_effort",
        "response_format",
        "seed",
        "stop",
        "verbosity",
        "web_search_options",
    }
)
"""Fields of a request for Chat Completions that the Responses API does not have."""

SHORTEST = 16
"""The least limit on an answer that the Responses API takes, in tokens."""


BREAKPOINT: JsonObject = {"prompt_cache_breakpoint": {"mode": "explicit"}}
"""Marks the end of a part of a message as that of a beginning to be cached."""


def cache_options(stable: Json, *, has_tools: bool) -> JsonObject:
    """Return the fields of a request to a model that caches at breakpoints.

    Args:
        stable: the part of the request that is the same for all cases of a candidate.
        has_tools: whether further turns of the conversation may follow.
    """
    options: JsonObject = {"prompt_cache_key": f"promptgraft-{digest(stable)[:32]}"}
    if not has_tools:
        # Otherwise each whole prompt would be written to the cache too, for a quarter more, and
        # nothing would ever read it.
        options["prompt_cache_options"] = {"mode": "explicit"}
    return options


@attrs.frozen(kw_only=True)
class ResponsesWire:
    """Encodes requests to one model and decodes its answers.

    Attributes:
        rules: what it accepts as the schema of its answer; None if it accepts none.
        cache_breakpoints: whether the prompt cache holds only what ends at a breakpoint.
        sees: whether it sees images; None if that is not known.
        options: further fields of each request.
    """

    model: str
    rules: SchemaRules | None
    sees: bool | None
    cache_breakpoints: bool = False
    options: JsonObject = attrs.field(hash=False)

    def open(self, rendered: RenderedPrompt[object]) -> JsonObject:
        native = native_schema(rendered, self.rules)
        content = by_role(rendered, say_format=native is None)
        check_seen(content.content, sees=self.sees, model=self.model)
        user: JsonObject = {"role": "user", "content": responses_content(content.content)}
        body: JsonObject = {"model": self.model, "input": [user]}
        if content.system and self.cache_breakpoints:
            part: JsonObject = {"type": "input_text", "text": content.system}
            system: JsonObject = {"role": "developer", "content": [{**part, **BREAKPOINT}]}
            body["input"] = [system, user]
        elif content.system:
            body["instructions"] = content.system
        if rendered.tools:
            body["tools"] = [_tool(tool) for tool in rendered.tools]
        if self.cache_breakpoints:
            body |= cache_options(self.stable(body), has_tools=bool(rendered.tools))
        body |= self.options
        if native is not None:
            form: JsonObject = {"name": "answer", "schema": native, "strict": True}
            text = body.get("text")
            further = text if isinstance(text, dict) else {}
            body["text"] = {**further, "format": {"type": "json_schema", **form}}
        return turns.sendable(body)

    def read(self, body: JsonObject) -> turns.Turn:
        answer = turns.read_as(_Answer, body)
        if answer.status not in {"completed", "incomplete"}:
            raise turns.misshapen(
                f"expected the status `completed` or `incomplete`, found `{answer.status}`"
            )
        items = [turns.read_as(_Item, item) for item in answer.output]
        refusal = _text_in(items, "refusal")
        finish, reason = _finish(answer, refusal=refusal)
        requests = tuple(_request(item) for item in items if item.type == "function_call")
        usage, written = self.counted(body)
        return turns.Turn(
            text=refusal or _text_in(items, "output_text"),
            requests=requests,
            finish=turns.Finish.TOOLS if requests and finish is turns.Finish.DONE else finish,
            finish_reason=reason,
            usage=usage,
            cache_write_tokens=written,
            model=answer.model or self.model,
            messages=tuple(item for item in answer.output if _is_repeatable(item)),
        )

    def counted(self, body: JsonObject) -> tuple[Usage, int]:
        return openai_usage(body.get("usage"))

    def stable(self, body: JsonObject) -> Json:
        input_items = body.get("input")
        first = input_items[0] if isinstance(input_items, list) and input_items else None
        is_system = isinstance(first, dict) and first.get("role") == "developer"
        return [body.get("tools"), body.get("instructions"), first if is_system else None]

    def extend(
        self, request: JsonObject, turn: turns.Turn, answers: Sequence[turns.ToolAnswer]
    ) -> JsonObject:
        return turns.extended(request, turn, [_reply(answer) for answer in answers], field="input")


class _CacheTokens(msgspec.Struct, frozen=True):
    cached_tokens: turns.Tokens | None = None
    cache_write_tokens: turns.Tokens | None = None


class _ThoughtTokens(msgspec.Struct, frozen=True):
    reasoning_tokens: turns.Tokens | None = None


class _Tokens(msgspec.Struct, frozen=True):
    input_tokens: turns.Tokens | None = None
    output_tokens: turns.Tokens | None = None
    total_tokens: turns.Tokens | None = None
    cached_tokens: turns.Tokens | None = None
    input_tokens_details: _CacheTokens | None = None
    output_tokens_details: _ThoughtTokens | None = None


_NAMES_IN_CHAT = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "prompt_cache_hit_tokens": "cached_tokens",  # DeepSeek; Moonshot has `cached_tokens`
    "prompt_tokens_details": "input_tokens_details",
    "completion_tokens_details": "output_tokens_details",
}


def openai_usage(counts: object) -> tuple[Usage, int]:
    """Return the tokens of an answer of either API of OpenAI, and those written to its cache."""
    if isinstance(counts, dict):
        renamed = {name: counts[key] for key, name in _NAMES_IN_CHAT.items() if key in counts}
        counts = {**counts, **renamed}
    tokens = turns.counted_in(_Tokens, counts)
    cache = tokens.input_tokens_details or _CacheTokens()
    thought = tokens.output_tokens_details or _ThoughtTokens()
    written = cache.cache_write_tokens or 0
    sent, received = tokens.input_tokens, tokens.output_tokens
    # Gemini and xAI count thoughts in the total only, or beside the answer; all of it is charged.
    beside = (tokens.total_tokens or 0) - (sent or 0) - (received or 0)
    usage = turns.usage_of(
        sent,
        None if received is None else received + max(0, beside),
        cached=cache.cached_tokens or tokens.cached_tokens or 0,
        written=written,
        reasoning=max(thought.reasoning_tokens or 0, beside),
    )
    return usage, written


class _Incomplete(msgspec.Struct, frozen=True):
    reason: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    output: list[dict[str, Any]]
    status: str | None = None
    incomplete_details: _Incomplete | None = None
    model: str | None = None


class _Part(msgspec.Struct, frozen=True):
    type: str
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct, frozen=True):
    """An item of the output: a message, a call of a function, thoughts, or another kind."""

    type: str
    content: list[_Part] | None = None
    phase: str | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""


def _finish(answer: _Answer, *, refusal: str) -> tuple[turns.Finish, str]:
    """Return why the model stopped, and the same in the provider's terms."""
    if refusal:
        return turns.Finish.REFUSED, "refusal"
    if answer.status == "completed":
        return turns.Finish.DONE, "completed"
    reason = (answer.incomplete_details or _Incomplete()).reason or "incomplete"
    return (turns.Finish.REFUSED if reason == "content_filter" else turns.Finish.LENGTH), reason


def _text_in(items: Sequence[_Item], kind: str) -> str:
    """Return the text of one kind in the messages of an answer."""
    messages = [item for item in items if item.type == "message"]
    # Some models say what they are about to do before they answer.
    answers = [item for item in messages if item.phase != "commentary"] or messages
    parts = [part for item in answers for part in item.content or () if part.type == kind]
    return "".join((part.refusal if kind == "refusal" else part.text) or "" for part in parts)


def _request(item: _Item) -> turns.ToolRequest:
    if not (item.call_id and item.name):
        raise turns.misshapen("expected `call_id` and `name` in an item of type `function_call`")
    return turns.ToolRequest(id=item.call_id, name=item.name, arguments=item.arguments)


def _is_repeatable(item: JsonObject) -> bool:
    """Return whether a request may repeat an item: thoughts only if they come with it."""
    # Nothing is stored, so thoughts that are named but not sent along would not be found.
    return item.get("type") != "reasoning" or bool(
        item.get("encrypted_content") or item.get("content")
    )


def _tool(tool: RenderedTool) -> JsonObject:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": with_object_root(tool.params_schema),
        # The default is true, which refuses schemas with optional parameters.
        "strict": False,
    }


def _reply(answer: turns.ToolAnswer) -> JsonObject:
    return {"type": "function_call_output", "call_id": answer.request.id, "output": answer.text}
