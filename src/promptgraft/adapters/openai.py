"""OpenAI's models: their profiles, the wire format of Chat Completions, and the adapter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import attrs
import msgspec

from promptgraft.adapters import responses
from promptgraft.adapters.base import Usage
from promptgraft.adapters.calling import schemas, turns
from promptgraft.adapters.calling.access import Api
from promptgraft.adapters.calling.adapter import ModelAdapter
from promptgraft.adapters.calling.parts import chat_content, check_seen
from promptgraft.adapters.facts import cache_of, facts_of, is_chat_only
from promptgraft.adapters.responses import BREAKPOINT, ResponsesWire, cache_options, openai_usage
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json, canonical_json
from promptgraft.ground.strict.checks import INTEGER, SHARE, instance, number, one_of
from promptgraft.prompt.by_role import by_role
from promptgraft.prompt.rendered import RenderedPrompt, RenderedTool
from promptgraft.prompt.schema import JsonObject

CHAT = Api(
    adapter="OpenAIAdapter",
    provider="openai",
    packages=("openai", "genai_prices", "stamina"),
    address_variable="OPENAI_BASE_URL",
    client="AsyncOpenAI",
    path="/chat/completions",
    taken={
        "model": "model",
        "max_tokens": "max_output_tokens",
        "max_completion_tokens": "max_output_tokens",
        "temperature": "temperature",
        "top_p": "top_p",
        "stop": "stop",
        "seed": "seed",
        "reasoning_effort": "effort",
        "response_format": "the prompt's output type",
        "messages": "the prompt",
        "tools": "the prompt",
        "n": "the adapter",
    },
)
"""OpenAI's own API."""

RULES = schemas.SchemaRules(
    keywords=frozenset(
        {
            "exclusiveMaximum",
            "exclusiveMinimum",
            "format",
            "maxItems",
            "maximum",
            "minItems",
            "minimum",
            "multipleOf",
            "pattern",
        }
    ),
    all_required=True,
    recursive=True,
)
"""What OpenAI accepts in the schema of an answer."""

# `gpt-oss`, for example, is served by others, of whose servers nothing can be assumed.
_OURS = re.compile(r"(?:ft:)?(?:chatgpt-|gpt-\d|o\d)")
# The longest answers by default: models that think need room for their thoughts.
_LONGEST, _LONGEST_THINKING = 16_384, 32_768
# OpenAI's own addresses.
_OWN = {"api.openai.com", "eu.api.openai.com", "us.api.openai.com"}
_WITH_RESPONSES = {"openai", "azure"}


@attrs.frozen(kw_only=True)
class OpenAIProfile(schemas.ModelProfile):
    """The capabilities of a model behind the Chat Completions API.

    Attributes:
        output_limit: the request field that limits the length of an answer.
        sampling: whether the model accepts `temperature` and `top_p`.
        max_output_tokens: the default limit on the answer; None for the provider's own limit.
        cache_breakpoints: whether the prompt cache holds only what ends at a breakpoint.
    """

    schema_rules: ClassVar[schemas.SchemaRules] = RULES

    output_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    sampling: bool = True
    max_output_tokens: int | None = None
    cache_breakpoints: bool = attrs.field(default=False, repr=False)


def profile_of(model: str, *, effort: str | None = None) -> OpenAIProfile:
    """Return the profile for the name of a model; the minimum for any other than OpenAI's."""
    # Names of models that are tuned begin with `ft:` and go on with what they are tuned from.
    facts = facts_of("openai", model.removeprefix("ft:")) if _OURS.match(model) else None
    if facts is None:
        return OpenAIProfile.of(None)
    cache = cache_of("openai", model.removeprefix("ft:"))
    usual = _LONGEST_THINKING if facts.may_think else _LONGEST
    return OpenAIProfile.of(
        facts,
        output_limit="max_completion_tokens",
        sampling=facts.takes_sampling(effort),
        max_output_tokens=facts.largest_output and min(facts.largest_output, usual),
        seller="openai",
        cached_from=cache.tokens,
        cache_breakpoints=cache.breakpoints,
    )


