"""Anthropic's Messages API: profiles of its models, the wire format, and the adapter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import attrs
import msgspec

from promptgraft.adapters.base import Usage
from promptgraft.adapters.calling import schemas, turns
from promptgraft.adapters.calling.access import Access, Api
from promptgraft.adapters.calling.adapter import ModelAdapter
from promptgraft.adapters.calling.parts import check_seen, messages_content
from promptgraft.adapters.facts import cache_of, facts_of
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import SHARE, instance, number
from promptgraft.prompt.by_role import by_role
from promptgraft.prompt.rendered import RenderedPrompt, RenderedTool
from promptgraft.prompt.schema import JsonObject

MESSAGES = Api(
    adapter="AnthropicAdapter",
    provider="anthropic",
    packages=("anthropic", "genai_prices", "stamina"),
    address_variable="ANTHROPIC_BASE_URL",
    client="AsyncAnthropic",
    path="/v1/messages",
    taken={
        "model": "model",
        "max_tokens": "max_output_tokens",
        "stop_sequences": "stop",
        "temperature": "temperature",
        "top_p": "top_p",
        "output_config": "effort and the prompt's output type",
        "system": "the prompt",
        "messages": "the prompt",
        "tools": "the prompt",
        "stream": "the adapter",
    },
)
"""Anthropic's own API."""

RULES = schemas.SchemaRules(keywords=frozenset({"format"}), all_required=False, recursive=False)
"""What Anthropic accepts in the schema of an answer."""

# The last version of the API with sampling options; the SDK sends a later one.
_VERSION_WITH_SAMPLING = "2023-06-01"
_VERSION = "anthropic-version"
# The longest answer by default.
_LONGEST = 8192


@attrs.frozen(kw_only=True)
class AnthropicProfile(schemas.ModelProfile):
    """The capabilities of a model behind the Messages API.

    Attributes:
        prompt_caching: whether the system text is marked for caching.
        max_output_tokens: the default limit on the answer, which the API requires.
        sampling: whether the model accepts `temperature` and `top_p`.
    """

    schema_rules: ClassVar[schemas.SchemaRules] = RULES

    prompt_caching: bool = False
    max_output_tokens: int = 4096
    sampling: bool = True


def profile_of(model: str) -> AnthropicProfile:
    """Return the profile for the name of a model; the minimum for any other than Claude."""
    # Gateways put a vendor before the name, such as `anthropic/claude-…`.
    name = model.rpartition("/")[2]
    # Bedrock puts regions and a vendor before it, such as `us.anthropic.claude-…`.
    facts = facts_of("anthropic", name[max(0, name.find("claude-")) :])
    if facts is None:
        return AnthropicProfile.of(None)
    sampling = facts.takes_sampling(None)
    if not name.startswith("claude-"):
        return AnthropicProfile.of(facts, structured_output="text", efforts=(), sampling=sampling)
    return AnthropicProfile.of(
        facts,
        prompt_caching=True,
        cached_from=cache_of("anthropic", name).tokens,
        max_output_tokens=min(facts.largest_output or _LONGEST, _LONGEST),
        sampling=sampling,
        seller="anthropic",
    )


_FINISHES = {
    "tool_use": turns.Finish.TOOLS,
    "pause_turn": turns.Finish.PAUSED,
    "max_tokens": turns.Finish.LENGTH,
    "model_context_window_exceeded": turns.Finish.LENGTH,
    "refusal": turns.Finish.REFUSED,
}
_CACHED: Json = {"type": "ephemeral"}


