"""Providers of models: the environment variables of their keys, and where those may be sent."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen(kw_only=True)
class Provider:
    """Whom a key belongs to.

    Attributes:
        keys: the usual environment variables of a key; the first that is set counts.
        hosts: the domains that these are meant for.
        address: the address of a server with the API of ``openai``; empty for other providers.
    """

    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    address: str = ""

    def owns(self, host: str) -> bool:
        """Return whether a host is one of the provider's domains, or below one."""
        return any(f".{host}".endswith(f".{domain}") for domain in self.hosts)


KNOWN: Mapping[str, Provider] = {
    "anthropic": Provider(
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), hosts=("anthropic.com",)
    ),
    "azure": Provider(keys=("AZURE_OPENAI_API_KEY",), hosts=("azure.com", "azure-api.net")),
    "bedrock": Provider(keys=("AWS_BEARER_TOKEN_BEDROCK",), hosts=("amazonaws.com",)),
    # Google's own SDK reads both as well.
    "gemini": Provider(keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"), hosts=("googleapis.com",)),
    "litellm": Provider(keys=("LITELLM_API_KEY",)),
    "openai": Provider(keys=("OPENAI_API_KEY",), hosts=("openai.com",)),
    "vertex": Provider(keys=("VERTEX_ACCESS_TOKEN",), hosts=("googleapis.com",)),
    "deepseek": Provider(
        keys=("DEEPSEEK_API_KEY",), hosts=("deepseek.com",), address="https://api.deepseek.com/v1"
    ),
    "fireworks": Provider(
        keys=("FIREWORKS_API_KEY",),
        hosts=("fireworks.ai",),
        address="https://api.fireworks.ai/inference/v1",
    ),
    "groq": Provider(
        keys=("GROQ_API_KEY",), hosts=("groq.com",), address="https://api.groq.com/openai/v1"
    ),
    "lmstudio": Provider(address="http://localhost:1234/v1"),
    "mistral": Provider(
        keys=("MISTRAL_API_KEY",), hosts=("mistral.ai",), address="https://api.mistral.ai/v1"
    ),
    "ollama": Provider(address="http://localhost:11434/v1"),
    "openrouter": Provider(
        keys=("OPENROUTER_API_KEY",),
        hosts=("openrouter.ai",),
        address="https://openrouter.ai/api/v1",
    ),
    "together": Provider(
        keys=("TOGETHER_API_KEY",), hosts=("together.xyz",), address="https://api.together.xyz/v1"
    ),
    "vllm": Provider(address="http://localhost:8000/v1"),
}
"""The providers by name."""

KEY_OWNERS: Mapping[str, str] = {
    variable: name for name, provider in KNOWN.items() for variable in provider.keys
}
"""The provider of each usual variable."""
