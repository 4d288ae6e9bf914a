"""Providers of promptfoo, as models."""

from __future__ import annotations

from collections.abc import Mapping

from promptgraft.project.format_sections import NO_KEY
from promptgraft.project.imported import Notes
from promptgraft.project.importing import GENERATION
from promptgraft.serde import Json
from promptgraft.strict.kinds import snake_case
from promptgraft.strict.nodes import Node

OFFLINE: Json = {"provider": "offline"}
_OFFLINE = "the embedded offline model takes the place of {}: name a model in `models.task`"
_PROVIDERS: Mapping[str, tuple[str, ...]] = {  # ours, with address and key where they are fixed
    "openai": ("openai",),
    "anthropic": ("anthropic",),
    "azure": ("azure",),
    "azureopenai": ("azure",),
    "bedrock": ("bedrock",),
    "google": ("gemini",),
    "vertex": ("vertex",),
    "ollama": ("openai", "http://localhost:11434/v1", NO_KEY),
    "openrouter": ("openai", "https://openrouter.ai/api/v1", "${OPENROUTER_API_KEY}"),
}
_INTERFACES = ("chat", "messages", "responses", "completion")


def read_provider(node: Node, notes: Notes) -> Json:
    """Return a provider as a model of the project file; a key is not copied."""
    members = node.members()
    told, config = node.value, node.member("config")
    if isinstance(told, dict) and "id" not in told and len(members) == 1:
        [(told, config)] = ((name, one.member("config")) for name, one in members.items())
    elif isinstance(told, dict):
        told = told.get("id")
        for key in members.keys() - {"id", "config", "label"}:
            notes.add(members[key], f"`{key}` of a provider is left out: `models` has no such key")
    kind, *rest = str(told).split(":")
    known = dict(zip(("provider", "base_url", "api_key"), _PROVIDERS.get(kind, ()), strict=False))
    model = ":".join(rest[1:] if len(rest) > 1 and rest[0] in _INTERFACES else rest)
    if not known or not model or (kind == "vertex" and not model.startswith("claude")):
        notes.add(node, _OFFLINE.format(f"`{told}`"))
        return OFFLINE
    found: dict[str, Json] = {**known, "model": model}
    for key, one in config.members().items():
        match key:
            case "apiKeyEnvar":
                found["api_key"] = f"${{{one.value}}}"
            case "apiBaseUrl" | "apiHost":
                host = str(one.value)
                found["base_url"] = host if "://" in host else f"https://{host}"
            case _ if (ours := GENERATION.get(snake_case(key))) is not None:
                found[ours] = one.value
            case _:
                what = (
                    "a key is not copied: export it"
                    if key == "apiKey"
                    else "left out: `models` has no such key; `extra_body` sends more"
                )
                notes.add(one, f"`{key}`: {what}")
    return found
