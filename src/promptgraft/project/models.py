"""Adapters made from the models of a project file."""

from __future__ import annotations

import os
import pickle
from collections.abc import Awaitable, Callable
from decimal import Decimal
from types import FunctionType
from typing import TypeGuard, TypeVar
from urllib.parse import urlsplit

import attrs

from promptgraft.adapters import abilities
from promptgraft.adapters.abilities import ModelEnd
from promptgraft.adapters.base import (
    EVALUATE,
    PromptResponse,
    ProviderAdapter,
    Usage,
    adapter_identity,
    has_evaluate,
    kept_whole,
)
from promptgraft.adapters.named import HOSTED, NO_KEY, ModelConfig, built, hosted, named_adapter
from promptgraft.adapters.providers import KNOWN, Provider
from promptgraft.errors import CallerError, ConfigError
from promptgraft.ground.content import Image
from promptgraft.ground.environment import Secret
from promptgraft.ground.strict.kinds import without_name
from promptgraft.ground.text import listed
from promptgraft.ground.yaml_text import YamlPath
from promptgraft.project.python_source import (
    NotRunError,
    ObjectKind,
    PythonSource,
    as_maker,
    beside,
    call_maker,
    class_shown,
    needed_by,
    place_of,
)
from promptgraft.prompt.template import Prompt
from promptgraft.runtime import Deadline, SessionProtocol

OutputT = TypeVar("OutputT")

_STAND_IN = "unset"
_DESCRIBED = "`help(promptgraft.ProviderAdapter)` says what an adapter has"


def make_adapter(config: ModelConfig, *, what: str, python: PythonSource) -> ProviderAdapter:
    """Return the adapter of a model, without a call; ``what`` names it in messages.

    Raises:
        ConfigError: a secret is not set, an option is unusable, or the Python code is.
    """
    if config.provider == "python":
        value = python.load(config.python, _ADAPTER, what)
        return _as_adapter(_called(value, config.python, python), config.python)
    _refuse_foreign_host(config)
    return built(config)


def checked_model(
    config: ModelConfig, *, what: str, python: PythonSource
) -> tuple[ProviderAdapter, list[tuple[YamlPath, str]]]:
    """Make a model for planning, which must not be called if its secrets are not set.

    Also return what a run still needs, such as a secret, each with the option that needs it.

    Raises:
        ConfigError: an option is unusable, or the Python code cannot be loaded.
    """
    if config.provider == "python":
        try:
            value = python.load(config.python, _ADAPTER, what)
        except NotRunError as error:
            return _Unmade(config.python), [(("python",), without_name(str(error), what))]
        try:
            adapter = _called(value, config.python, python)
        except CallerError as error:
            # A missing secret may be the only reason.
            return _Unmade(config.python), [((), f"cannot be made here: {error}")]
        return _as_adapter(adapter, config.python), []
    missing = missing_secrets(config)
    if not missing:
        return make_adapter(config, what=what, python=python), []
    keyed = attrs.evolve(config, api_key=config.api_key or Secret(NO_KEY))
    if isinstance(config.options.get("base_url"), Secret):
        # A stand-in would not be a valid address; the default is, and is never called.
        options = {name: option for name, option in config.options.items() if name != "base_url"}
        keyed = attrs.evolve(keyed, options=options)
    needed = [
        (path, f"the environment variable {name} is not set; a run needs it")
        for name, path in missing.items()
    ]
    return built(keyed, lambda _: _STAND_IN), needed


def missing_secrets(config: ModelConfig) -> dict[str, YamlPath]:
    """Return each unset variable that the model needs, with the option that names it."""
    secrets: dict[YamlPath, Secret | None] = {
        **{("headers", name): secret for name, secret in config.headers.items()},
        **{
            (name,): option for name, option in config.options.items() if isinstance(option, Secret)
        },
        ("api_key",): config.api_key,
    }
    missing = {
        name: path for path, secret in secrets.items() if secret for name in secret.missing()
    }
    api = hosted(config.provider).service if config.provider in HOSTED else None
    usual = api.variables if api is not None and api.needs_key else ()
    signed = any(name.lower() == "authorization" for name in config.headers)
    if config.api_key is None and usual and not signed and not any(map(os.environ.get, usual)):
        missing[usual[0]] = ()
    return missing


