"""Where a provider is reached, and what must be known to nobody else."""

from __future__ import annotations

import importlib.util
import os
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit, urlunsplit

import attrs

from promptgraft.errors import ConfigError
from promptgraft.serde import digest

_SHORTEST_SECRET = 6
"""Characters. What is shorter, such as a key `none`, would be found in any text."""


ADDRESS = "an address such as http://localhost:8000/v1, without `?` and `#`"


def is_address(text: str) -> bool:
    """Tell whether ``text`` is the address of an HTTP interface."""
    try:
        parts = urlsplit(text)
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    plain = text.isprintable() and " " not in text
    return whole and plain and not parts.query and not parts.fragment


@attrs.frozen(kw_only=True)
class Access:
    """How to reach a provider with one account.

    What is not given is read from the environment, in each process again.

    Attributes:
        adapter: who asks, for messages.
        provider: the provider, or whose format is spoken.
        packages: what must be installed; the first is the SDK, and the extra that installs all.
        variables: environment variables of the key; the first that is set counts.
        address_variable: environment variable of the address.
        api_key: the key; None for the environment's.
        base_url: the address of the interface; None for the environment's or the SDK's own.
        headers: further headers of each request.
    """

    adapter: str
    provider: str
    packages: tuple[str, ...]
    variables: tuple[str, ...]
    address_variable: str
    api_key: str | None = attrs.field(repr=False)
    base_url: str | None = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(repr=False)

    @property
    def key(self) -> str:
        """The key.

        Raises:
            ConfigError: there is none.
        """
        found = self.api_key or next(filter(None, map(os.environ.get, self.variables)), None)
        if found is not None:
            return found
        if any(name.lower() == "authorization" for name in self.sent_headers):
            return "unused"
        raise ConfigError(
            f"{self.adapter}: there is no API key; set {self.variables[0]}, or give api_key= (any "
            "text for a server that needs none)"
        )

    def check(self) -> None:
        """Refuse to begin without the SDK or without a key.

        Raises:
            ConfigError: one of them is missing, or the environment holds a key that cannot be
                sent, or an address that is none.
        """
        missing = [name for name in self.packages if importlib.util.find_spec(name) is None]
        if missing:
            raise ConfigError(
                f"{self.adapter} needs the package `{missing[0]}`; run: "
                f"pip install 'promptgraft[{self.packages[0]}]'"
            )
        key = self.key
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(
                f"{self.adapter}: the API key holds characters that cannot be sent; set "
                f"{self.variables[0]} again, without line breaks and quotes"
            )
        if self._address is not None and not is_address(self._address):
            raise ConfigError(
                f"{self.adapter}: {self.address_variable}: expected {ADDRESS}, found something "
                "else (not shown)"
            )

    @property
    def address(self) -> str | None:
        """The address without user and password; None for the SDK's own."""
        given = self._address
        if given is None:
            return None
        parts = urlsplit(given)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def host(self) -> str | None:
        """Host and port of an address that is not the SDK's own."""
        return None if self.address is None else urlsplit(self.address).netloc

    @property
    def sent_headers(self) -> dict[str, str]:
        """The further headers, with user and password of the address."""
        user, password = self._user
        if not user and not password:
            return dict(self.headers)
        basic = b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {basic}", **self.headers}

    @property
    def account(self) -> str:
        """Provider, host, and a digest of everything secret."""
        what = digest([self.key, sorted(self.sent_headers.items())])
        return f"{self.provider} {self.host or 'default'} {what[:16]}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must appear nowhere."""
        said = [self.key, *self._user, *self.sent_headers.values()]
        parts = [part for text in said for part in (text, *text.split())]
        return tuple(dict.fromkeys(part for part in parts if len(part) >= _SHORTEST_SECRET))

    @property
    def _address(self) -> str | None:
        return self.base_url or os.environ.get(self.address_variable) or None

    @property
    def _user(self) -> tuple[str, str]:
        parts = urlsplit(self._address or "")
        return unquote(parts.username or ""), unquote(parts.password or "")
