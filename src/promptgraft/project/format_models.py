"""The models of a project file: what each provider takes."""

from __future__ import annotations

from collections.abc import Mapping

from promptgraft.adapters.anthropic.adapter import AnthropicAdapter
from promptgraft.adapters.openai.adapter import OpenAIAdapter
from promptgraft.project.config import ModelConfig, ModelsConfig
from promptgraft.project.derived import keys_of
from promptgraft.project.kinds import (
    REFERENCE,
    Key,
    Keys,
    Kind,
    Schema,
    choice,
    named,
    record,
    whole,
)
from promptgraft.project.nodes import Node
from promptgraft.project.secrets import Secret, has_reference, read_header, read_key
from promptgraft.serde import did_you_mean

_PYTHON_ONLY = "comes from Python only: write `python: file.py:NAME` instead of `provider`"
_ELSEWHERE = {name: f"`{name}` {_PYTHON_ONLY}" for name in ("profile", "prices")}


def _read_address(node: Node) -> str | None:
    value = node.value
    if isinstance(value, str) and value and not has_reference(value) and "@" not in value:
        return value
    node.fault(
        "expected an address such as http://localhost:8000/v1 without user and password, found "
        "something else (not shown); give those as `headers`"
    )
    return None


_SECRET: Kind[Secret] = Kind(read_key, {"type": "string", "pattern": r"^(\$\{\w+\}|none)$"})
_HEADERS: Kind[dict[str, Secret]] = named(Kind(read_header, {"type": "string", "minLength": 1}))
_SPECIAL: Mapping[str, Kind[object]] = {
    "api_key": _SECRET,
    "headers": _HEADERS,
    "base_url": Kind(_read_address, {"type": "string", "pattern": "^https?://[^@]*$"}),
}
_SKIPPED = ("profile", "prices")

_OPTIONS: Mapping[str, Keys] = {
    "offline": {
        "attention": Key(whole(1), "How many rule words of each choice count."),
        "words_per_failure": Key(whole(1), "How many words a reflection takes of a failed input."),
    },
    "anthropic": keys_of(AnthropicAdapter, skip=_SKIPPED, special=_SPECIAL),
    "openai": keys_of(OpenAIAdapter, skip=_SKIPPED, special=_SPECIAL),
}


def _model(provider: str, **options: object) -> ModelConfig:
    key, headers = options.pop("api_key", None), options.pop("headers", None)
    return ModelConfig(
        provider=provider,
        options=options,
        api_key=key if isinstance(key, Secret) else None,
        headers=headers if isinstance(headers, dict) else {},
    )


def _python_model(python: str) -> ModelConfig:
    return ModelConfig(provider="python", python=python)


def _kinds() -> dict[str, Kind[ModelConfig]]:
    kinds = {}
    for name, options in _OPTIONS.items():
        provider = Key(choice(name), "Who answers.", required=True)
        kinds[name] = record(
            _model,
            {"provider": provider, **options},
            elsewhere=_ELSEWHERE if name != "offline" else None,
        )
    return kinds


_KINDS = _kinds()
_PYTHON: Kind[ModelConfig] = record(
    _python_model,
    {
        "python": Key(
            REFERENCE, "An adapter, or a function without arguments that makes one.", required=True
        )
    },
)


def _read(node: Node) -> ModelConfig | None:
    members = node.members()
    if "python" in members:
        return _PYTHON.read(node)
    if not isinstance(node.value, dict) or "provider" not in members:
        node.expected("an object with `provider` or `python`")
        return None
    provider = members["provider"]
    kind = _KINDS.get(provider.value) if isinstance(provider.value, str) else None
    if kind is None:
        near = did_you_mean(provider.value, list(_KINDS)) if isinstance(provider.value, str) else ""
        names = ", ".join(f"`{name}`" for name in _KINDS)
        provider.expected(f"one of {names}{near}")
        return None
    return kind.read(node)


_SCHEMA: Schema = {
    "description": "A model: its provider with options, or an adapter from Python.",
    "anyOf": [*(kind.schema for kind in _KINDS.values()), _PYTHON.schema],
}
MODEL: Kind[ModelConfig] = Kind(_read, {"$ref": "#/$defs/model"})
DEFINITIONS: Schema = {"model": _SCHEMA}

MODELS: Kind[ModelsConfig] = record(
    ModelsConfig,
    {
        "task": Key(MODEL, "Answers the prompts.", required=True),
        "reflection": Key(MODEL, "Proposes new texts; by default the task's model."),
        "judges": Key(named(MODEL), "Models that metrics ask, by the name that metrics use."),
    },
    about="Who answers, who reflects, who judges.",
)
