"""The format of Anthropic's Messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from promptgraft.adapters.anthropic.profile import RULES, AnthropicProfile
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
from promptgraft.prompt.rendered import RenderedPrompt, RenderedTool
from promptgraft.prompt.schema import JsonObject
from promptgraft.serde import Json

_FINISHES = {
    "tool_use": Finish.TOOLS,
    "pause_turn": Finish.PAUSED,
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "refusal": Finish.REFUSED,
}
_CACHED: Json = {"type": "ephemeral"}


@attrs.frozen(kw_only=True)
class AnthropicWire:
    """Requests and answers of one model.

    Attributes:
        model: the model.
        profile: what it can do.
        max_output_tokens: the longest answer.
        stop: texts that end an answer.
        effort: how much it thinks; None for its own choice.
        extra_body: further fields.
    """

    model: str
    profile: AnthropicProfile
    max_output_tokens: int
    stop: tuple[str, ...] = ()
    effort: str | None = None
    extra_body: JsonObject = attrs.field(factory=dict)

    @property
    def rules(self) -> SchemaRules | None:
        """What the model takes as the schema of its answer; None for nothing."""
        return RULES if self.profile.structured_output == "native" else None

    def open(self, rendered: RenderedPrompt[object]) -> JsonObject:
        native = native_schema(rendered, self.rules)
        content = content_of(rendered, say_format=native is None)
        body: JsonObject = {
            "model": self.model,
            "max_tokens": self.max_output_tokens,
            "messages": [{"role": "user", "content": content.user}],
        }
        tools: list[JsonObject] = [_tool(tool) for tool in rendered.tools]
        system: list[JsonObject] = [{"type": "text", "text": content.system}]
        stable = system if content.system else tools
        if self.profile.prompt_caching and stable:
            stable[-1]["cache_control"] = _CACHED
        if tools:
            body["tools"] = [*tools]
        if content.system:
            body["system"] = [*system]
        if self.stop:
            body["stop_sequences"] = [*self.stop]
        config: JsonObject = {} if self.effort is None else {"effort": self.effort}
        if native is not None:
            config["format"] = {"type": "json_schema", "schema": native}
        if config:
            body["output_config"] = config
        return sendable({**body, **self.extra_body})

    def read(self, body: JsonObject) -> Turn:
        answer = read_as(_Answer, body)
        if answer.type != "message" or answer.stop_reason is None:
            raise UnreadableTurnError(
                "the answer does not have the shape of one: expected a whole message, found "
                f"type `{answer.type}` and stop_reason `{answer.stop_reason}`"
            )
        blocks = [read_as(_Block, block) for block in answer.content]
        requests = tuple(
            ToolRequest(id=block.id, name=block.name, arguments=_json(block.input))
            for block in blocks
            if block.type == "tool_use"
        )
        finish = _FINISHES.get(answer.stop_reason, Finish.DONE)
        usage = answer.usage
        read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        return Turn(
            text="".join(block.text or "" for block in blocks if block.type == "text"),
            requests=requests,
            finish=Finish.TOOLS if requests and finish is Finish.DONE else finish,
            finish_reason=answer.stop_reason,
            usage=Usage(
                input_tokens=usage.input_tokens + read + written,
                output_tokens=usage.output_tokens,
                cached_tokens=read,
            ),
            cache_write_tokens=written,
            model=answer.model,
            message={"role": "assistant", "content": _said(answer.content)},
        )

    def extend(self, request: JsonObject, turn: Turn, answers: Sequence[ToolAnswer]) -> JsonObject:
        results: list[Json] = [_result(answer) for answer in answers]
        told: list[Json] = [{"role": "user", "content": results}] if results else []
        messages = request["messages"]
        before = messages if isinstance(messages, list) else []
        return {**request, **sendable({"messages": [*before, turn.message, *told]})}


@attrs.frozen(kw_only=True)
class _Tokens:
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


@attrs.frozen(kw_only=True)
class _Answer:
    type: str
    model: str
    content: list[dict[str, Any]]
    stop_reason: str | None = None
    usage: _Tokens = _Tokens()


@attrs.frozen(kw_only=True)
class _Block:
    type: str
    text: str | None = None
    id: str = ""
    name: str = ""
    input: dict[str, Any] = attrs.field(factory=dict)


def _tool(tool: RenderedTool) -> JsonObject:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": with_object_root(tool.params_schema),
    }


def _said(content: Sequence[JsonObject]) -> list[Json]:
    """Return the blocks of an answer as a request may repeat them: not the empty texts."""
    return [block for block in content if block["type"] != "text" or str(block["text"]).strip()]


def _result(answer: ToolAnswer) -> JsonObject:
    result: JsonObject = {
        "type": "tool_result",
        "tool_use_id": answer.request.id,
        "content": answer.content,
    }
    return {**result, "is_error": True} if answer.failed else result


def _json(value: Mapping[str, Json]) -> str:
    return json.dumps(value, ensure_ascii=False)
