"""Connections of clients: how long they may take, and how many may wait."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from promptgraft.service.server.limits import Limits


class _Waiting:
    """Connections that have not brought the headers of a request, the oldest first."""

    def __init__(self, limits: Limits) -> None:
        self.seconds = limits.header_seconds
        self._most = limits.waiting_connections
        self._connections: dict[_TimedConnection, None] = {}

    def add(self, connection: _TimedConnection) -> None:
        self._connections[connection] = None
        if len(self._connections) > self._most:
            # The oldest has had the most time: clients that send a request are past this by then.
            next(iter(self._connections)).transport.abort()

    def discard(self, connection: _TimedConnection) -> None:
        self._connections.pop(connection, None)


class _TimedConnection(H11Protocol):
    """A connection that is closed if the headers of a request do not arrive in time."""

    waiting: ClassVar[_Waiting]
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # The cycle of request and response; None before the first.
        if getattr(self.cycle, "response_complete", True):
            self._begin()
        else:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def _begin(self) -> None:
        # Not anew with each byte, or a client could take for ever.
        if self._timer is None:
            self._timer = self.loop.call_later(self.waiting.seconds, self.transport.abort)
            self.waiting.add(self)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.waiting.discard(self)


def connection_class(limits: Limits) -> type[asyncio.Protocol]:
    """Return the class of connections that keep to limits, for the setting ``http`` of uvicorn."""

    class Connection(_TimedConnection):
        waiting = _Waiting(limits)

    return Connection
