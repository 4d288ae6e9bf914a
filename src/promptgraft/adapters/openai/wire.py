"""The format of OpenAI's Chat Completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from promptgraft.adapters.base import Usage
from promptgraft.adapters.calling.bodies import read_as, sendable
from promptgraft.adapters.calling.content import content_of
from promptgraft.adapters.calling.schemas import SchemaRules, native_schema, with_object_root
from promptgraft.adapters.calling.turns import (
    Finish,
    ToolAnswer,
    ToolRequest,
    Turn,
    UnreadableTurnError,
)
from promptgraft.adapters.openai.profile import RULES, OpenAIProfile
from promptgraft.prompt.rendered import RenderedPrompt, RenderedTool
from promptgraft.prompt.schema import JsonObject
from promptgraft.serde import Json

_FINISHES = {"length": Finish.LENGTH, "content_filter": Finish.REFUSED}


@attrs.frozen(kw_only=True)
class OpenAIWire:
    """Requests and answers of one model; an option that is None is not sent.

    Attributes:
        model: the model.
        profile: what it can do.
        max_output_tokens: the longest answer.
        temperature: how much it varies.
        top_p: the share of likely tokens that it takes from.
        stop: texts that end an answer.
        seed: asks for the same answer again.
        effort: how much it thinks.
        extra_body: further fields.
    """

    model: str
    profile: OpenAIProfile
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    effort: str | None = None
    extra_body: JsonObject = attrs.field(factory=dict)

    @property
    def rules(self) -> SchemaRules | None:
        """What the model takes as the schema of its answer; None for nothing."""
        return RULES if self.profile.structured_output == "native" else None

    def open(self, rendered: RenderedPrompt[object]) -> JsonObject:
        native = native_schema(rendered, self.rules)
        content = content_of(rendered, say_format=native is None)
        messages: list[Json] = [{"role": "user", "content": content.user}]
        if content.system:
            messages.insert(0, {"role": "system", "content": content.system})
        body: JsonObject = {"model": self.model, "messages": messages, **self._options()}
        if rendered.tools:
            body["tools"] = [_tool(tool) for tool in rendered.tools]
        if native is not None:
            answer: JsonObject = {"name": "answer", "schema": native, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": answer}
        return sendable({**body, **self.extra_body})

    def read(self, body: JsonObject) -> Turn:
        answer = read_as(_Answer, body)
        if not answer.choices or answer.choices[0].finish_reason is None:
            raise UnreadableTurnError(
                "the answer does not have the shape of one: expected a choice with a "
                f"finish_reason, found {len(answer.choices)} choices"
            )
        choice = answer.choices[0]
        message, reason = choice.message, choice.finish_reason or ""
        calls = [read_as(_ToolCall, call) for call in message.tool_calls or ()]
        requests = tuple(
            ToolRequest(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in calls
        )
        finish = _FINISHES.get(reason, Finish.TOOLS if requests else Finish.DONE)
        usage = answer.usage or _Tokens()
        details = usage.prompt_tokens_details or _Details()
        return Turn(
            text=message.content or message.refusal or "",
            requests=requests,
            finish=Finish.REFUSED if message.refusal else finish,
            finish_reason="refusal" if message.refusal else reason,
            usage=Usage(
                input_tokens=usage.prompt_tokens,
                output_tokens=usage.completion_tokens,
                cached_tokens=details.cached_tokens or 0,
            ),
            cache_write_tokens=details.cache_write_tokens or 0,
            model=answer.model or self.model,
            message={
                "role": "assistant",
                "content": message.content,
                "tool_calls": [*(message.tool_calls or ())],
            },
        )

    def extend(self, request: JsonObject, turn: Turn, answers: Sequence[ToolAnswer]) -> JsonObject:
        told: list[Json] = [_told(answer) for answer in answers]
        messages = request["messages"]
        before = messages if isinstance(messages, list) else []
        return {**request, **sendable({"messages": [*before, turn.message, *told]})}

    def _options(self) -> JsonObject:
        given: JsonObject = {
            self.profile.output_limit: self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "stop": [*self.stop] or None,
            "seed": self.seed,
            "reasoning_effort": self.effort,
        }
        return {name: value for name, value in given.items() if value is not None}


@attrs.frozen(kw_only=True)
class _Function:
    name: str
    arguments: str = ""


@attrs.frozen(kw_only=True)
class _ToolCall:
    id: str
    function: _Function


@attrs.frozen(kw_only=True)
class _Message:
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


@attrs.frozen(kw_only=True)
class _Choice:
    message: _Message
    finish_reason: str | None = None


@attrs.frozen(kw_only=True)
class _Details:
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


@attrs.frozen(kw_only=True)
class _Tokens:
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


@attrs.frozen(kw_only=True)
class _Answer:
    choices: list[_Choice]
    model: str | None = None
    usage: _Tokens | None = None


def _tool(tool: RenderedTool) -> JsonObject:
    function: JsonObject = {
        "name": tool.name,
        "description": tool.description,
        "parameters": with_object_root(tool.params_schema),
    }
    return {"type": "function", "function": function}


def _told(answer: ToolAnswer) -> JsonObject:
    content = f"Error: {answer.content}" if answer.failed else answer.content
    return {"role": "tool", "tool_call_id": answer.request.id, "content": content}
