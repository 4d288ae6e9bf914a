"""Sending requests through the clients of the official SDKs, which have the same interface.

The HTTP client below them talks to one host, reads bounded bodies and keeps no state. It is of
httpx2, or of httpx, which has the same interface, below version 3 of OpenAI's SDK and version 2 of
Anthropic's: other libraries of users may still need those.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl
import weakref
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache, partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from promptgraft.adapters.calling.access import Access
from promptgraft.adapters.calling.turns import Files, NothingReceivedError, Received
from promptgraft.prompt.schema import JsonObject
from promptgraft.runtime import event_loop

if TYPE_CHECKING:
    import httpx2

LONGEST_BODY = 16 * 2**20
"""Largest response in bytes, as sent and as unpacked; the longest answers have about 1 MB."""

LONGEST_RESULTS = 256 * 2**20
"""Largest results of a batch in bytes."""

# The values of zlib's wbits to try for each encoding: 32 + 15 detects gzip or zlib headers, and
# -15 is the raw deflate that some servers send instead of zlib.
_WINDOWS = {"gzip": (32 + 15,), "x-gzip": (32 + 15,), "deflate": (32 + 15, -15)}


def confined(
    client: type[httpx2.AsyncClient], *, longest: int = LONGEST_BODY
) -> httpx2.AsyncClient:
    """Return a client that follows no redirects, keeps no cookies and reads bounded bodies.

    A body of more than ``longest`` bytes, or in an encoding that was not requested, raises
    ``NothingReceivedError``.
    """
    http = _http_of(client)
    return client(
        verify=_authorities(http),
        follow_redirects=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        # httpx would also offer br and zstd, depending on what is installed.
        headers={"accept-encoding": "gzip, deflate"},
        event_hooks={"response": [partial(_bound, _body_of(http), longest)]},
    )


def _http_of(client: type[httpx2.AsyncClient]) -> ModuleType:
    """Return the HTTP library that the client of an SDK belongs to."""
    roots = (kind.__module__.partition(".")[0] for kind in client.__mro__)
    return importlib.import_module(next(root for root in roots if root in {"httpx", "httpx2"}))


@cache  # loading the certificates takes longer than the rest of creating a client
def _authorities(http: ModuleType) -> ssl.SSLContext:
    context: ssl.SSLContext = http.create_ssl_context()
    return context


async def _bound(body: type[_Body], longest: int, response: httpx2.Response) -> None:
    """Bound the body of ``response``, and have it read as UTF-8, which JSON always is."""
    # Without these headers httpx neither unpacks the body itself nor trusts the declared charset.
    coding = response.headers.pop("content-encoding", "").strip().lower()
    kind = response.headers.get("content-type", "").partition(";")[0]
    if kind:
        response.headers["content-type"] = kind
    response.stream = cast("httpx2.AsyncByteStream", body(response.stream, coding, longest))


class _Body:
    """A body that is unpacked here, of at most so many bytes."""

    stream_of: type[httpx2.AsyncByteStream]

    def __init__(self, packed: object, coding: str, longest: int) -> None:
        if not isinstance(packed, self.stream_of):
            raise NothingReceivedError("the response has no body that can be read")
        self._packed = packed
        self._coding = coding
        self._longest = longest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = bytearray()
        async for chunk in self._packed:
            body += chunk
            _check_length(len(body), self._longest)
        yield _unpacked(bytes(body), self._coding, self._longest)

    async def aclose(self) -> None:
        await self._packed.aclose()


@cache
def _body_of(http: ModuleType) -> type[_Body]:
    """Return the kind of body that an HTTP library reads."""
    stream = http.AsyncByteStream
    return cast("type[_Body]", type("Body", (_Body, stream), {"stream_of": stream}))


def _unpacked(body: bytes, coding: str, longest: int) -> bytes:
    if coding in {"", "identity"} or not body:
        return body
    for window in _WINDOWS.get(coding, ()):
        try:
            # One byte more than allowed shows that the body is too long without unpacking it all.
            plain = zlib.decompressobj(window).decompress(body, longest + 1)
        except zlib.error:
            continue
        _check_length(len(plain), longest)
        return plain
    raise NothingReceivedError(
        f"the response cannot be unpacked: expected gzip or deflate, found `{coding[:100]}`"
    )


def _check_length(length: int, longest: int) -> None:
    if length > longest:
        raise NothingReceivedError(f"the response has more than {longest:,} bytes")


CONNECT_SECONDS = 8.0
"""Longest time to establish a connection, in seconds."""


class _Client(Protocol):
    """The interface shared by the clients, which come from the same generator."""

    def post(
        self,
        path: str,
        *,
        cast_to: type[httpx2.Response],
        body: JsonObject | None,
        files: Files | None,
        options: Mapping[str, object],
    ) -> Awaitable[httpx2.Response]: ...

    def get(
        self, path: str, *, cast_to: type[httpx2.Response], options: Mapping[str, object]
    ) -> Awaitable[httpx2.Response]: ...

    def close(self) -> Awaitable[None]: ...


class SdkEndpoint:
    """Sends through one client of an SDK, which is built with the endpoint.

    Build it outside of the event loop: importing the SDK takes a second or two, which would hold up
    all other calls. After its first request the client belongs to the event loop, and it is closed
    there when the endpoint is garbage collected.
    """

    def __init__(self, access: Access, *, longest: int = LONGEST_BODY) -> None:
        self.account: str = access.account
        self.secrets: tuple[str, ...] = access.secrets
        self.blanked: tuple[str, ...] = access.blanked
        self._path = access.api.path
        self._sdk = importlib.import_module(access.api.packages[0])
        self._http = _http_of(self._sdk.DefaultAsyncHttpxClient)
        self._client: _Client = getattr(self._sdk, access.api.client)(
            **access.client_options,
            default_headers=access.sent_headers,
            # The SDK's own retries would bypass budget and limiter, and sleep out Retry-After.
            max_retries=0,
            http_client=confined(self._sdk.DefaultAsyncHttpxClient, longest=longest),
        )
        self._is_used = False

    async def send(self, body: JsonObject, *, seconds: float) -> Received:
        return await self.exchange("POST", self._path, body=body, seconds=seconds)

    async def exchange(
        self,
        method: str,
        path: str,
        *,
        body: JsonObject | None = None,
        files: Files | None = None,
        seconds: float,
    ) -> Received:
        """Send one request to any ``path`` of the API; raises as :meth:`send` does."""
        if not self._is_used:
            self._is_used = True
            loop = asyncio.get_running_loop()
            # The finalizer holds the client but not the endpoint, which it would keep alive.
            weakref.finalize(self, _close, loop, self._client.close)
        try:
            # httpx limits each read but not their sum: dripping bytes would hold the call.
            async with asyncio.timeout(seconds):
                timeout = self._http.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))
                response = await self._response(
                    method, path, body=body, files=files, options={"timeout": timeout}
                )
        except (TimeoutError, self._sdk.APITimeoutError) as error:
            if self._is_unreachable(error.__cause__):
                waited = min(seconds, CONNECT_SECONDS)
                raise NothingReceivedError(
                    f"no connection within {waited:g} s", unreachable=True
                ) from None
            raise NothingReceivedError(
                f"no whole answer within {seconds:g} s; raise `timeout` for a slow model",
                timed_out=True,
            ) from None
        except self._sdk.APIConnectionError as error:
            cause = error.__cause__ or error  # where the SDKs keep the reason
            if isinstance(cause, NothingReceivedError):
                raise cause from None
            message = ": ".join(filter(None, (type(cause).__name__, str(cause))))
            raise NothingReceivedError(
                f"the connection failed: {message}", unreachable=self._is_unreachable(cause)
            ) from None
        return Received(
            status=response.status_code, headers=dict(response.headers), content=response.text
        )

    async def _response(
        self,
        method: str,
        path: str,
        *,
        body: JsonObject | None,
        files: Files | None,
        options: Mapping[str, object],
    ) -> httpx2.Response:
        """Send a request once and return the response, whatever its status."""
        kind: type[httpx2.Response] = self._http.Response
        try:
            if method == "GET":
                return await self._client.get(path, cast_to=kind, options=options)
            if files:
                # Like the SDK's own methods: it then sends the body as form fields.
                options = {**options, "headers": {"Content-Type": "multipart/form-data"}}
            return await self._client.post(
                path, cast_to=kind, body=body, files=files, options=options
            )
        except self._sdk.APIStatusError as error:
            response: httpx2.Response = error.response
            return response

    def _is_unreachable(self, cause: BaseException | None) -> bool:
        return isinstance(cause, (self._http.ConnectError, self._http.ConnectTimeout))


def _close(loop: asyncio.AbstractEventLoop, close: Callable[[], Awaitable[None]]) -> None:
    """Close a client in its loop, from any thread, without waiting."""

    async def closing() -> None:
        await close()

    if loop.is_running():
        event_loop.finish(asyncio.run_coroutine_threadsafe(closing(), loop))
