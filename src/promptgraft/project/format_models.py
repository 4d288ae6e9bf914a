"""The models of a project file: what each provider takes, and how secrets are written.

A secret is ``${NAME}``, which stands for a variable of the environment; a file holds no other.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping

import attrs

from promptgraft.adapters.anthropic import AnthropicAdapter
from promptgraft.adapters.openai import OpenAIAdapter
from promptgraft.errors import ConfigError
from promptgraft.project.python_source import REFERENCE
from promptgraft.serde import looks_like_a_key
from promptgraft.strict.checks import Kind, Schema, check, integer, one_of
from promptgraft.strict.kinds import Key, Keys, keys_of, named, record, record_of
from promptgraft.strict.nodes import Node

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# A key in the place of a variable's name: long, with small letters and digits.
_NO_NAME = re.compile(r"\$\{(?=\w*[a-z])(?=\w*[0-9])\w{20,}\}")
_SENSITIVE = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
# What local servers are given that want some key, whatever it is.
NO_KEY = "none"


@attrs.frozen
class Secret:
    """A text as a file has it, with ``${NAME}`` in it: looked up only when it is needed."""

    written: str

    @property
    def names(self) -> tuple[str, ...]:
        """The variables, in order of appearance."""
        return tuple(dict.fromkeys(_REFERENCE.findall(self.written)))

    def missing(self) -> tuple[str, ...]:
        """Return the variables that are not set, or empty."""
        return tuple(name for name in self.names if not os.environ.get(name))

    def reveal(self) -> str:
        """Return the plain text."""
        if missing := self.missing():
            raise ConfigError(f"the environment variable {missing[0]} is not set; export it first")
        return _REFERENCE.sub(lambda match: os.environ[match[1]], self.written)


@attrs.frozen(kw_only=True)
class ModelConfig:
    """A model, and how it is reached.

    Attributes:
        provider: ``offline``, ``anthropic``, ``openai`` or ``python``.
        options: what the adapter takes, by name.
        python: for ``python``: where the adapter, or what makes it, stands.
        api_key: the key, if one is named.
        headers: further headers of each request.
    """

    provider: str
    options: Mapping[str, object] = attrs.field(factory=dict)
    python: str = ""
    api_key: Secret | None = attrs.field(default=None, repr=False)
    headers: Mapping[str, Secret] = attrs.field(factory=dict, repr=False)


@attrs.frozen(kw_only=True)
class ModelsConfig:
    """The models by their part in a run.

    Attributes:
        task: Answers the prompts.
        reflection: Proposes new texts; by default the task's model.
        judges: Models that metrics ask, by the name that metrics use.
    """

    task: ModelConfig
    reflection: ModelConfig | None = None
    judges: Mapping[str, ModelConfig] = attrs.field(factory=dict)


def _key(value: object) -> Secret | None:
    if not isinstance(value, str) or _NO_NAME.search(value):
        return None
    return Secret(value) if value == NO_KEY or _REFERENCE.fullmatch(value) else None


API_KEY = check(
    "`${NAME}`",
    _key,
    {"type": "string", "pattern": r"^(\$\{\w+\}|none)$"},
    hidden=True,
    mend=(
        "put the key into an environment variable and name that, or write "
        f"`{NO_KEY}` for a server that needs no key"
    ),
)
"""The API key of a model; a plain key is refused."""


def _read_header(node: Node) -> Secret | None:
    """Return the value of a header; those that carry secrets must name a variable."""
    value = node.value
    if not isinstance(value, str) or not value:
        node.fault("expected a text, found something else (not shown)")
        return None
    is_secret = _SENSITIVE.search(str(node.path[-1])) is not None or looks_like_a_key(value)
    if _NO_NAME.search(value) or (is_secret and not _REFERENCE.search(value)):
        node.fault(
            "expected `${NAME}` in it, found a plain text (not shown); put the secret into an "
            "environment variable and name that"
        )
        return None
    return Secret(value)


def refuse_references(root: Node) -> None:
    """Note every ``${NAME}`` of a project file that stands where no secret may."""
    todo: list[Node] = [root]
    while todo:
        node = todo.pop()
        *model, last = node.path or ("",)
        if last in ("api_key", "headers") and _is_model(model):
            continue
        todo.extend((*node.members().values(), *node.items()))
        if isinstance(node.value, str) and (names := Secret(node.value).names):
            node.source.settle(
                node.path,
                f"`${{{names[0]}}}` is expanded only in `api_key` and `headers` of models; "
                "write the value itself",
            )


def _is_model(path: list[str | int]) -> bool:
    is_judge = path[:2] == ["models", "judges"]
    return path[:1] == ["models"] and len(path) == (3 if is_judge else 2)


_PYTHON_ONLY = "comes from Python only: write `python: file.py:NAME` instead of `provider`"
_ELSEWHERE = {name: f"`{name}` {_PYTHON_ONLY}" for name in ("profile", "prices")}


def _address(value: object) -> str | None:
    fits = isinstance(value, str) and value and not _REFERENCE.search(value) and "@" not in value
    return str(value) if fits else None


_SPECIAL: Mapping[str, Kind[object]] = {
    "api_key": API_KEY,
    "headers": named(Kind(_read_header, {"type": "string", "minLength": 1})),
    "base_url": check(
        "an address such as http://localhost:8000/v1 without user and password",
        _address,
        {"type": "string", "pattern": "^https?://[^@]*$"},
        hidden=True,
        mend="give those as `headers`",
    ),
}

_OPTIONS: Mapping[str, Keys] = {
    "offline": {
        "attention": Key(integer(1), "How many rule words of each choice count."),
        "words_per_failure": Key(
            integer(1), "How many words a reflection takes of a failed input."
        ),
    },
    "anthropic": keys_of(AnthropicAdapter, skip=_ELSEWHERE, special=_SPECIAL),
    "openai": keys_of(OpenAIAdapter, skip=_ELSEWHERE, special=_SPECIAL),
}


def _model(provider: str, **options: object) -> ModelConfig:
    key, headers = options.pop("api_key", None), options.pop("headers", None)
    return ModelConfig(
        provider=provider,
        options=options,
        api_key=key if isinstance(key, Secret) else None,
        headers=headers if isinstance(headers, dict) else {},
    )


_KINDS: Mapping[str, Kind[ModelConfig]] = {
    name: record(
        _model,
        {"provider": Key(one_of(name), "Who answers.", required=True), **options},
        elsewhere=_ELSEWHERE if name != "offline" else None,
    )
    for name, options in _OPTIONS.items()
}
_PYTHON: Kind[ModelConfig] = record(
    functools.partial(ModelConfig, provider="python"),
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
