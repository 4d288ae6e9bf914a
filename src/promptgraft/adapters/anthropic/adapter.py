"""The adapter for Anthropic's Messages."""

from __future__ import annotations

import attrs

from promptgraft.adapters.anthropic.endpoint import AnthropicEndpoint
from promptgraft.adapters.anthropic.profile import AnthropicProfile, profile_of
from promptgraft.adapters.anthropic.wire import AnthropicWire
from promptgraft.adapters.calling.access import Access
from promptgraft.adapters.calling.adapter import ModelAdapter
from promptgraft.serde import unstructure
from promptgraft.strict.checks import instance

_TAKEN = {
    "model": "model",
    "max_tokens": "max_output_tokens",
    "stop_sequences": "stop",
    "output_config": "effort and the prompt's output type",
    "system": "the prompt",
    "messages": "the prompt",
    "tools": "the prompt",
    "stream": "the adapter",
}


@attrs.frozen(eq=False)
class AnthropicAdapter(ModelAdapter):
    """Answers prompts with a model behind Anthropic's Messages: Claude, or a compatible server.

    Args:
        model: the model, such as ``claude-sonnet-4-5``.
        max_output_tokens: the longest answer, with what the model thinks; the profile's when it
            is None.
        stop: texts that end an answer.
        effort: how much the model thinks: ``low``, ``medium``, ``high``, ...
        extra_body: further fields of each request.
        api_key: the key; ``ANTHROPIC_API_KEY`` or ``ANTHROPIC_AUTH_TOKEN`` when it is None.
        base_url: the address of a compatible server, without ``/v1/messages``;
            ``ANTHROPIC_BASE_URL`` or Anthropic's own when it is None.
        headers: further headers of each request.
        timeout: seconds of wall time for one request.
        policy: how often and how long a call is tried.
        max_concurrency: requests in flight; None to let only the provider's limits decide.
        max_tool_rounds: how often a model may ask for tools before it must answer.
        prices: what tokens cost.
        profile: what the model can do; known by its name when it is None.

    Raises:
        ConfigError: an option is out of range, or there is no key.
    """

    profile: AnthropicProfile | None = attrs.field(
        default=None,
        kw_only=True,
        validator=instance(AnthropicProfile).or_none,
    )

    @property
    def _known(self) -> AnthropicProfile:
        return self.profile or profile_of(self.model)

    @property
    def longest_answer(self) -> int:
        return self.max_output_tokens or self._known.max_output_tokens

    @property
    def _access(self) -> Access:
        return Access(
            adapter="AnthropicAdapter",
            provider="anthropic",
            packages=("anthropic", "genai_prices", "stamina"),
            variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
            address_variable="ANTHROPIC_BASE_URL",
            api_key=self.api_key,
            base_url=self.base_url,
            headers=self.headers,
        )

    @property
    def _wire(self) -> AnthropicWire:
        extra = unstructure(self.extra_body)
        return AnthropicWire(
            model=self.model,
            profile=self._known,
            max_output_tokens=self.max_output_tokens or self._known.max_output_tokens,
            stop=self.stop,
            effort=self.effort,
            extra_body=extra if isinstance(extra, dict) else {},
        )

    @property
    def _seller(self) -> str | None:
        return self._known.seller or self._access.address

    @property
    def _taken(self) -> dict[str, str]:
        return _TAKEN

    def _endpoint(self) -> AnthropicEndpoint:
        return AnthropicEndpoint(self._access)
