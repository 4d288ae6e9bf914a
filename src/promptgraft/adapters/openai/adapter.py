"""The adapter for OpenAI's Chat Completions."""

from __future__ import annotations

import attrs

from promptgraft.adapters.calling.access import Access
from promptgraft.adapters.calling.adapter import ModelAdapter
from promptgraft.adapters.openai.endpoint import OpenAIEndpoint
from promptgraft.adapters.openai.profile import OpenAIProfile, profile_of
from promptgraft.adapters.openai.wire import OpenAIWire
from promptgraft.errors import ConfigError
from promptgraft.serde import unstructure
from promptgraft.strict.checks import INTEGER, SHARE, instance, number

_TAKEN = {
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
    "stream": "the adapter",
    "n": "the adapter",
}


@attrs.frozen(eq=False)
class OpenAIAdapter(ModelAdapter):
    """Answers prompts with a model behind OpenAI's Chat Completions, or a compatible server.

    Args:
        model: the model, such as ``gpt-4.1-mini``.
        max_output_tokens: the longest answer, with what the model thinks; the provider's own
            limit when it is None.
        temperature: from 0 to 2: how much answers vary.
        top_p: from 0 to 1: the share of likely tokens that the model takes from.
        stop: texts that end an answer.
        seed: asks for the same answer again, as far as the provider can.
        effort: how much the model thinks: ``minimal``, ``low``, ``medium``, ``high``, ...
        extra_body: further fields of each request.
        api_key: the key; ``OPENAI_API_KEY`` when it is None.
        base_url: the address of a compatible server, without ``/chat/completions``;
            ``OPENAI_BASE_URL`` or OpenAI's own when it is None.
        headers: further headers of each request.
        timeout: seconds of wall time for one request.
        policy: how often and how long a call is tried.
        max_concurrency: requests in flight; None to let only the provider's limits decide.
        max_tool_rounds: how often a model may ask for tools before it must answer.
        prices: what tokens cost.
        profile: what the model can do; known by its name when it is None.

    Raises:
        ConfigError: an option is out of range, the model does not take it, or there is no key.
    """

    temperature: float | None = attrs.field(
        default=None, kw_only=True, validator=number(0, 2).or_none
    )
    top_p: float | None = attrs.field(default=None, kw_only=True, validator=SHARE.or_none)
    seed: int | None = attrs.field(default=None, kw_only=True, validator=INTEGER.or_none)
    profile: OpenAIProfile | None = attrs.field(
        default=None, kw_only=True, validator=instance(OpenAIProfile).or_none
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for name, value in (("temperature", self.temperature), ("top_p", self.top_p)):
            if value is not None and not self._known.sampling:
                raise ConfigError(
                    f"OpenAIAdapter: {name}: `{self.model}` does not take it; leave it out, or "
                    "give profile=OpenAIProfile(sampling=True, ...)"
                )

    @property
    def _known(self) -> OpenAIProfile:
        return self.profile or profile_of(self.model)

    @property
    def _access(self) -> Access:
        return Access(
            adapter="OpenAIAdapter",
            provider="openai",
            packages=("openai", "genai_prices", "stamina"),
            variables=("OPENAI_API_KEY",),
            address_variable="OPENAI_BASE_URL",
            api_key=self.api_key,
            base_url=self.base_url,
            headers=self.headers,
        )

    @property
    def _wire(self) -> OpenAIWire:
        extra = unstructure(self.extra_body)
        return OpenAIWire(
            model=self.model,
            profile=self._known,
            max_output_tokens=self.max_output_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            stop=self.stop,
            seed=self.seed,
            effort=self.effort,
            extra_body=extra if isinstance(extra, dict) else {},
        )

    @property
    def _seller(self) -> str | None:
        return self._known.seller or self._access.address

    @property
    def _taken(self) -> dict[str, str]:
        return _TAKEN

    def _endpoint(self) -> OpenAIEndpoint:
        return OpenAIEndpoint(self._access)
