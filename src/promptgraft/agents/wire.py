"""A request of HTTP whose waits end with a deadline."""

from __future__ import annotations

import contextlib
import functools
import io
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from promptgraft.runtime.deadline import LONGEST_WAIT, Deadline

if TYPE_CHECKING:
    from http.client import HTTPConnection
    from ssl import SSLContext

LONGEST_BODY = 10_000_000
"""Bytes that a reply may have; of a longer one there is none."""


class _Wire(io.RawIOBase):
    """A socket in the place of that of an ``HTTPConnection``."""

    def __init__(self, wire: socket.socket, ends: Deadline) -> None:
        self._wire = wire
        self._ends = ends

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            self._wait_at_most()
            with contextlib.suppress(TimeoutError):
                return self._wire.recv_into(buffer)

    def sendall(self, data: bytes) -> None:
        self._wait_at_most()
        self._wire.sendall(data)

    def interrupt(self) -> None:
        """End a wait in another thread."""
        with contextlib.suppress(OSError):
            self._wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Leave the socket open: a connection closes this before its reply is read."""

    def _wait_at_most(self) -> None:
        self._ends.check()
        seconds = min(self._ends.remaining, self._ends.look_every, LONGEST_WAIT)
        self._wire.settimeout(seconds)


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
        stack.enter_context(connection.sock)
        wire = _Wire(connection.sock, ends)
        connection.sock = wire
        if ends.cancellation is not None:
            stack.callback(ends.cancellation.listen(wire.interrupt))
        try:
            connection.request("POST", path, body, {**headers, "Connection": "close"})
            response = connection.getresponse()
            reply = response.read(LONGEST_BODY + 1)
            if response.length and len(reply) <= LONGEST_BODY:
                raise IncompleteRead(reply, response.length)
        except HTTPException as error:
            raise ConnectionError(f"{type(error).__name__}: {error}") from error
        return response.status, reply


def _connection(url: str, seconds: float) -> HTTPConnection:
    from http.client import HTTPConnection, HTTPSConnection

    parts = urlsplit(url)
    if parts.scheme == "https":
        return HTTPSConnection(
            parts.hostname or "", parts.port, timeout=seconds, context=_trusting()
        )
    return HTTPConnection(parts.hostname or "", parts.port, timeout=seconds)


@functools.cache
def _trusting() -> SSLContext:
    import ssl

    return ssl.create_default_context()
