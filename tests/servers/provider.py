"""What a loopback server must know of the provider that it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from servers.behaviour import Answer, Asked, Fault, JsonObject


@attrs.frozen(kw_only=True)
class Tokens:
    """Tokens of one answer.

    The sent ones include those read from and written to a cache, the received ones those that
    were thought.
    """

    sent: int
    received: int
    cached: int = 0
    written: int = 0
    thought: int = 0


@attrs.frozen(kw_only=True)
class Prefixes:
    """Beginnings of a request, shortest first.

    Attributes:
        read: those that are looked up in the cache.
        kept: those that are in the cache once the request is answered.
        are_paid: whether the tokens that are written are counted apart.
    """

    read: Sequence[str] = ()
    kept: Sequence[str] = ()
    are_paid: bool = True


class Provider(Protocol):
    """A provider's protocol. Pure: data in, data out.

    Attributes:
        name: of the provider.
        path: of the requests.
        base_path: the path of the ``base_url`` that its SDK wants.
        cached_in_steps_of: cached tokens are a multiple of this.
    """

    name: str
    path: str
    base_path: str
    cached_in_steps_of: int

    def error_text(self, path: str) -> JsonObject | None:
        """Return what the path of a request says of it; None for a path that is not there."""
        ...

    def key_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the key that a request carries."""
        ...

    def fault(self, status: int) -> Fault:
        """Return the provider's usual error of a status."""
        ...

    def wrong_key(self, key: str | None) -> Fault:
        """Return the error for a key that is missing or wrong."""
        ...

    def no_model(self, model: str) -> Fault:
        """Return the error for a model that does not exist."""
        ...

    def check(self, body: JsonObject, headers: Mapping[str, str]) -> Fault | None:
        """Return the error for a request that breaks a documented rule; None for a good one."""
        ...

    def read(self, body: JsonObject, headers: Mapping[str, str], number: int) -> Asked:
        """Return what a good request asks."""
        ...

    def prefixes(self, asked: Asked) -> Prefixes:
        """Return the beginnings of a request that the provider would cache."""
        ...

    def answer_body(self, asked: Asked, answer: Answer, tokens: Tokens) -> JsonObject:
        """Return the body of a good response."""
        ...

    def fault_body(self, fault: Fault, request_id: str) -> JsonObject:
        """Return the body of an error."""
        ...

    def headers(self, request_id: str, *, limit: int, remaining: int) -> dict[str, str]:
        """Return what the provider sends with every response."""
        ...


def some_tokens(text: str) -> int:
    """Return a plausible number of tokens of a text, at least 1."""
    return len(text) // 4 + 1
