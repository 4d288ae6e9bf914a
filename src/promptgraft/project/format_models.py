"""The models of a project file: what each provider takes, and how secrets are written.

A secret is ``${NAME}``, which stands for a variable of the environment; a file holds no other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

import attrs

from promptgraft.adapters.anthropic.adapter import AnthropicAdapter
from promptgraft.adapters.openai.adapter import OpenAIAdapter
from promptgraft.errors import ConfigError
from promptgraft.project.python_source import REFERENCE
from promptgraft.serde import Json
from promptgraft.strict.checks import Kind, Schema, check, integer, one_of
from promptgraft.strict.classes import keys_of, record_of
from promptgraft.strict.kinds import Key, Keys, named, record
from promptgraft.strict.nodes import Node

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SENSITIVE = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
# What local servers are given that want some key, whatever it is.
NO_KEY = "none"


@attrs.frozen
class Secret:
    """A text with ``${NAME}`` in it; the plain secret is looked up only when it is needed.

    Attributes:
        written: the text as it stands in the file; it holds no secret.
    """

    written: str

    @property
    def names(self) -> tuple[str, ...]:
        """The variables, in order of appearance."""
        return tuple(dict.fromkeys(_REFERENCE.findall(self.written)))

    def missing(self, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
        """Return the variables that are not set, or empty."""
        return tuple(name for name in self.names if not environment.get(name))

    def reveal(self, environment: Mapping[str, str] = os.environ) -> str:
        """Return the plain text.

        Raises:
            ConfigError: a variable is not set.
        """
        if missing := self.missing(environment):
            raise ConfigError(f"the environment variable {missing[0]} is not set; export it first")
        return _REFERENCE.sub(lambda match: environment[match[1]], self.written)


def has_reference(text: str) -> bool:
    """Tell whether a text holds ``${NAME}``."""
    return _REFERENCE.search(text) is not None


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
    fits = isinstance(value, str) and (value == NO_KEY or _REFERENCE.fullmatch(value))
    return Secret(str(value)) if fits else None


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


def read_header(node: Node) -> Secret | None:
    """Return the value of a header; those that carry secrets must name a variable."""
    value = node.value
    name = str(node.path[-1])
    if not isinstance(value, str) or not value:
        node.fault("expected a text, found something else (not shown)")
        return None
    if _SENSITIVE.search(name) and not has_reference(value):
        node.fault(
            "expected `${NAME}` in it, found a plain text (not shown); put the secret into an "
            "environment variable and name that"
        )
        return None
    return Secret(value)


def refuse_references(root: Node, may_hold: Iterable[tuple[str | int, ...]]) -> None:
    """Note every ``${NAME}`` that stands where no secret may."""
    allowed = set(may_hold)
    todo: list[Node] = [root]
    while todo:
        node = todo.pop()
        if node.path in allowed:
            continue
        todo.extend((*node.members().values(), *node.items()))
        if isinstance(node.value, str) and (names := Secret(node.value).names):
            node.source.settle(
                node.path,
                f"`${{{names[0]}}}` is expanded only in `api_key` and `headers` of models; "
                "write the value itself",
            )


def secret_places(models: Json) -> Iterable[tuple[str | int, ...]]:
    """Yield the places in a project file that may hold ``${NAME}``."""
    top = models if isinstance(models, dict) else {}
    judges = top.get("judges")
    named = judges if isinstance(judges, dict) else {}
    for path in (*((name,) for name in top if name != "judges"), *(("judges", n) for n in named)):
        yield ("models", *path, "api_key")
        yield ("models", *path, "headers")


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
