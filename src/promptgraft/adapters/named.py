"""Adapters made of names such as ``openai/NAME``, or of models as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs

from promptgraft.adapters.base import Ask, ProviderAdapter, check_adapter, has_evaluate
from promptgraft.adapters.calling.prices import ModelPrice, Prices
from promptgraft.adapters.providers import KNOWN
from promptgraft.errors import ConfigError
from promptgraft.ground.environment import Secret
from promptgraft.ground.serde import did_you_mean, shown

if TYPE_CHECKING:
    from promptgraft.adapters.calling.adapter import ModelAdapter

HOSTED = ("anthropic", "azure", "bedrock", "gemini", "litellm", "openai", "vertex")
"""The providers with an adapter in ``promptgraft.adapters.hosted``."""
COMPATIBLE = tuple(name for name, provider in KNOWN.items() if provider.address)
"""The names of servers with the API of ``openai``."""
PROVIDERS = ("offline", *HOSTED, *COMPATIBLE)

NO_KEY = "none"
"""The key of local servers that require one but accept any."""

_MAKERS = {"gpt": "openai", "claude": "anthropic", "gemini": "gemini"}


@attrs.frozen(kw_only=True)
class ModelConfig:
    """A model and how to reach it.

    Attributes:
        provider: ``offline``, ``python``, or one of ``HOSTED``.
        options: the options of the adapter by name; a text with ``${NAME}`` in it is a secret.
        python: for ``python``: the reference of an adapter, or of a function that makes one.
        api_key: the key, if there is one.
        headers: further headers of each request.
    """

    provider: str
    options: Mapping[str, object] = attrs.field(factory=dict, hash=False)
    python: str = ""
    api_key: Secret | None = attrs.field(default=None, repr=False)
    headers: Mapping[str, Secret] = attrs.field(factory=dict, repr=False)


def hosted(provider: str) -> type[ModelAdapter]:
    """Return the adapter of one of ``HOSTED``."""
    # Imported here because it loads all HTTP adapters, which others do not need.
    from promptgraft.adapters.hosted import HTTP_ADAPTERS

    return HTTP_ADAPTERS[provider]


def model_of(provider: str, **options: object) -> ModelConfig:
    """Return the model of one of ``PROVIDERS`` with options of its adapter."""
    key, headers = options.pop("api_key", None), options.pop("headers", None)
    if provider in COMPATIBLE:
        provider_known = KNOWN[provider]
        # A server at another address does not get the key of this one.
        is_elsewhere = "base_url" in options or not provider_known.keys
        key = key or Secret(NO_KEY if is_elsewhere else f"${{{provider_known.keys[0]}}}")
        options, provider = {"base_url": provider_known.address, **options}, "openai"
    return ModelConfig(
        provider=provider,
        options=options,
        api_key=key if isinstance(key, Secret) else None,
        headers=headers if isinstance(headers, dict) else {},
    )


def named_model(text: str) -> ModelConfig | None:
    """Return the model that ``offline`` or ``PROVIDER/MODEL`` names; None for another text."""
    provider, _, model = text.partition("/")
    if provider not in PROVIDERS or (provider == "offline") == bool(model):
        return None
    return model_of(provider, model=model) if model else model_of(provider)


def named_adapter(model: str | ProviderAdapter | Ask, what: str) -> ProviderAdapter:
    """Return an adapter unchanged, or make that of ``offline``, ``openai/NAME``, a function, ...

    Raises:
        ConfigError: it is not an adapter, or cannot be made; the message begins with ``what``.
    """
    if not isinstance(model, str):
        if not has_evaluate(model) and callable(model) and not isinstance(model, type):
            from promptgraft.adapters.functions import FunctionAdapter  # models often have a name

            return FunctionAdapter(model)
        return check_adapter(model, what)
    config = named_model(model)
    if config is None:
        provider = model.partition("/")[0]
        other_providers = [name for name in PROVIDERS if name != provider]
        near = spelling_hint(model) or did_you_mean(provider, other_providers)
        raise ConfigError(
            f"{what}: expected `offline`, `PROVIDER/MODEL` or an adapter, found {shown(model)}"
            f"{near}; providers are {', '.join(PROVIDERS[1:])}"
        )
    return built(config)


def spelling_hint(model: str) -> str:
    """Return the hint for a model without its provider, or with a colon; empty for other texts."""
    provider, colon, name = model.partition(":")
    if colon and name and provider in PROVIDERS:
        return f" (write `{provider}/{name.removeprefix('chat:')}`)"
    maker = _MAKERS.get(model.partition("-")[0].lower())
    return f" (write `{maker}/{model}`)" if maker and "/" not in model else ""


def built(config: ModelConfig, reveal: Callable[[Secret], str] = Secret.reveal) -> ProviderAdapter:
    """Return the adapter of a model, other than one of ``python``, without a call.

    Raises:
        ConfigError: a secret is not set, or an option is unusable.
    """
    options = {
        name: reveal(option) if isinstance(option, Secret) else option
        for name, option in config.options.items()
    }
    if config.api_key is not None:
        options["api_key"] = reveal(config.api_key)
    if config.headers:
        options["headers"] = {name: reveal(secret) for name, secret in config.headers.items()}
    if isinstance(price := options.get("prices"), ModelPrice):
        options["prices"] = Prices({str(options["model"]): price})
    return _maker(config.provider)(**options)


def _maker(provider: str) -> Callable[..., ProviderAdapter]:
    if provider in HOSTED:
        return hosted(provider)
    from promptgraft.adapters.offline import OfflineAdapter

    return OfflineAdapter
