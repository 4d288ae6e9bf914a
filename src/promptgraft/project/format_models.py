"""The models of a project file.

Secrets are written as ``${NAME}``, an environment variable; plain secrets are refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlsplit

import attrs

from promptgraft.adapters.calling.prices import PRICE, ModelPrice
from promptgraft.adapters.named import (
    COMPATIBLE,
    HOSTED,
    NO_KEY,
    PROVIDERS,
    ModelConfig,
    hosted,
    model_of,
    named_model,
    spelling_hint,
)
from promptgraft.adapters.providers import KEY_OWNERS
from promptgraft.ground.environment import REFERENCE as SECRET
from promptgraft.ground.environment import Secret
from promptgraft.ground.secrets import SENSITIVE
from promptgraft.ground.serde import did_you_mean, looks_like_a_key, shown
from promptgraft.ground.strict.checks import Kind, Reach, Schema, check, integer, one_of
from promptgraft.ground.strict.kinds import Key, Keys, abouts_of, keys_of, named, record, record_of
from promptgraft.ground.strict.nodes import Node
from promptgraft.ground.yaml_text import YamlPath
from promptgraft.project.python_source import REFERENCE

T = TypeVar("T")

# Probably a key in place of a variable's name: long, with lower-case letters and digits.
_NO_NAME = re.compile(r"\$\{(?=\w*[a-z])(?=\w*[0-9])\w{20,}\}")


@attrs.frozen(kw_only=True)
class ModelsConfig:
    """The models by their part in a run.

    Attributes:
        task: Answers the prompts, in a project without an `agent`.
        reflection: Proposes new texts; by default the task's model.
        judges: The models of metrics, by the names that metrics use.
        user: Plays the user of cases with a `conversation_scenario`.
        teacher: Answers the prompt or graph under `teacher`; by default the reflection model.
    """

    task: ModelConfig | None = None
    reflection: ModelConfig | None = None
    judges: Mapping[str, ModelConfig] = attrs.field(factory=dict)
    user: ModelConfig | None = None
    teacher: ModelConfig | None = None

    @property
    def by_place(self) -> dict[YamlPath, ModelConfig]:
        """Every model by its place in the file."""
        models = dict[YamlPath, ModelConfig]()
        for role in ("task", "reflection", "user", "teacher"):
            if (config := getattr(self, role)) is not None:
                models["models", role] = config
        return models | {("models", "judges", name): judge for name, judge in self.judges.items()}


def _key(value: object) -> Secret | None:
    if not isinstance(value, str) or _NO_NAME.search(value):
        return None
    # The whole value: a key with a reference in the middle would still be written down.
    return Secret(value) if value == NO_KEY or SECRET.fullmatch(value) else None


API_KEY = check(
    "`${NAME}`",
    _key,
    {"type": "string", "pattern": r"^(\$\{\w+\}|none)$"},
    hidden=True,
    mend=(
        "put the key into an environment variable and name that, or write "
        f"`{NO_KEY}` for a server that needs no key"
    ),
).reaching(Reach.VARIABLE)
"""The API key of a model; a plain key is refused."""


def _read_header(node: Node) -> Secret | None:
    """Read the value of a header; one that looks like a secret must be a variable."""
    value = node.value
    if not isinstance(value, str) or not value:
        node.fault("expected a text, found something else (not shown)")
        return None
    is_secret = SENSITIVE.search(str(node.path[-1])) is not None or looks_like_a_key(value)
    if _NO_NAME.search(value) or (is_secret and not SECRET.search(value)):
        node.fault(
            "expected `${NAME}` in it, found a plain text (not shown); put the secret into an "
            "environment variable and name that"
        )
        return None
    return Secret(value)


HEADER: Kind[Secret] = Kind(_read_header, {"type": "string", "minLength": 1}, reach=Reach.VARIABLE)
"""The value of a header or an environment variable; a plain secret is refused."""


def refuse_references(root: Node) -> None:
    """Note a fault for each ``${NAME}`` where secrets are not allowed."""
    todo: list[Node] = [root]
    while todo:
        node = todo.pop()
        *model, last = node.path or ("",)
        if last in _EXPANDED and _is_model(model):
            continue
        if node.path in _PLACES:
            _refuse_keys_in_url(node)
            continue
        todo.extend((*node.members().values(), *node.items()))
        if isinstance(node.value, str) and (names := Secret(node.value).names):
            node.source.settle(
                node.path,
                f"`${{{names[0]}}}` is expanded only in `model`, `base_url`, `api_key` and "
                "`headers` of models, in `headers`, `json` and `env` of an agent, and in "
                "`store.url`; write the "
                "value itself",
            )


def _refuse_keys_in_url(node: Node) -> None:
    for name in Secret(str(node.value)).names if node.path == ("store", "url") else ():
        if name in KEY_OWNERS:
            node.source.settle(
                node.path,
                f"expected the address of a database, found `${{{name}}}`, the key of "
                f"{KEY_OWNERS[name]}, which no database needs; name another variable",
            )


_EXPANDED = ("model", "base_url", "api_key", "headers")
_PLACES = (
    ("store", "url"),
    ("agent", "env"),
    ("agent", "http", "headers"),
    ("agent", "http", "json"),
)


def _is_model(path: list[str | int]) -> bool:
    is_judge = path[:2] == ["models", "judges"]
    return path[:1] == ["models"] and len(path) == (3 if is_judge else 2)


_PYTHON_ONLY = "comes from Python only: write `python: file.py:NAME` instead of `provider`"
_ELSEWHERE = {"profile": f"`profile` {_PYTHON_ONLY}"}


_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD)S?(_?\d+)?$", re.IGNORECASE)


def _read_shown(kind: Kind[T], node: Node) -> T | None:
    """Read a text that reports show and that is sent as it is: no secret may be part of it."""
    for name in Secret(str(node.value)).names:
        if _SECRET_NAME.search(name) or name in KEY_OWNERS:
            node.fault(
                f"expected no secret, found `${{{name}}}`, which is one by its name; secrets are "
                "sent as `api_key` or in `headers`, so put it there, or rename the variable"
            )
            return None
    return kind.read(node)


def _shown(kind: Kind[T]) -> Kind[T]:
    return attrs.evolve(kind, reader=functools.partial(_read_shown, kind))


def _expandable(value: object) -> str | Secret | None:
    if not isinstance(value, str) or not value or _NO_NAME.search(value):
        return None
    return Secret(value) if SECRET.search(value) else value


def _address(value: object) -> str | Secret | None:
    return _expandable(value) if "@" not in str(value) else None


# Kinds, because an evolved check would read with its own message.
_NAME_OF_MODEL: Kind[object] = Kind(
    check("a text", _expandable).read, {"type": "string", "minLength": 1}, reach=Reach.VARIABLE
)
_BASE_URL: Kind[object] = Kind(
    check(
        "an address such as http://localhost:8000/v1 without user and password",
        _address,
        hidden=True,
        mend="give those as `headers`",
    ).read,
    {"type": "string", "pattern": r"^(https?://|\$\{\w+\})[^@]*$"},
    reach=Reach.ADDRESS,
)
_SPECIAL: Mapping[str, Kind[object]] = {
    "api_key": API_KEY,
    "headers": named(HEADER),
    "prices": record_of(
        ModelPrice,
        special=dict.fromkeys(("input", "output", "cached_input", "cache_write"), PRICE),
        about="The price of a million tokens, in US dollars.",
    ),
    "model": _shown(_NAME_OF_MODEL),
    "base_url": _shown(_BASE_URL),
}


def _options(provider: str) -> Keys:
    provider = "openai" if provider in COMPATIBLE else provider
    if provider not in HOSTED:
        return {
            "attention": Key(integer(1), "The number of rule words of each choice that count."),
            "words_per_failure": Key(
                integer(1), "How many words a reflection takes of a failed input."
            ),
            "words_per_rule": Key(integer(1), "How many words of evidence a rule may have."),
        }
    return keys_of(hosted(provider), skip=_ELSEWHERE, special=_SPECIAL)


@functools.cache
def _kind_of(provider: str) -> Kind[ModelConfig]:
    provider_key = Key(one_of(provider), "The provider of the model.", required=True)
    return record(
        model_of,
        {"provider": provider_key, **_options(provider)},
        elsewhere=None if provider == "offline" else _ELSEWHERE,
    )


_PYTHON: Kind[ModelConfig] = record(
    functools.partial(ModelConfig, provider="python"),
    {
        "python": Key(
            REFERENCE,
            "An adapter, a function without arguments that makes one, or one that answers a text.",
            required=True,
        )
    },
)


def _read_model(node: Node) -> ModelConfig | None:
    if isinstance(node.value, str):
        return _read_text(node, node.value)
    members = node.members()
    if "python" in members:
        return _PYTHON.read(node)
    if not isinstance(node.value, dict) or "provider" not in members:
        node.expected("an object with `provider` or `python`, or `PROVIDER/MODEL`")
        return None
    provider = one_of(*PROVIDERS).read(members["provider"])
    if provider is None:
        return None
    _refuse_misdirected_keys(provider, members)
    return _kind_of(provider).read(node)


def named_host(address: object) -> str | None:
    """Return the host of an address that is written out; None if a variable may decide it."""
    try:
        host = urlsplit(str(address or "")).hostname
    except ValueError:
        return None
    return host if host and not SECRET.search(urlsplit(str(address)).netloc) else None


def _refuse_misdirected_keys(provider: str, members: Mapping[str, Node]) -> None:
    """Note a fault for each provider's key that would go to another one's host."""
    address = members["base_url"].value if "base_url" in members else None
    if named_host(address):
        return
    recipient = provider
    if provider == "litellm" and "model" in members:
        recipient = str(members["model"].value).partition("/")[0]
    headers = members["headers"].members().values() if "headers" in members else ()
    key = (members["api_key"],) if "api_key" in members else ()
    for node in (*key, *headers):
        # A header goes to whatever host a variable names, a key at least to its own provider.
        is_own = node in key or address is None
        for name in Secret(str(node.value)).names:
            owner = KEY_OWNERS.get(name)
            if owner is not None and not (is_own and owner == recipient):
                node.fault(
                    f"expected the key of {recipient}, found `${{{name}}}`, that of {owner}; name "
                    "the host that gets it as `base_url`, or another variable"
                )


_MODEL_NAME = re.compile(r"[a-z]{2,10}(?:[-./][a-z0-9.]{1,8}){0,4}")


def _read_text(node: Node, text: str) -> ModelConfig | None:
    model = named_model(text)
    if model is None or looks_like_a_key(text):
        provider = re.split("[/:]", text)[0]
        # A text that may be a key is not repeated.
        is_name = provider in PROVIDERS or _MODEL_NAME.fullmatch(text)
        is_shown = is_name and not looks_like_a_key(text)
        what = shown(text) if is_shown else "another text"
        near = spelling_hint(text) if is_shown else ""
        if not near and provider not in PROVIDERS:
            near = did_you_mean(provider, list(PROVIDERS))
        providers_known = "" if near else f"; providers: {', '.join(sorted(PROVIDERS))}"
        node.fault(f"expected `offline` or `PROVIDER/MODEL`, found {what}{near}{providers_known}")
        return None
    return model


MODEL: Kind[ModelConfig] = Kind(_read_model, {"$ref": "#/$defs/model"}, reach=Reach.ADDRESS)
MODELS: Kind[ModelsConfig] = record_of(
    ModelsConfig,
    special={**dict.fromkeys(abouts_of(ModelsConfig), MODEL), "judges": named(MODEL)},
    about="The models that answer, reflect, judge and teach.",
)


def model_schema() -> Schema:
    """Return the JSON Schema of a model, for references from the places of models."""
    return {
        "description": "A model: its provider with options, or an adapter from Python.",
        "anyOf": [
            {"type": "string", "pattern": f"^(offline|({'|'.join(PROVIDERS[1:])})/.+)$"},
            *(_kind_of(provider).schema for provider in PROVIDERS),
            _PYTHON.schema,
        ],
    }
