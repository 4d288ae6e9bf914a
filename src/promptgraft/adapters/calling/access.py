"""Addresses and keys of providers, and keeping secrets out of messages."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import unicodedata
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import unquote, urlsplit, urlunsplit

import attrs

from promptgraft.adapters.providers import KNOWN
from promptgraft.errors import ConfigError, MissingHereError
from promptgraft.ground.secrets import HIDDEN, SENSITIVE, all_forms, redact
from promptgraft.ground.serde import digest, map_texts
from promptgraft.ground.text import on_one_line
from promptgraft.prompt.schema import JsonObject

_SHORTEST_SECRET = 6
"""Characters. Anything shorter, such as the key `none`, would match in ordinary text."""
_SHORTEST_BLANKED = 8
"""Characters of a secret that is blanked in answers too."""
_SHORTEST_KEY = 12
"""Characters of a key that is blanked even if it may be a word, unlike a dummy `lm-studio`."""

_CHAT_PATH = "/chat/completions"
ADDRESS = "an address such as http://localhost:8000/v1, without `?` and `#`"


def is_address(text: str) -> bool:
    """Return whether ``text`` is the address of an HTTP API."""
    try:
        parts = urlsplit(text)
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")  # what a connection would do first
    except ValueError:
        return False
    plain = text.isprintable() and " " not in text
    return whole and plain and not parts.query and not parts.fragment


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, as far as that can be told without a DNS lookup."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_every_address(host: str) -> bool:
    """Return whether a host to listen on stands for all addresses of this machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def is_confidential(address: str) -> bool:
    """Return whether a valid ``address`` is encrypted in transit or never leaves this machine."""
    parts = urlsplit(address)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


