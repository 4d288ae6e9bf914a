"""A service on loopback that stands for an agent of the user's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs

Reply = tuple[int, bytes, dict[str, str]]


def said(value: object, status: int = 200, **headers: str) -> Reply:
    """Return a reply with JSON."""
    return status, json.dumps(value).encode(), headers


@attrs.define
class Service:
    """What was asked, and how it is answered: ``brain(body, headers)``."""

    brain: Callable[[Any, dict[str, str]], Reply]
    url: str = ""
    asked: list[tuple[Any, dict[str, str]]] = attrs.field(factory=list)


@contextmanager
def serving(brain: Callable[[Any, dict[str, str]], Reply]) -> Iterator[Service]:
    """Serve on loopback while the context is entered."""
    service = Service(brain)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen = json.loads(body), dict(self.headers)
            service.asked.append(seen)
            status, reply, headers = service.brain(*seen)
            self.send_response(status)
            for name, value in {"Content_Length": str(len(reply)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, *_: object) -> None:
            """Say nothing: those who ask may go away."""

    server = Server(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_address[1]}/ask"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