_TEXT_PARTS = {"text", "output_text"}
# Compatible servers have their own words beside `stop`, `length` and `content_filter`: `eos`,
# `model_length`, `MAX_TOKENS`, `content_filter: SAFETY`, `abort`, `insufficient_system_resource`.
_CUT = re.compile(r"length|max_(?:output_)?tokens", re.IGNORECASE)
_REFUSED = re.compile(
    r"content_filter|safety|toxic|prohibited|blocklist|recitation|refus", re.IGNORECASE
)
_BROKEN = re.compile(
    r"error|abort|cancel|timeout|unavailable|insufficient_system_resource", re.IGNORECASE
)


@attrs.frozen(kw_only=True)
class ChatWire:
    """Encodes requests for Chat Completions to one model and decodes its answers.

    ``options`` are further fields of each request.
    """

    model: str
    profile: OpenAIProfile
    options: JsonObject = attrs.field(hash=False)

    def open(self, rendered: RenderedPrompt[object]) -> JsonObject:
        native = schemas.native_schema(rendered, self.profile.rules)
        sent = by_role(rendered, say_format=native is None)
        check_seen(sent.content, sees=self.profile.sees, model=self.model)
        messages: list[Json] = [{"role": "user", "content": chat_content(sent.content)}]
        if sent.system:
            part: JsonObject = {"type": "text", "text": sent.system}
            marked: Json = [{**part, **BREAKPOINT}]
            system = marked if self.profile.cache_breakpoints else sent.system
            messages.insert(0, {"role": "system", "content": system})
        body: JsonObject = {"model": self.model, "messages": messages}
        if rendered.tools:
            body["tools"] = [_tool(tool) for tool in rendered.tools]
        if self.profile.cache_breakpoints:
            body |= cache_options(self.stable(body), has_tools=bool(rendered.tools))
        body |= self.options
        if body.get("stream"):
            # Without, most servers count no tokens of streams.
            body.setdefault("stream_options", {"include_usage": True})
        if native is not None:
            answer: JsonObject = {"name": "answer", "schema": native, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": answer}
        return turns.sendable(body)

    def read(self, body: JsonObject) -> turns.Turn:
        answer = turns.read_as(_Answer, body)
        if not answer.choices:
            raise turns.misshapen("expected a choice, found none")
        if answer.choices[0].finish_reason is None:
            raise turns.misshapen("expected a choice with a finish_reason, found one without")
        choice = answer.choices[0]
        message, reason = choice.message, choice.finish_reason or ""
        # litellm calls reasons that it does not know `stop`, and keeps them beside it.
        native = (choice.provider_specific_fields or {}).get("native_finish_reason", "")
        reasons = f"{reason} {native}"
        is_refused = message.refusal or _REFUSED.search(reasons)
        if choice.error or (not is_refused and _BROKEN.search(reasons)):
            detail = f": {canonical_json(choice.error)}" if choice.error else ""
            raise turns.BrokenTurnError(f"the server did not finish it ({reasons.strip()}{detail})")
        calls = [turns.read_as(_ToolCall, call) for call in message.tool_calls or ()]
        requests = tuple(
            turns.ToolRequest(
                id=call.id, name=call.function.name, arguments=call.function.arguments
            )
            for call in calls
        )
        # The presence of calls decides: compatible servers send `stop` beside them.
        finish = turns.Finish.TOOLS if requests else turns.Finish.DONE
        finish = turns.Finish.LENGTH if _CUT.search(reasons) else finish
        usage, written = self.counted(body)
        return turns.Turn(
            # A structured answer that is refused arrives in a field of its own, with the reason
            # `stop`.
            text=message.text,
            requests=requests,
            finish=turns.Finish.REFUSED if is_refused else finish,
            finish_reason="refusal" if message.refusal else reason,
            usage=usage,
            cache_write_tokens=written,
            model=answer.model or self.model,
            messages=(
                {
                    "role": "assistant",
                    "content": _text(message.content),
                    "tool_calls": [*(message.tool_calls or ())],
                },
            ),
        )

    def counted(self, body: JsonObject) -> tuple[Usage, int]:
        return openai_usage(body.get("usage"))

    def stable(self, body: JsonObject) -> Json:
        messages = body.get("messages")
        first = messages[0] if isinstance(messages, list) and messages else None
        is_system = isinstance(first, dict) and first.get("role") == "system"
        return [body.get("tools"), first if is_system else None]

    def extend(
        self, request: JsonObject, turn: turns.Turn, answers: Sequence[turns.ToolAnswer]
    ) -> JsonObject:
        return turns.extended(request, turn, [_reply(answer) for answer in answers])


class _Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str = ""


class _ToolCall(msgspec.Struct, frozen=True):
    id: str
    function: _Function


class _Part(msgspec.Struct, frozen=True):
    """A part of an answer; those of other types, such as thoughts, have no text of the answer."""

    type: str = "text"
    text: str | None = None


class _Message(msgspec.Struct, frozen=True):
    content: str | list[str | _Part] | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    reasoning_content: Any = None
    reasoning: Any = None

    @property
    def text(self) -> str:
        """The answer; what a server says was only thought is marked so where there is none."""
        if (text := _text(self.content) or self.refusal or "") or self.tool_calls:
            return text
        thoughts = self.reasoning_content or self.reasoning
        return f"<think>{thoughts}</think>" if isinstance(thoughts, str) else ""


class _Choice(msgspec.Struct, frozen=True):
    message: _Message
    finish_reason: str | None = None
    error: Any = None
    provider_specific_fields: dict[str, Any] | None = None


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice]
    model: str | None = None


