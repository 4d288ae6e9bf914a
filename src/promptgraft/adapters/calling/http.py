"""What the SDKs' HTTP client may do: ask one host, read bounded bodies, remember nothing."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx2

from promptgraft.adapters.calling.turns import NothingReceivedError

LONGEST_BODY = 16 * 2**20
"""Bytes of a response, as sent and as unpacked. The longest answers of models have about 1 MB."""

# Each format by the window sizes that zlib takes for it: 32 finds out whether it is gzip or
# zlib, and -15 stands for the bare deflate that some servers send instead.
_WINDOWS = {"gzip": (32 + 15,), "x-gzip": (32 + 15,), "deflate": (32 + 15, -15)}


def confined(client: type[httpx2.AsyncClient]) -> httpx2.AsyncClient:
    """Return a client that follows no redirects, keeps no cookies and reads bounded bodies.

    A body that is longer than :data:`LONGEST_BODY`, or packed in a way that was not asked for,
    raises ``NothingReceivedError`` while it is read.
    """
    return client(
        follow_redirects=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        headers={"accept-encoding": "gzip, deflate"},
        event_hooks={"response": [_bound]},
    )


async def _bound(response: httpx2.Response) -> None:
    """Have the body of ``response`` read within bounds, and as UTF-8, which JSON always is."""
    coding = response.headers.pop("content-encoding", "").strip().lower()
    kind = response.headers.get("content-type", "").partition(";")[0]
    if kind:
        response.headers["content-type"] = kind
    response.stream = _Body(response.stream, coding)


class _Body(httpx2.AsyncByteStream):
    def __init__(self, packed: object, coding: str) -> None:
        if not isinstance(packed, httpx2.AsyncByteStream):
            raise NothingReceivedError("the response has no body that can be read")
        self._packed = packed
        self._coding = coding

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = bytearray()
        async for chunk in self._packed:
            body += chunk
            _check_length(len(body))
        yield _unpacked(bytes(body), self._coding)

    async def aclose(self) -> None:
        await self._packed.aclose()


def _unpacked(body: bytes, coding: str) -> bytes:
    if coding in {"", "identity"} or not body:
        return body
    for window in _WINDOWS.get(coding, ()):
        try:
            plain = zlib.decompressobj(window).decompress(body, LONGEST_BODY + 1)
        except zlib.error:
            continue
        _check_length(len(plain))
        return plain
    raise NothingReceivedError(
        f"the response cannot be unpacked: expected gzip or deflate, found `{coding[:100]}`"
    )


def _check_length(length: int) -> None:
    if length > LONGEST_BODY:
        raise NothingReceivedError(f"the response has more than {LONGEST_BODY:,} bytes")
