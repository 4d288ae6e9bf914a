"""Protocols of clouds that host models of others: their paths and keys around a known protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping

from servers.anthropic_messages import AnthropicMessages
from servers.behaviour import Fault, JsonObject
from servers.openai_chat import OpenAIChat
from servers.openai_responses import OpenAIResponses


class AzureChat(OpenAIChat):
    """Azure OpenAI: the deployment stands in the path, the key in a header of its own."""

    base_path = ""

    def error_text(self, path: str) -> JsonObject | None:
        found = re.fullmatch(r"/openai/deployments/([^/]+)/chat/completions", path)
        return {"model": found[1]} if found else None

    def key_of(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("api-key")


class AzureResponses(OpenAIResponses):
    """Azure OpenAI: the deployment stands in the body, as the name of the model."""

    base_path = ""
    path = "/openai/responses"

    def key_of(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("api-key")


class GeminiChat(OpenAIChat):
    """Gemini's interface that is compatible with OpenAI's."""

    path = "/v1beta/openai/chat/completions"
    base_path = "/v1beta/openai"


class _Hosted(AnthropicMessages):
    pattern: str

    def error_text(self, path: str) -> JsonObject | None:
        found = re.fullmatch(self.pattern, path)
        return {"model": found[1]} if found else None

    def check(self, body: JsonObject, headers: Mapping[str, str]) -> Fault | None:
        version = body.get("anthropic_version")
        if not isinstance(version, str):
            return self.fault(400)
        plain = {name: value for name, value in body.items() if name != "anthropic_version"}
        return super().check(plain, {**headers, "anthropic-version": version})


class BedrockMessages(_Hosted):
    """Claude on Amazon Bedrock, with a key or a signature."""

    pattern = r"/model/([^/]+)/invoke"

    def key_of(self, headers: Mapping[str, str]) -> str | None:
        said = headers.get("authorization", "")
        signed = re.match(r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d+/([\w-]+)/bedrock/", said)
        return f"{signed[1]} {signed[2]}" if signed else super().key_of(headers)


class VertexMessages(_Hosted):
    """Claude on Vertex AI."""

    base_path = "/v1"
    pattern = (
        r"/v1/projects/loopback/locations/europe-west1/publishers/anthropic"
        r"/models/([^/:]+):rawPredict"
    )