@attrs.frozen(kw_only=True)
class AnthropicWire:
    """Encodes requests to one model and decodes its answers.

    Attributes:
        effort: thinking effort, which shares a field with the schema of the answer; None for the
            model's default.
        options: further fields of each request.
    """

    model: str
    profile: AnthropicProfile
    effort: str | None
    options: JsonObject = attrs.field(hash=False)

    def open(self, rendered: RenderedPrompt[object]) -> JsonObject:
        native = schemas.native_schema(rendered, self.profile.rules)
        sent = by_role(rendered, say_format=native is None)
        check_seen(sent.content, sees=self.profile.sees, model=self.model)
        body: JsonObject = {
            "model": self.model,
            "messages": [{"role": "user", "content": messages_content(sent.content)}],
            **self.options,
        }
        tools: list[JsonObject] = [_tool(tool) for tool in rendered.tools]
        system: list[JsonObject] = [{"type": "text", "text": sent.system}]
        # The cached prefix ends at the mark; tools come before the system text, so it covers both.
        stable = system if sent.system else tools
        if self.profile.prompt_caching and stable:
            stable[-1]["cache_control"] = _CACHED
        if tools:
            body["tools"] = [*tools]
        if sent.system:
            body["system"] = [*system]
        config: JsonObject = {} if self.effort is None else {"effort": self.effort}
        if native is not None:
            config["format"] = {"type": "json_schema", "schema": native}
        if config:
            body["output_config"] = config
        return turns.sendable(body)

    def read(self, body: JsonObject) -> turns.Turn:
        answer = turns.read_as(_Answer, body)
        if answer.type != "message" or answer.stop_reason is None:
            raise turns.misshapen(
                "expected a whole message, "
                f"found type `{answer.type}` and stop_reason `{answer.stop_reason}`"
            )
        blocks = [_read_block(block) for block in answer.content]
        requests = tuple(
            turns.ToolRequest(
                id=block.id, name=block.name, arguments=json.dumps(block.input, ensure_ascii=False)
            )
            for block in blocks
            if block.type == "tool_use"
        )
        finish = _FINISHES.get(answer.stop_reason, turns.Finish.DONE)
        usage, written = self.counted(body)
        return turns.Turn(
            text="".join(block.text or "" for block in blocks if block.type == "text"),
            requests=requests,
            # Compatible servers may give another reason beside calls of tools.
            finish=turns.Finish.TOOLS if requests and finish is turns.Finish.DONE else finish,
            finish_reason=answer.stop_reason,
            usage=usage,
            cache_write_tokens=written,
            model=answer.model or self.model,
            messages=({"role": "assistant", "content": _repeatable(answer.content)},),
        )

    def counted(self, body: JsonObject) -> tuple[Usage, int]:
        tokens = turns.counted_in(_Tokens, body.get("usage"))
        read, written = tokens.cache_read_input_tokens or 0, tokens.cache_creation_input_tokens or 0
        usage = turns.usage_of(
            # Anthropic's input tokens leave out those of the cache; ours include them.
            None if tokens.input_tokens is None else tokens.input_tokens + read + written,
            tokens.output_tokens,
            cached=read,
            written=written,
            reasoning=(tokens.output_tokens_details or _Thought()).thinking_tokens or 0,
        )
        return usage, written

    def stable(self, body: JsonObject) -> Json:
        return [body.get("tools"), body.get("system")]

    def extend(
        self, request: JsonObject, turn: turns.Turn, answers: Sequence[turns.ToolAnswer]
    ) -> JsonObject:
        results: list[Json] = [_result(answer) for answer in answers]
        return turns.extended(
            request, turn, [{"role": "user", "content": results}] if results else []
        )


class _Thought(msgspec.Struct, frozen=True):
    thinking_tokens: turns.Tokens | None = None


class _Tokens(msgspec.Struct, frozen=True):
    input_tokens: turns.Tokens | None = None
    output_tokens: turns.Tokens | None = None
    cache_read_input_tokens: turns.Tokens | None = None
    cache_creation_input_tokens: turns.Tokens | None = None
    output_tokens_details: _Thought | None = None


class _Answer(msgspec.Struct, frozen=True):
    type: str
    content: list[dict[str, Any]]
    model: str | None = None
    stop_reason: str | None = None


class _Block(msgspec.Struct, frozen=True):
    type: str
    text: str | None = None
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}


def _read_block(block: JsonObject) -> _Block:
    fields = turns.read_as(_Block, block)
    lacks_text = fields.type == "text" and fields.text is None
    if lacks_text or (fields.type == "tool_use" and not (fields.id and fields.name)):
        expected = "`text`" if lacks_text else "`id` and `name`"
        raise turns.misshapen(f"expected {expected} in a block of type `{fields.type}`")
    return fields


def _tool(tool: RenderedTool) -> JsonObject:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": schemas.with_object_root(tool.params_schema),
    }


