"""Sending requests through the clients of the official SDKs, which share their shape."""

from __future__ import annotations

import asyncio
import importlib
import weakref
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from promptgraft.adapters.calling.access import Access
from promptgraft.adapters.calling.turns import NothingReceivedError, Received
from promptgraft.prompt.schema import JsonObject
from promptgraft.runtime import event_loop

if TYPE_CHECKING:
    import httpx2


CONNECT_SECONDS = 8.0
"""Seconds that a connection may take by itself."""


class _Client(Protocol):
    """What the clients have in common: one generator has made them."""

    def post(
        self,
        path: str,
        *,
        cast_to: type[httpx2.Response],
        body: JsonObject,
        options: Mapping[str, httpx2.Timeout],
    ) -> Awaitable[httpx2.Response]: ...

    def close(self) -> Awaitable[None]: ...


class SdkEndpoint:
    """Sends through one client of an SDK, which is built with the endpoint.

    That imports the SDK, which takes a second or two: not in the event loop, where it would
    hold up the calls of everybody else. From its first request on the client belongs to the
    event loop, and is closed there when the endpoint is gone.

    Raises:
        ConfigError: there is no key.
    """

    def __init__(self, access: Access) -> None:
        self.account = access.account
        self.secrets = access.secrets
        self._path = access.api.path
        self._sdk = importlib.import_module(access.api.packages[0])
        from promptgraft.adapters.calling.http import confined

        self._client: _Client = getattr(self._sdk, access.api.client)(
            api_key=access.key,
            base_url=access.address,
            default_headers=access.sent_headers,
            max_retries=0,
            http_client=confined(self._sdk.DefaultAsyncHttpxClient),
        )
        self._is_used = False

    async def send(self, body: JsonObject, *, seconds: float) -> Received:
        if not self._is_used:
            self._is_used = True
            loop = asyncio.get_running_loop()
            weakref.finalize(self, _close, loop, self._client.close)
        try:
            async with asyncio.timeout(seconds):
                response = await self._post(body, seconds)
        except (TimeoutError, self._sdk.APITimeoutError) as error:
            if _is_unreachable(error.__cause__):
                waited = min(seconds, CONNECT_SECONDS)
                raise NothingReceivedError(
                    f"no connection within {waited:g} s", unreachable=True
                ) from None
            raise NothingReceivedError(
                f"no whole answer within {seconds:g} s", timed_out=True
            ) from None
        except self._sdk.APIConnectionError as error:
            cause = error.__cause__ or error  # the SDKs keep the reason there
            if isinstance(cause, NothingReceivedError):
                raise cause from None
            said = ": ".join(filter(None, (type(cause).__name__, str(cause))))
            raise NothingReceivedError(
                f"the connection failed: {said}", unreachable=_is_unreachable(cause)
            ) from None
        return Received(
            status=response.status_code, headers=dict(response.headers), content=response.text
        )

    async def _post(self, body: JsonObject, seconds: float) -> httpx2.Response:
        """Send ``body`` once and return the response, whatever its status."""
        import httpx2

        timeout = httpx2.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))
        try:
            return await self._client.post(
                self._path, cast_to=httpx2.Response, body=body, options={"timeout": timeout}
            )
        except self._sdk.APIStatusError as error:
            response: httpx2.Response = error.response
            return response


def _is_unreachable(cause: BaseException | None) -> bool:
    import httpx2

    return isinstance(cause, (httpx2.ConnectError, httpx2.ConnectTimeout))


def _close(loop: asyncio.AbstractEventLoop, close: Callable[[], Awaitable[None]]) -> None:
    """Close a client in its loop, from any thread, without waiting."""

    async def closing() -> None:
        await close()

    if loop.is_running():
        event_loop.finish(asyncio.run_coroutine_threadsafe(closing(), loop))