@attrs.frozen(kw_only=True)
class Api:
    """The HTTP API of a provider, and how to authenticate with it.

    Attributes:
        adapter: class name of its adapter, for messages.
        provider: name of the provider, one of :data:`~promptgraft.adapters.providers.KNOWN`.
        packages: modules that must be installed; the first is the SDK.
        address_variable: environment variable for the address.
        client: class of the SDK's client.
        path: path of requests, below the address.
        taken: request fields that ``extra_body`` must not set, with what sets them.
        extra: the extra that installs all packages; by default named like the SDK.
        own_address: the default address; None for the SDK's own.
        needs_address: whether the SDK has no default address.
        needs_key: whether a request needs a key; otherwise the SDK finds credentials by itself.
        key_option: the client's parameter for the key.
        address_option: the client's parameter for the address.
        seller: the provider whose prices apply; None to go by model name and address.
        if_absent: the advice for a server that does not have the path; empty for the usual one.
    """

    adapter: str
    provider: str
    packages: tuple[str, ...]
    address_variable: str
    client: str
    path: str
    taken: Mapping[str, str]
    extra: str = ""
    own_address: str | None = None
    needs_address: bool = False
    needs_key: bool = True
    key_option: str = "api_key"
    address_option: str = "base_url"
    seller: str | None = None
    if_absent: str = ""

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables for the key; the first that is set counts."""
        return KNOWN[self.provider].keys


@attrs.frozen(kw_only=True)
class Access:
    """How to reach a provider with one account.

    A key or an address that is None is read from the environment of each process; without an
    address, the SDK's own is used. ``further`` are options of the SDK's client.
    """

    api: Api
    api_key: str | None = attrs.field(repr=False)
    base_url: str | None = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(repr=False)
    further: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def client_options(self) -> dict[str, str | None]:
        """The arguments of the SDK's client: key, address and further options."""
        api = self.api
        options = {api.key_option: self.key or None, api.address_option: self.address}
        return {**options, **self.further}

    @property
    def key(self) -> str:
        """The key; empty if none is needed. Raises ``ConfigError`` if it is missing."""
        keys = (os.environ.get(name, "").strip() for name in self.api.variables)
        key_found = self.api_key or next(filter(None, keys), None)
        if key_found is not None:
            return key_found
        if any(name.lower() == "authorization" for name in self.sent_headers):
            return "unused"  # the SDK insists on a key, but the user's header authenticates
        if not self.api.needs_key:
            return ""
        raise MissingHereError(
            f"{self.api.adapter}: there is no API key; set {self.api.variables[0]}, or give "
            "api_key= (any text for a server that needs none)"
        )

    def check(self) -> None:
        """Raise ``ConfigError`` if the SDK, the key or the address is missing or unusable."""
        missing = [name for name in self.api.packages if not _is_installed(name)]
        if missing:
            raise MissingHereError(
                f"{self.api.adapter} needs the package `{missing[0]}`; run: "
                f"pip install 'promptgraft[{self.api.extra or self.api.packages[0]}]'"
            )
        if self._address is None and self.api.needs_address:
            raise ConfigError(
                f"{self.api.adapter}: there is no address; set {self.api.address_variable}, or "
                "give base_url="
            )
        # Before the key, which is asked for with what the address holds.
        if self._address is not None and not is_address(self._address):
            raise ConfigError(
                f"{self.api.adapter}: {self.api.address_variable}: expected {ADDRESS}, found "
                "something else (not shown)"
            )
        path = urlsplit(self._address or "").path
        # Addresses as providers show them; the SDK adds the rest.
        is_of_azure = self.api.address_option == "azure_endpoint"
        azure_paths, paths = ("/openai/v1", "/openai/deployments"), (self.api.path, _CHAT_PATH)
        for ending in azure_paths if is_of_azure else paths:
            if ending in path:
                name = self.api.address_variable if self.base_url is None else "base_url"
                also = "; `/openai/v1` is one of `provider: openai`" if is_of_azure else ""
                raise ConfigError(
                    f"{self.api.adapter}: {name}: leave out `{ending}` and what follows{also}"
                )
        key = self.key
        if len(key.splitlines()) > 1:
            raise ConfigError(
                f"{self.api.adapter}: {self._variable}: expected a key on one line, found a line "
                "break in it (the key is not shown); set it again"
            )
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(
                f"{self.api.adapter}: {self._variable}: expected printable ASCII characters, found "
                "something else (the key is not shown); set it again"
            )

    @property
    def address(self) -> str | None:
        """The address without credentials; None for the SDK's own."""
        address_found = self._address
        if address_found is None:
            return None
        parts = urlsplit(address_found)
        # The address appears in identities and messages, where credentials must not.
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def host(self) -> str | None:
        return None if self.address is None else urlsplit(self.address).netloc

    def is_at(self, hosts: Collection[str]) -> bool:
        """Return whether the address is the SDK's own, or at one of ``hosts``."""
        own_address = self._address
        return own_address is None or (is_address(own_address) and self.host in hosts)

    @property
    def sent_headers(self) -> dict[str, str]:
        """The custom headers, with the credentials from the address."""
        user, password = self._user
        # The user's own header wins, however it is written: two would be sent otherwise.
        is_given = any(name.lower() == "authorization" for name in self.headers)
        if is_given or not (user or password):
            return dict(self.headers)
        basic = b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {basic}", **self.headers}

    @property
    def account(self) -> str:
        """Provider, host, and a digest of all secrets: what a rate limit applies to."""
        what = digest([self.key, sorted(self.sent_headers.items()), dict(self.further)])
        return f"{self.api.provider} {self.host or 'default'} {what[:16]}"

    @property
    def secrets(self) -> tuple[str, ...]:
        texts = [self.key, *self._user, *self.sent_headers.values()]
        # Also the parts: a server may quote the token of `Bearer TOKEN` alone.
        parts = [part for text in texts for part in (text, *text.split())]
        return tuple(dict.fromkeys(part for part in parts if len(part) >= _SHORTEST_SECRET))

    @property
    def blanked(self) -> tuple[str, ...]:
        """The secrets that are also blanked in valid answers.

        Excluded are texts that may be ordinary words, such as the key ``unused`` or the value of an
        ``Accept`` header: blanking them would corrupt unrelated answers. A password and the values
        of headers such as ``Authorization`` are always included.
        """
        carried = [text for name, text in self.sent_headers.items() if SENSITIVE.search(name)]
        certain = {self._user[1], *(word for text in carried for word in text.split())}
        if len(self.key) >= _SHORTEST_KEY:
            certain.add(self.key)
        return tuple(
            secret
            for secret in self.secrets
            if len(secret) >= _SHORTEST_BLANKED and (secret in certain or _is_no_word(secret))
        )

    @property
    def _variable(self) -> str:
        """The name of the variable that holds the key."""
        variables = (name for name in self.api.variables if os.environ.get(name, "").strip())
        return "api_key" if self.api_key else next(variables, self.api.variables[0])

    @property
    def _address(self) -> str | None:
        address = self.base_url or os.environ.get(self.api.address_variable)
        return address or self.api.own_address

    @property
    def _user(self) -> tuple[str, str]:
        parts = urlsplit(self._address or "")
        return unquote(parts.username or ""), unquote(parts.password or "")


def _is_installed(name: str) -> bool:
    # Check the parents first: find_spec("google.auth") imports `google`, which may be missing.
    parts = name.split(".")
    above = (".".join(parts[: end + 1]) for end in range(len(parts)))
    return all(importlib.util.find_spec(name) is not None for name in above)


LONGEST_MESSAGE = 500


def blanked(body: JsonObject, secrets: Iterable[str]) -> JsonObject:
    """Return ``body`` with :data:`HIDDEN` in place of ``secrets``, in keys and values."""
    forms = all_forms(tuple(secrets))

    def hidden(text: str) -> str:
        for form in forms:
            text = text.replace(form, HIDDEN)
        return text

    return {hidden(name): map_texts(value, hidden, keys=True) for name, value in body.items()}


def _is_no_word(secret: str) -> bool:
    letters = any(character.isalpha() for character in secret)
    digits = any(character.isdigit() for character in secret)
    return letters and digits and "://" not in secret


def redacted_line(text: str, secrets: Iterable[str], *, longest: int = LONGEST_MESSAGE) -> str:
    """Return ``text`` redacted, on one line, without control characters, cut in the middle."""
    # Redact before cutting: half a secret would not be found. The first cut only bounds the work.
    hidden = _shortened(redact(text, secrets), 20 * longest)
    printable = "".join(
        " " if unicodedata.category(character).startswith("C") else character
        for character in hidden
    )
    return _shortened(on_one_line(printable), longest)


def _shortened(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 3
    return f"{text[: longest - 1 - tail]}…{text[len(text) - tail :]}"
