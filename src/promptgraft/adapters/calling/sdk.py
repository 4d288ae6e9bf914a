"""Sending requests through the official SDKs, which share their shape."""

from __future__ import annotations

import asyncio
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from promptgraft.adapters.calling.access import Access
from promptgraft.adapters.calling.turns import NothingReceivedError, Received
from promptgraft.prompt.schema import JsonObject

if TYPE_CHECKING:
    import httpx2

ClientT = TypeVar("ClientT")


class SdkEndpoint(ABC, Generic[ClientT]):
    """Sends through one client of an SDK, which is built with the endpoint.

    That imports the SDK, which takes a second or two: not in the event loop, where it would
    hold up the calls of everybody else. From its first request on the client belongs to the
    event loop, and is closed there when the endpoint is gone.

    Args:
        access: where to send, and with which key.

    Raises:
        ConfigError: there is no key.
    """

    def __init__(self, access: Access) -> None:
        self._account = access.account
        self._secrets = access.secrets
        self._client = self._connect(access)
        self._is_used = False

    @property
    def account(self) -> str:
        return self._account

    @property
    def secrets(self) -> tuple[str, ...]:
        return self._secrets

    async def send(self, body: JsonObject, *, seconds: float) -> Received:
        if not self._is_used:
            self._is_used = True
            close = self._closing(self._client)
            finalizer = weakref.finalize(self, _close, asyncio.get_running_loop(), close)
            finalizer.atexit = False
        try:
            async with asyncio.timeout(seconds):
                response = await self._post(self._client, body, seconds)
        except TimeoutError:
            raise timed_out(seconds) from None
        return Received(
            status=response.status_code,
            headers=dict(response.headers),
            content=response.text,
        )

    @abstractmethod
    def _connect(self, access: Access) -> ClientT:
        """Return a new client that does not retry."""

    @abstractmethod
    def _closing(self, client: ClientT) -> Callable[[], Awaitable[None]]:
        """Return what closes ``client``."""

    @abstractmethod
    async def _post(self, client: ClientT, body: JsonObject, seconds: float) -> httpx2.Response:
        """Send ``body`` once and return the response, whatever its status.

        Raises:
            NothingReceivedError: nothing, or not all of it, came back.
        """


def timed_out(seconds: float) -> NothingReceivedError:
    """Return the error for a request that took too long."""
    return NothingReceivedError(f"no whole answer within {seconds:g} s", timed_out=True)


def broken(error: BaseException) -> NothingReceivedError:
    """Return the error for a connection that broke; the SDKs keep the reason in the cause."""
    cause = error.__cause__ or error
    said = ": ".join(filter(None, (type(cause).__name__, str(cause))))
    return NothingReceivedError(f"the connection failed: {said}")


def _close(loop: asyncio.AbstractEventLoop, close: Callable[[], Awaitable[None]]) -> None:
    """Close a client in its loop, from any thread, without waiting."""
    if loop.is_running():
        asyncio.run_coroutine_threadsafe(_awaited(close), loop)


async def _awaited(close: Callable[[], Awaitable[None]]) -> None:
    await close()