def _refuse_foreign_host(config: ModelConfig) -> None:
    """Refuse to send the key in a provider's usual variable to an address of the project file.

    Raises:
        ConfigError: the file names neither a key nor a host of the provider.
    """
    address, provider = config.options.get("base_url"), KNOWN.get(config.provider, Provider())
    signed = any(name.lower() == "authorization" for name in config.headers)
    if address is None or config.api_key is not None or signed or not provider.hosts:
        return
    host = urlsplit(address.reveal() if isinstance(address, Secret) else str(address)).hostname
    if provider.owns(host or ""):
        return
    for name in filter(os.environ.get, provider.keys):
        raise ConfigError(
            f"base_url: {name} is sent to {provider.hosts[0]} only, unless the file names it; "
            f"write `api_key: ${{{name}}}` to send it to {host}, or `api_key: none`"
        )


def _called(loaded: ProviderAdapter | FunctionType, spec: str, python: PythonSource) -> object:
    if not isinstance(loaded, FunctionType):
        return loaded
    with beside(place_of(spec, spec, base=python.folder).folder):
        return call_maker(loaded, spec)


def _as_adapter(adapter: object, spec: str) -> ProviderAdapter:
    if not _is_adapter(adapter):
        raise ConfigError(
            f"{spec}: expected an adapter, it returned {class_shown(adapter)}; {_lacking(adapter)}"
        )
    return adapter


def _is_adapter(value: object) -> TypeGuard[ProviderAdapter]:
    """Return whether a value is an adapter; a class is not, although its instances may be."""
    return not isinstance(value, type) and has_evaluate(value)


def _lacking(value: object) -> str:
    """Return why a value is neither an adapter nor a factory of one, and where to read more."""
    if isinstance(value, type) and has_evaluate(value):
        return "it is a class: name an object of it, or a function that returns one"
    if isinstance(value, type):
        return f"it is a class without {EVALUATE}; {_DESCRIBED}"
    if isinstance(value, FunctionType) and (needed := needed_by(value)):
        return f"it is a function that requires {listed(needed)}; {_DESCRIBED}"
    return f"it has no {EVALUATE}; {_DESCRIBED}"


def _read(value: object) -> ProviderAdapter | FunctionType | None:
    if isinstance(value, FunctionType) and len(needed_by(value)) == 1:
        return named_adapter(value, "model")
    return value if _is_adapter(value) else as_maker(value)


_ADAPTER = ObjectKind[ProviderAdapter | FunctionType](
    expected="an adapter, a function without arguments that returns one, or one of a text",
    plural="adapters",
    read=_read,
    lacking=_lacking,
)


@attrs.frozen
class _Unmade:
    """Stands in for an adapter that cannot be made here; its prices are unknown."""

    identity: str

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT]:
        raise ConfigError(f"{self.identity} could not be made")


@attrs.frozen(eq=False)
class LateAdapter:
    """An adapter that is made when it is first needed, so that files can be read without secrets.

    Its ``repr`` contains the model's, which distinguishes two of them in a run's fingerprint.
    """

    _config: ModelConfig
    _make: Callable[[], ProviderAdapter] = attrs.field(repr=False)

    def __reduce__(self) -> str | tuple[object, ...]:
        # Another process does not have the project, so the adapter itself is pickled.
        return self._make().__reduce_ex__(pickle.HIGHEST_PROTOCOL)

    @property
    def identity(self) -> str:
        return adapter_identity(self._make())

    @property
    def longest_answer(self) -> int | None:
        return abilities.longest_answer(self._make())

    @property
    def thinking(self) -> int:
        return abilities.thinking_of(self._make())

    @property
    def cached_from(self) -> int:
        return abilities.cached_from(self._make())

    @property
    def end(self) -> ModelEnd | None:
        return abilities.end_of_model(self._make())

    @property
    def is_thinking_assumed(self) -> bool:
        return abilities.is_thinking_assumed(self._make())

    @property
    def sees(self) -> bool | None:
        adapter = self._make()
        return adapter.sees if isinstance(adapter, abilities.SeeingAdapter) else None

    def tokens_of_image(self, image: Image) -> int:
        return abilities.tokens_of_image(self._make(), image)

    def price_of(self, usage: Usage) -> Decimal | None:
        adapter = self._make()
        return adapter.price_of(usage) if isinstance(adapter, abilities.MeteredAdapter) else None

    @property
    def in_batches(self) -> bool:
        return abilities.is_in_batches(self._make())

    @property
    def kept_whole(self) -> bool:
        return kept_whole(self._make())

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT] | Awaitable[PromptResponse[OutputT]]:
        return self._make().evaluate(prompt, session=session, deadline=deadline)
