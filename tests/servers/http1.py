"""As much of HTTP/1.1 as a server on loopback needs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus

import attrs

_LONGEST = 64 * 1024 * 1024


@attrs.frozen(kw_only=True)
class HttpRequest:
    """A request; names of headers in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


async def read_request(reader: asyncio.StreamReader, begun: bytes) -> HttpRequest | None:
    """Read the next request of a connection, of which ``begun`` has been read; None at its end."""
    try:
        begun = begun or await reader.readexactly(1)
        if begun == b"\x16":  # a client begins with TLS, which is not spoken here
            return None
        head = begun + await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        body = await _read_body(reader, headers)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return HttpRequest(method=method, path=path.partition("?")[0], headers=headers, body=body)


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(min(_LONGEST, int(headers.get("content-length", "0"))))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return body


def head_of(status: int, headers: Mapping[str, str]) -> bytes:
    """Return the status line and the headers, with the empty line behind them."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unassigned"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{n}: {v}" for n, v in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def chunks_of(body: bytes, size: int = 64) -> list[bytes]:
    """Return a body as it is sent in chunks, with the last, empty one."""
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b"")]
