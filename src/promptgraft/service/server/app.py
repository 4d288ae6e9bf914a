"""The server: one ASGI application with API, dashboard and metrics, and uvicorn to run it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs
import uvicorn
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp

from promptgraft.errors import ConfigError, PromptgraftError
from promptgraft.service.jobs import JobManager
from promptgraft.service.jobs.preparing import job_json
from promptgraft.service.server import pages
from promptgraft.service.server.access import COOKIE, LOCAL, Access, Caller, Scope
from promptgraft.service.server.api import ROUTES
from promptgraft.service.server.calls import (
    MOST_BODY_BYTES,
    PREFIX,
    Call,
    Reply,
    Route,
    natural,
    openapi,
    reply,
)
from promptgraft.service.server.problems import TITLES, Problem, problem_of
from promptgraft.service.server.streams import (
    SECONDS_BETWEEN_LOOKS,
    SECONDS_TO_READ,
    EventStream,
    Feed,
)
from promptgraft.service.server.views import JobViews

Endpoint = Callable[[Request], Awaitable[ASGIApp]]

_logger = logging.getLogger("promptgraft.service.server")
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def make_app(
    manager: JobManager, *, access: Access, mirrors: Path, patience: float = SECONDS_TO_READ
) -> Starlette:
    """Return the application.

    Args:
        manager: the jobs and the projects.
        access: decides which requests are allowed.
        mirrors: a folder in which jobs are mirrored for reports and archives.
        patience: seconds after which the stream of a client that does not read is closed.
    """
    server = _Server(manager, access, mirrors, patience)
    document = json.dumps(openapi(ROUTES)).encode()
    routes: list[BaseRoute] = [
        StarletteRoute("/healthz", server.open(lambda _: reply({"status": "ok"}))),
        StarletteRoute("/readyz", server.open(_ready)),
        StarletteRoute("/login", server.login),
        StarletteRoute("/assets/{name}", server.open(pages.asset)),
        StarletteRoute("/api/openapi.json", server.open(lambda _: Reply(content=document))),
        StarletteRoute("/metrics", server.endpoint(Route("GET /metrics", Scope.ADMIN, _metrics))),
    ]
    for prefix, table in ((PREFIX, ROUTES), ("", pages.ROUTES)):
        routes += [
            StarletteRoute(f"{prefix}{route.path}", server.endpoint(route), methods=[route.method])
            for route in table
        ]
    errors = (HTTPException, PromptgraftError, Problem, Exception)
    return Starlette(routes=routes, exception_handlers=dict.fromkeys(errors, server.refuse))


@contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """Give a listening socket.

    Raises:
        ConfigError: the address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound_socket:
        # A restarted server would otherwise wait for connections in TIME_WAIT, for a minute.
        bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound_socket.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"--host {host} --port {port}: cannot listen there: {error.strerror}; use another "
                "port, or 0 for a free one"
            ) from None
        bound_socket.listen(128)
        yield bound_socket


def serve(
    app: ASGIApp, listening: socket.socket, *, certificate: str | None, key: str | None
) -> None:
    """Serve requests until SIGTERM or Ctrl+C."""
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
        # Nothing depends on a client's address, so forwarded ones need not be trusted.
        proxy_headers=False,
    )
    uvicorn.Server(config).run(sockets=[listening])


async def _waited(found: Reply, call: Call) -> Reply:
    """Return a reply once its job is at rest, or its time is over."""
    until = time.monotonic() + found.seconds
    while True:
        # Threads are few: one is used for each look, and none while waiting.
        job = await run_in_threadpool(call.manager.get, found.job)
        if job.is_at_rest or time.monotonic() >= until:
            return attrs.evolve(found, content=reply(job_json(job)).content)
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)


def _ready(call: Call) -> Reply:
    try:
        call.manager.list(limit=1)
    except PromptgraftError as error:
        # The reason names the database, and anybody may ask here.
        _logger.warning("not ready: %s", error)
        return reply({"status": "unavailable"}, 503, Retry_After="5")
    return reply({"status": "ok"})


def _metrics(call: Call) -> Reply:
    """Return the number of jobs in each state, and of streams, for Prometheus."""
    # A registry of its own, because the default one also has figures of the process.
    registry = CollectorRegistry()
    jobs = Gauge("promptgraft_jobs", "Jobs by state.", ["state"], registry=registry)
    for state, count in call.manager.counts(projects=call.caller.projects).items():
        jobs.labels(state).set(count)
    streams = Gauge("promptgraft_streams", "Streams of events that are read.", registry=registry)
    streams.set(call.streams)
    return Reply(
        content=generate_latest(registry), media="text/plain; version=0.0.4; charset=utf-8"
    )


