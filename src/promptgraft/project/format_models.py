"""The models of a project file: what each provider takes."""

from __future__ import annotations

from collections.abc import Mapping

from promptgraft.adapters.anthropic.adapter import AnthropicAdapter
from promptgraft.adapters.openai.adapter import OpenAIAdapter
from promptgraft.project.config import ModelConfig, ModelsConfig
from promptgraft.project.python_source import REFERENCE
from promptgraft.project.secrets import API_KEY, Secret, has_reference, read_header
from promptgraft.strict.checks import Kind, Schema, check, integer, one_of
from promptgraft.strict.classes import keys_of, record_of
from promptgraft.strict.kinds import Key, Keys, named, record
from promptgraft.strict.nodes import Node

_PYTHON_ONLY = "comes from Python only: write `python: file.py:NAME` instead of `provider`"
_ELSEWHERE = {name: f"`{name}` {_PYTHON_ONLY}" for name in ("profile", "prices")}


def _address(value: object) -> str | None:
    fits = isinstance(value, str) and value and not has_reference(value) and "@" not in value
    return str(value) if fits else None


_SPECIAL: Mapping[str, Kind[object]] = {
    "api_key": API_KEY,
    "headers": named(Kind(read_header, {"type": "string", "minLength": 1})),
    "base_url": check(
        "an address such as http://localhost:8000/v1 without user and password",
        _address,
        {"type": "string", "pattern": "^https?://[^@]*$"},
        hidden=True,
        mend="give those as `headers`",
    ),
}
_SKIPPED = ("profile", "prices")

_OPTIONS: Mapping[str, Keys] = {
    "offline": {
        "attention": Key(integer(1), "How many rule words of each choice count."),
        "words_per_failure": Key(
            integer(1), "How many words a reflection takes of a failed input."
        ),
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
        provider = Key(one_of(name), "Who answers.", required=True)
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
    provider = one_of(*_KINDS).read(members["provider"])
    return None if provider is None else _KINDS[provider].read(node)


MODEL: Kind[ModelConfig] = Kind(_read, {"$ref": "#/$defs/model"})
DEFINITIONS: Schema = {
    "model": {
        "description": "A model: its provider with options, or an adapter from Python.",
        "anyOf": [*(kind.schema for kind in _KINDS.values()), _PYTHON.schema],
    }
}
MODELS: Kind[ModelsConfig] = record_of(
    ModelsConfig,
    special={"task": MODEL, "reflection": MODEL, "judges": named(MODEL)},
    about="Who answers, who reflects, who judges.",
)
