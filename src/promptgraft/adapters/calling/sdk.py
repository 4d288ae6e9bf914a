"""Sending requests through the clients of the official SDKs, which share their shape."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from promptgraft.adapters.calling.access import Access
from promptgraft.adapters.calling.turns import NothingReceivedError, Received
from promptgraft.prompt.schema import JsonObject

if TYPE_CHECKING:
    import httpx2


class SdkEndpoint:
    """Sends through one client of an SDK, which is built before the endpoint.

    That imports the SDK, which takes a second or two: not in the event loop, where it would
    hold up the calls of everybody else. From its first request on the client belongs to the
    event loop, and is closed there when the endpoint is gone.

    Args:
        access: where the client sends, and with which key.
        post: sends a body once, within so many seconds, and returns the response, whatever its
            status; raises NothingReceivedError when nothing, or not all of it, came back.
        close: closes the client.
    """

    def __init__(
        self,
        access: Access,
        *,
        post: Callable[[JsonObject, float], Awaitable[httpx2.Response]],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self.account = access.account
        self.secrets = access.secrets
        self._post = post
        self._close = close
        self._is_used = False

    async def send(self, body: JsonObject, *, seconds: float) -> Received:
        if not self._is_used:
            self._is_used = True
            loop = asyncio.get_running_loop()
            weakref.finalize(self, _close, loop, self._close).atexit = False
        try:
            async with asyncio.timeout(seconds):
                response = await self._post(body, seconds)
        except TimeoutError:
            raise timed_out(seconds) from None
        return Received(
            status=response.status_code, headers=dict(response.headers), content=response.text
        )


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
