"""The server as a process: its socket, and uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from promptgraft.errors import ConfigError


@contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """Give a socket that listens.

    Raises:
        ConfigError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"--host {host} --port {port}: cannot listen there: {error.strerror}; take another "
                "port, or 0 for a free one"
            ) from None
        found.listen(128)
        yield found


def serve(
    app: ASGIApp, listening: socket.socket, *, certificate: str | None, key: str | None
) -> None:
    """Answer requests until SIGTERM or Ctrl+C."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="off",
        ssl_certfile=certificate,
        ssl_keyfile=key,
        timeout_graceful_shutdown=5,
        proxy_headers=False,
    )
    uvicorn.Server(config).run(sockets=[listening])