def _repeatable(content: Sequence[JsonObject]) -> list[Json]:
    """Return the blocks of an answer as a request may repeat them: the API refuses empty texts."""
    return [block for block in content if block["type"] != "text" or str(block["text"]).strip()]


def _result(answer: turns.ToolAnswer) -> JsonObject:
    result: JsonObject = {
        "type": "tool_result",
        "tool_use_id": answer.request.id,
        "content": answer.content,
    }
    return {**result, "is_error": True} if answer.failed else result


@attrs.frozen(eq=False, kw_only=True)
class AnthropicAdapter(ModelAdapter):
    """Answers prompts through Anthropic's Messages API, or with a compatible server.

    Args:
        model: the model, such as ``claude-sonnet-5-5``.
        max_output_tokens: limit on the answer, including thinking; the profile's when it is None.
        temperature: sampling temperature, from 0 to 1.
        top_p: probability mass for nucleus sampling, from 0 to 1.
        stop: stop sequences.
        effort: thinking effort: ``low``, ``medium``, ``high``, ...
        vision: whether the model sees images; by what is known of it when it is None.
        extra_body: further fields of each request.
        api_key: the key; ``ANTHROPIC_API_KEY`` or ``ANTHROPIC_AUTH_TOKEN`` when it is None.
        base_url: the address of a compatible server, without ``/v1/messages``;
            ``ANTHROPIC_BASE_URL`` or Anthropic's own when it is None.
        headers: further headers of each request.
        timeout: seconds of wall time for one request.
        policy: attempts and waits of a call.
        max_concurrency: most requests in flight; None to adapt to the provider's limits only.
        max_tool_rounds: rounds of tool calls before the model must answer.
        ask_once: send equal requests once per process, except those of the search: a request
            that equals an earlier one byte for byte gets its answer. Needs ``temperature=0``.
        prices: prices of tokens.
        mode: ``batch`` to evaluate whole sets in batches, at half the price and within a day;
            ``call`` to send every request by itself.
        batch_poll: seconds between two checks of a batch.
        batch_timeout: seconds that a call waits for its batches, including retries.
        profile: capabilities of the model; derived from its name when it is None.

    Raises:
        ConfigError: an option is out of range or not supported by the model, or there is no key.
    """

    service: ClassVar[Api] = MESSAGES
    vendor: ClassVar[Literal["anthropic", "openai"]] = "anthropic"

    temperature: float | None = attrs.field(default=None, validator=number(0, 1).or_none)
    top_p: float | None = attrs.field(default=None, validator=SHARE.or_none)
    profile: AnthropicProfile | None = attrs.field(
        default=None, validator=instance(AnthropicProfile).or_none
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for name in () if self._known.sampling else self._sampling:
            raise ConfigError(
                f"{self.service.adapter}: {name}: `{self.model}` does not take it; leave it out, "
                "or give profile=AnthropicProfile(sampling=True, ...)"
            )

    @property
    def _sampling(self) -> dict[str, float]:
        """The sampling options that are set."""
        options = (("temperature", self.temperature), ("top_p", self.top_p))
        return {name: value for name, value in options if value is not None}

    @property
    def _access(self) -> Access:
        access = super()._access
        names = {name.lower() for name in self.headers}
        # Clouds name a version in the body, and theirs have sampling options.
        if not self._sampling or _VERSION in names or self.service.client != MESSAGES.client:
            return access
        return attrs.evolve(access, headers={_VERSION: _VERSION_WITH_SAMPLING, **self.headers})

    @property
    def longest_answer(self) -> int:
        return self.max_output_tokens or self._known.max_output_tokens

    @cached_property
    def _known(self) -> AnthropicProfile:
        return (self.profile or profile_of(self.model)).seeing(self.vision)

    @property
    def _thoughts(self) -> int:
        match self.extra_body.get("thinking"):
            case {"type": "disabled"}:
                return 0
            case {"type": "enabled" | "adaptive"}:
                return self._known.thinking or schemas.THOUGHTS
        return self._known.thinking

    @cached_property
    def wire(self) -> AnthropicWire:
        options: JsonObject = {"max_tokens": self.longest_answer, **self._sampling}
        if self.stop:
            options["stop_sequences"] = [*self.stop]
        return AnthropicWire(
            model=self.model,
            profile=self._known,
            effort=self.effort,
            options={**options, **self._further_fields},
        )
