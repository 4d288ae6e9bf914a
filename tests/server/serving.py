"""A real server on loopback, in a thread, and a client that says what it got."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import attrs
import httpx
import uvicorn
from starlette.types import ASGIApp

from promptgraft.ground.serde import Json
from promptgraft.service.jobs import JobManager
from promptgraft.service.server import Access, Limits, Proxy, Scope, TokenStore, make_app
from promptgraft.service.server.access import NO_PROXY
from promptgraft.service.server.app import bound, server_settings
from promptgraft.service.server.oidc import OidcProvider
from promptgraft.service.server.oidc_settings import OidcSettings
from server.documented import check_documented


@attrs.frozen
class Answer:
    status: int
    document: dict[str, Json]
    headers: httpx.Headers
    text: str

    @property
    def detail(self) -> str:
        return str(self.document.get("detail", ""))

    def at(self, *names: str) -> Json:
        """Return what the document has at a path of names."""
        found: Json = self.document
        for name in names:
            assert isinstance(found, dict)
            found = found[name]
        return found

    def rows(self, name: str) -> list[dict[str, Json]]:
        """Return a list of objects that the document has."""
        found = self.document[name]
        assert isinstance(found, list)
        return [row for row in found if isinstance(row, dict)]


def asking(url: str = "") -> httpx.Client:
    """Return what asks; certificates, whose reading takes long, are of no use on loopback."""
    return httpx.Client(base_url=url, timeout=60, verify=False)


@attrs.define
class Client:
    """Asks a server with a token."""

    url: str
    token: str
    access: Access
    manager: JobManager
    http: httpx.Client

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        **headers: str,
    ) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        bearer = self.token if token is None else token
        if bearer:
            named.setdefault("Authorization", f"Bearer {bearer}")
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        if body is not None:
            named.setdefault("Content-Type", "application/json")
        found = self.http.request(
            method,
            f"{self.url}{path}",
            content=None if body is None else content,
            headers=named,
        )
        is_json = "json" in found.headers.get("content-type", "")
        document = found.json() if is_json else {}
        if is_json and found.is_success:
            check_documented(method, path, found.status_code, document)
        return Answer(found.status_code, document, found.headers, found.text)

    def get(self, path: str, **query: object) -> Answer:
        return self.ask("GET", f"/api/v1{path}{'?' + urlencode(query) if query else ''}")

    def post(self, path: str, body: object = None, **headers: str) -> Answer:
        return self.ask("POST", f"/api/v1{path}", body, **headers)

    def browser(self) -> httpx.Client:
        """Return a browser that the link of the server has let in."""
        client = asking(self.url)
        entered = client.get("/login", params={"code": self.access.new_code()})
        assert entered.status_code == 303
        return client


class _Server(uvicorn.Server):
    """Ends as soon as it is asked to: uvicorn itself waits twice for a tenth of a second."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            await asyncio.sleep(0.005)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        while self.server_state.connections or self.server_state.tasks:
            await asyncio.sleep(0.005)


@contextmanager
def served(
    manager: JobManager,
    mirrors: Path,
    *,
    now: Callable[[], float] = time.monotonic,
    patience: float = 30.0,
    limits: Limits | None = None,
    proxy: Proxy = NO_PROXY,
    oidc: OidcSettings | None = None,
    is_secure: bool = False,
    mounted: Callable[[ASGIApp], ASGIApp] = lambda app: app,
) -> Iterator[Client]:
    """Serve jobs on a free port; ``mounted`` may put the application into another one."""
    limits = limits or Limits()
    tokens = TokenStore(manager.database)
    with bound("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        settings: dict[str, Any] = {"limits": limits, "proxy": proxy, "is_secure": is_secure}
        if oidc is not None:
            settings["provider"] = OidcProvider(oidc)
        access = Access(tokens, hosts=[f"127.0.0.1:{port}"], now=now, **settings)
        app = make_app(manager, access=access, mirrors=mirrors, patience=patience)
        server = _Server(server_settings(mounted(app), limits))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            every = [Scope.READ, Scope.SUBMIT, Scope.APPROVE, Scope.ADMIN]
            # Several servers of one database have one token each.
            token = tokens.create(f"tests-{port}" if tokens.named("tests") else "tests", every)
            with asking() as http:
                yield Client(f"http://127.0.0.1:{port}", token, access, manager, http)
        finally:
            server.should_exit = True
            thread.join(30)
