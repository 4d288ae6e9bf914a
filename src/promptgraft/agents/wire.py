"""A request of HTTP whose waits end with a deadline."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from promptgraft.runtime.deadline import LONGEST_WAIT, Deadline

if TYPE_CHECKING:
    from http.client import HTTPConnection
    from ssl import SSLContext

LONGEST_BODY = 10_000_000
"""Bytes that a reply may have; of a longer one there is none."""


def post(url: str, body: bytes, headers: Mapping[str, str], ends: Deadline) -> tuple[int, bytes]:
    """Send a request and return status and body of the reply; redirects are not followed.

    Raises:
        OSError: the other end is at fault.
        LimitReachedError: there is no time left.
    """
    from http.client import HTTPException, IncompleteRead  # takes its time

    ends.check()
    parts = urlsplit(url)
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    connection = _connection(url, min(ends.remaining, LONGEST_WAIT))
    with contextlib.closing(connection), contextlib.ExitStack() as stack:
        connection.connect()
        # A time limit of the socket begins again with each byte that comes.
        interrupt = functools.partial(_interrupt, connection.sock)
        timer = threading.Timer(min(ends.remaining, LONGEST_WAIT), interrupt)
        timer.daemon = True
        timer.start()
        stack.callback(timer.cancel)
        if ends.cancellation is not None:
            stack.callback(ends.cancellation.listen(interrupt))
        try:
            connection.request("POST", path, body, {**headers, "Connection": "close"})
            with connection.getresponse() as response:
                reply = response.read(LONGEST_BODY + 1)
                if response.length and len(reply) <= LONGEST_BODY:
                    raise IncompleteRead(reply, response.length)
        except HTTPException as error:
            raise ConnectionError(f"{type(error).__name__}: {error}") from error
        ends.check()  # interrupted, a reply without a length only seems to be whole
        return response.status, reply


def _interrupt(wire: socket.socket) -> None:
    """End a wait in another thread."""
    with contextlib.suppress(OSError):
        wire.shutdown(socket.SHUT_RDWR)


def _connection(url: str, seconds: float) -> HTTPConnection:
    from http.client import HTTPConnection, HTTPSConnection

    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        return HTTPSConnection(host, port, timeout=seconds, context=_trusting())
    return HTTPConnection(host, port, timeout=seconds)


@functools.cache
def _trusting() -> SSLContext:
    import ssl

    return ssl.create_default_context()