def _text(content: str | list[str | _Part] | None) -> str | None:
    """Return the text of an answer, which some servers send in parts."""
    if not isinstance(content, list):
        return content
    texts = (part if isinstance(part, str) else _text_of(part) for part in content)
    return "".join(texts) or None


def _text_of(part: _Part) -> str:
    return part.text or "" if part.type in _TEXT_PARTS else ""


def _tool(tool: RenderedTool) -> JsonObject:
    function: JsonObject = {
        "name": tool.name,
        "description": tool.description,
        "parameters": schemas.with_object_root(tool.params_schema),
    }
    return {"type": "function", "function": function}


def _reply(answer: turns.ToolAnswer) -> JsonObject:
    return {"role": "tool", "tool_call_id": answer.request.id, "content": answer.text}


@attrs.frozen(eq=False, kw_only=True)
class OpenAIAdapter(ModelAdapter):
    """Answers prompts through OpenAI's API, or with a compatible server.

    Args:
        model: the model, such as ``gpt-6-luna``.
        api: ``responses`` for the Responses API, ``chat`` for Chat Completions. ``auto`` takes
            Responses for OpenAI's own address, and chat for every other one and where an option
            is set that only chat has: ``stop``, ``seed``, ``max_output_tokens`` below 16, or a
            field of ``extra_body``.
        max_output_tokens: limit on the answer, including thinking; the profile's when it is None.
        temperature: sampling temperature, from 0 to 2.
        top_p: probability mass for nucleus sampling, from 0 to 1.
        stop: stop sequences.
        seed: seed for sampling; providers do not guarantee equal answers.
        effort: thinking effort: ``minimal``, ``low``, ``medium``, ``high``, ...
        vision: whether the model sees images; by what is known of it when it is None.
        extra_body: further fields of each request.
        api_key: the key; ``OPENAI_API_KEY`` when it is None.
        base_url: the address of a compatible server, without ``/responses`` and
            ``/chat/completions``; ``OPENAI_BASE_URL`` or OpenAI's own when it is None.
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

    service: ClassVar[Api] = CHAT
    vendor: ClassVar[Literal["anthropic", "openai"]] = "openai"

    temperature: float | None = attrs.field(default=None, validator=number(0, 2).or_none)
    top_p: float | None = attrs.field(default=None, validator=SHARE.or_none)
    api: str = attrs.field(default="auto", validator=one_of("auto", "responses", "chat"))
    seed: int | None = attrs.field(default=None, validator=INTEGER.or_none)
    profile: OpenAIProfile | None = attrs.field(
        default=None, validator=instance(OpenAIProfile).or_none
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for name, value in (("temperature", self.temperature), ("top_p", self.top_p)):
            if value is not None and not self._known.sampling:
                raise ConfigError(
                    f"OpenAIAdapter: {name}: `{self.model}` does not take it; leave it out, or "
                    "give profile=OpenAIProfile(sampling=True, ...)"
                )
        if self.api != "responses":
            return
        if self.service.provider not in _WITH_RESPONSES:
            raise ConfigError(
                f"{self.service.adapter}: api: expected `auto` or `chat`, found 'responses'"
            )
        for name in self._chat_only:
            raise ConfigError(
                f"{self.service.adapter}: {name}: the Responses API does not take it; leave it "
                "out, or give api='chat'"
            )

    @property
    def _further_identity(self) -> Sequence[str]:
        # Listed only where it is used, so that runs from before it was known can be resumed.
        return ("api=responses",) if self._uses_responses else ()

    @property
    def longest_answer(self) -> int | None:
        return self.max_output_tokens or self._known.max_output_tokens

    @cached_property
    def wire(self) -> ChatWire | ResponsesWire:
        sampling: JsonObject = {"temperature": self.temperature, "top_p": self.top_p}
        if self._uses_responses:
            options = self._filled({**sampling, **self._options_of_responses})
            if self.effort is not None:
                thoughts = options.get("reasoning")
                further = thoughts if isinstance(thoughts, dict) else {}
                options["reasoning"] = {**further, "effort": self.effort}
            profile = self._known
            return ResponsesWire(
                model=self.model,
                rules=profile.rules,
                sees=profile.sees,
                cache_breakpoints=profile.cache_breakpoints,
                options=options,
            )
        options = {
            self._known.output_limit: self.longest_answer,
            **sampling,
            "stop": [*self.stop] or None,
            "seed": self.seed,
            "reasoning_effort": self.effort,
        }
        return ChatWire(model=self.model, profile=self._known, options=self._filled(options))

    @property
    def _options_of_responses(self) -> JsonObject:
        options: JsonObject = {"max_output_tokens": self.longest_answer, "store": False}
        # Thoughts are sent back with the results of tools, and nothing is stored at the provider.
        if self._known.seller is not None and self._known.thinking:
            options["include"] = ["reasoning.encrypted_content"]
        return options

    def _filled(self, options: JsonObject) -> JsonObject:
        """Return the options that are set, and the further fields."""
        values_set = {name: value for name, value in options.items() if value is not None}
        return {**values_set, **self._further_fields}

    @cached_property
    def _known(self) -> OpenAIProfile:
        if self.profile is not None:
            return self.profile.seeing(self.vision)
        profile = profile_of(self.model, effort=self.effort).seeing(self.vision)
        if profile.cache_breakpoints and not self._has_own_address:
            # Compatible servers may refuse the marks, and without them nothing is cached.
            return attrs.evolve(profile, cache_breakpoints=False, cached_from=0)
        return profile

    @property
    def _has_own_address(self) -> bool:
        return self.service.provider == CHAT.provider and self._access_to(self.service).is_at(_OWN)

    @property
    def _api(self) -> Api:
        if not self._uses_responses:
            return self.service
        return attrs.evolve(
            self.service, path=responses.PATH, taken=responses.TAKEN, if_absent=responses.IF_ABSENT
        )

    @property
    def _uses_responses(self) -> bool:
        if self.api != "auto":
            return self.api == "responses"
        return self._has_own_address and not self._chat_only and not is_chat_only(self.model)

    @property
    def _chat_only(self) -> list[str]:
        """The options that are set and that only Chat Completions has."""
        limit = self.max_output_tokens
        options = {
            "stop": bool(self.stop),
            "seed": self.seed is not None,
            "max_output_tokens": limit is not None and limit < responses.SHORTEST,
        }
        fields = [f"extra_body.{name}" for name in self.extra_body if name in responses.CHAT_ONLY]
        return [*(name for name, is_set in options.items() if is_set), *fields]