class _Server:
    """Turns handlers into endpoints, and errors into problem documents."""

    def __init__(self, manager: JobManager, access: Access, mirrors: Path, patience: float) -> None:
        self._patience, self._feed = patience, Feed(manager)
        self._manager, self._access, self._mirrors = manager, access, mirrors
        self._views, self._mirroring = JobViews(), threading.Lock()

    def open(self, handler: Callable[[Call], Reply]) -> Endpoint:
        """Return an endpoint that needs no token."""

        async def answer(request: Request) -> Response:
            self._access.check_origin(request.method, request.headers)
            return _response(await run_in_threadpool(handler, self._call(request, LOCAL)))

        return answer

    def _call(self, request: Request, caller: Caller, body: bytes = b"") -> Call:
        return Call(
            manager=self._manager.acting_for(caller.name),
            mirrors=self._mirrors,
            mirroring=self._mirroring,
            views=self._views,
            streams=self._access.streams,
            caller=caller,
            path=request.path_params,
            query=dict(request.query_params),
            headers=dict(request.headers),
            body=body,
        )

    def endpoint(self, route: Route) -> Endpoint:
        """Return an endpoint that needs the scope of a route."""

        async def answer(request: Request) -> ASGIApp:
            self._access.check_origin(request.method, request.headers)
            address = request.client.host if request.client else ""
            caller = await run_in_threadpool(
                self._access.caller, request.headers, request.cookies, address
            )
            caller.check(route.scope)
            _check_text((*request.path_params.values(), *request.query_params.values()))
            call = self._call(request, caller, await _body(request))
            if route.path.endswith("/events") and _wants_stream(request):
                job = await run_in_threadpool(lambda: call.job)
                last = request.headers.get("last-event-id") or call.query.get("after") or "0"
                # Not a reply of a handler, which would hold a thread while the stream is open.
                return EventStream(
                    feed=self._feed,
                    job=job,
                    after=natural(last) or 0,
                    access=self._access,
                    caller=caller,
                    patience=self._patience,
                )
            response = await run_in_threadpool(route.handler, call)
            return _response(await _waited(response, call) if response.seconds else response)

        return answer

    async def login(self, request: Request) -> Response:
        """Give a browser that has the link a session."""
        self._access.check_origin(request.method, request.headers)
        session = self._access.redeem(request.query_params.get("code", ""))
        # The redirect keeps the code out of the browser's history.
        response = RedirectResponse("/", status_code=303, headers=_SAFE)
        # Without a certificate, a browser on this machine comes over plain HTTP.
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, session, secure=secure, httponly=True, samesite="strict")
        return response

    async def refuse(self, request: Request, error: Exception) -> Response:
        """Answer with a problem document, or with a page for a browser."""
        problem = _problem(error)
        if problem.status == 405:
            problem.headers["Allow"] = ", ".join(_allowed(request))
        # Faults of clients are not logged: anybody could fill the disk with them.
        if problem.status >= 500:
            _logger.error("%s %s: %s", request.method, request.url.path, problem.detail)
        headers = {**_SAFE, **problem.headers}
        if "text/html" in request.headers.get("accept", ""):
            page = pages.problem_page(problem)
            return Response(
                page,
                status_code=problem.status,
                media_type="text/html",
                headers={**headers, "Content-Security-Policy": pages.POLICY},
            )
        return Response(
            json.dumps(problem.to_json()),
            status_code=problem.status,
            media_type="application/problem+json",
            headers=headers,
        )


def _problem(error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case PromptgraftError():
            return problem_of(error)
        case HTTPException():
            status = error.status_code if error.status_code in TITLES else 400
            allowed = dict(error.headers or {})
            detail = "nothing found at this path" if status == 404 else error.detail
            return Problem(status, detail, headers=allowed)
    _logger.error("a fault in promptgraft", exc_info=error)
    return Problem(
        500, "a fault in promptgraft; please report it with the lines in the log of the server"
    )


def _allowed(request: Request) -> list[str]:
    """Return the methods of all routes of a path; Starlette names those of the first only."""
    routes: list[BaseRoute] = request.app.routes
    methods = {
        method
        for route in routes
        if isinstance(route, StarletteRoute) and route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }
    return sorted(methods)


def _check_text(values: Iterable[str]) -> None:
    # PostgreSQL cannot store it.
    if any("\0" in value for value in values):
        raise Problem(400, "a name or a parameter contains the character NUL; remove it")


async def _body(request: Request) -> bytes:
    # The header allows an early refusal, but may be missing or wrong: what arrives is counted too.
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > MOST_BODY_BYTES:
        raise Problem(
            413, f"body: expected at most {MOST_BODY_BYTES:,} bytes, found {int(length):,}"
        )
    chunks = bytearray()
    async for chunk in request.stream():
        chunks += chunk
        if len(chunks) > MOST_BODY_BYTES:
            raise Problem(413, f"body: expected at most {MOST_BODY_BYTES:,} bytes, found more")
    return bytes(chunks)


def _wants_stream(request: Request) -> bool:
    return "text/event-stream" in request.headers.get("accept", "")


def _response(found: Reply) -> Response:
    headers: Mapping[str, str] = {**_SAFE, **found.headers}
    media = found.media if found.content else None
    return Response(found.content, status_code=found.status, media_type=media, headers=headers)
