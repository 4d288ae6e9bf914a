"""Adapters for OpenAI, Anthropic and Google models hosted by a cloud, through the official SDKs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import ClassVar

import attrs

from promptgraft.adapters.anthropic import MESSAGES, AnthropicAdapter
from promptgraft.adapters.calling.access import Api
from promptgraft.adapters.calling.adapter import ModelAdapter
from promptgraft.adapters.litellm import LiteLLMAdapter
from promptgraft.adapters.openai import CHAT, OpenAIAdapter
from promptgraft.errors import ConfigError
from promptgraft.ground.strict.checks import STRING, TEXT

_ANTHROPIC = MESSAGES.packages


@attrs.frozen(eq=False, kw_only=True)
class AzureOpenAIAdapter(OpenAIAdapter):
    """Answers prompts with a deployment of Azure OpenAI.

    Takes the arguments of ``OpenAIAdapter``; these differ.

    Args:
        model: the name of the deployment.
        api_key: the key; ``AZURE_OPENAI_API_KEY`` when it is None.
        base_url: the endpoint, such as ``https://NAME.openai.azure.com``;
            ``AZURE_OPENAI_ENDPOINT`` when it is None.
        api_version: the version of the interface.

    Raises:
        ConfigError: see ``OpenAIAdapter``; also if there is no endpoint.
    """

    service: ClassVar[Api] = attrs.evolve(
        CHAT,
        adapter="AzureOpenAIAdapter",
        provider="azure",
        address_variable="AZURE_OPENAI_ENDPOINT",
        client="AsyncAzureOpenAI",
        needs_address=True,
        address_option="azure_endpoint",
        seller="azure",
    )

    api_version: str = attrs.field(default="2024-10-21", validator=TEXT)

    @property
    def _client_options(self) -> Mapping[str, str]:
        return {"api_version": self.api_version}


@attrs.frozen(eq=False)
class GeminiAdapter(OpenAIAdapter):
    """Answers prompts with Gemini, through its OpenAI-compatible API.

    Takes the arguments of ``OpenAIAdapter``; these differ.

    Args:
        model: the model, such as ``gemini-2.5-flash``.
        api_key: the key; ``GEMINI_API_KEY`` when it is None.
        base_url: the address; ``GEMINI_BASE_URL`` or Google's own when it is None.

    Raises:
        ConfigError: see ``OpenAIAdapter``.
    """

    service: ClassVar[Api] = attrs.evolve(
        CHAT,
        adapter="GeminiAdapter",
        provider="gemini",
        address_variable="GEMINI_BASE_URL",
        own_address="https://generativelanguage.googleapis.com/v1beta/openai",
        seller="google",
    )


@attrs.frozen(eq=False, kw_only=True)
class BedrockAdapter(AnthropicAdapter):
    """Answers prompts with Claude on Amazon Bedrock.

    Takes the arguments of ``AnthropicAdapter``; these differ. Without a key, requests are signed
    with the credentials that the AWS SDK finds: a profile, a role, or environment variables.

    Args:
        model: the id of the model or inference profile, such as
            ``anthropic.claude-opus-4-6-v1``.
        api_key: a Bedrock key; ``AWS_BEARER_TOKEN_BEDROCK`` when it is None.
        base_url: the address; ``ANTHROPIC_BEDROCK_BASE_URL`` or that of the region when it is None.
        region: for example ``eu-central-1``; ``AWS_REGION`` or ``AWS_DEFAULT_REGION`` when empty.

    Raises:
        ConfigError: as ``AnthropicAdapter`` does, or there is no region.
    """

    service: ClassVar[Api] = attrs.evolve(
        MESSAGES,
        adapter="BedrockAdapter",
        provider="bedrock",
        packages=(*_ANTHROPIC, "botocore"),
        extra="bedrock",
        address_variable="ANTHROPIC_BEDROCK_BASE_URL",
        client="AsyncAnthropicBedrock",
        needs_key=False,
        seller="aws",
    )

    region: str = attrs.field(default="", validator=STRING)

    @property
    def _client_options(self) -> Mapping[str, str]:
        return {"aws_region": _region(self, "AWS_REGION", "AWS_DEFAULT_REGION")}


@attrs.frozen(eq=False, kw_only=True)
class VertexAdapter(AnthropicAdapter):
    """Answers prompts with Claude on Vertex AI of Google Cloud.

    Takes the arguments of ``AnthropicAdapter``; these differ. Without a token, the default
    credentials of Google Cloud are used.

    Args:
        model: the model, such as ``claude-sonnet-5-5``.
        api_key: an access token; ``VERTEX_ACCESS_TOKEN`` when it is None.
        base_url: the address; ``ANTHROPIC_VERTEX_BASE_URL`` or that of the region when it is None.
        region: for example ``europe-west1`` or ``global``; ``CLOUD_ML_REGION`` when empty.
        project: the project; when empty, ``ANTHROPIC_VERTEX_PROJECT_ID`` or the project of the
            credentials.

    Raises:
        ConfigError: as ``AnthropicAdapter`` does, or there is no region.
    """

    service: ClassVar[Api] = attrs.evolve(
        MESSAGES,
        adapter="VertexAdapter",
        provider="vertex",
        packages=(*_ANTHROPIC, "google.auth"),
        extra="vertex",
        address_variable="ANTHROPIC_VERTEX_BASE_URL",
        client="AsyncAnthropicVertex",
        needs_key=False,
        key_option="access_token",
    )

    region: str = attrs.field(default="", validator=STRING)
    project: str = attrs.field(default="", validator=STRING)

    @property
    def _client_options(self) -> Mapping[str, str]:
        region = _region(self, "CLOUD_ML_REGION")
        return {"region": region, **({"project_id": self.project} if self.project else {})}


def _region(adapter: BedrockAdapter | VertexAdapter, *variables: str) -> str:
    region = adapter.region or next(filter(None, map(os.environ.get, variables)), "")
    if not region:
        raise ConfigError(
            f"{adapter.service.adapter}: there is no region; set {variables[0]}, or give region="
        )
    return region


HTTP_ADAPTERS: Mapping[str, type[ModelAdapter]] = {
    "anthropic": AnthropicAdapter,
    "azure": AzureOpenAIAdapter,
    "bedrock": BedrockAdapter,
    "gemini": GeminiAdapter,
    "litellm": LiteLLMAdapter,
    "openai": OpenAIAdapter,
    "vertex": VertexAdapter,
}
"""The adapters, by provider name."""
