"""The server: one ASGI application with API, dashboard and metrics, and uvicorn to run it.

Its threads and connections are bounded: a client that is slow, or asks for much, delays no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, TypeVar

import attrs
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as ASGIScope
from uvicorn.protocols.http.h11_impl import H11Protocol

from promptgraft.errors import ConfigError, PromptgraftError
from promptgraft.service.database import Database
from promptgraft.service.jobs import JobManager
from promptgraft.service.jobs.preparing import job_json
from promptgraft.service.server import approvals, datasets, pages, signing_in, streams, tags
from promptgraft.service.server.access import Access, Proxy, Visit
from promptgraft.service.server.api import ROUTES
from promptgraft.service.server.calls import (
    MOST_BODY_BYTES,
    PREFIX,
    ApiCall,
    ApiReply,
    Route,
    natural,
    openapi,
    reply,
)
from promptgraft.service.server.forms import parsed_form
from promptgraft.service.server.limits import Limits
from promptgraft.service.server.metrics import RequestMetrics, show_metrics
from promptgraft.service.server.mirrors import Mirrors
from promptgraft.service.server.oidc import OidcProvider
from promptgraft.service.server.oidc_settings import read_oidc
from promptgraft.service.server.problems import TITLES, ApiProblem, problem_of
from promptgraft.service.server.tokens import LOCAL, ApiCaller, Scope, TokenStore, scopes_of
from promptgraft.service.server.views import JobViews

T = TypeVar("T")


class ReportPool:
    """Makes reports a few at a time, so that other requests find threads.

    Args:
        threads: how many are made at a time.
        waiting: how many more may wait; further ones are refused.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="reports")
        self._most, self._count = threads + waiting, 0

    async def run(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns, in a thread of the pool.

        Raises:
            ApiProblem: 429: too many wait.
        """
        # Only the event loop counts, so that no lock is needed.
        if self._count >= self._most:
            raise ApiProblem(
                429,
                f"{self._count} reports are being made or wait for that; ask again in a moment",
                headers={"Retry-After": "5"},
            )
        self._count += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, make)
        finally:
            self._count -= 1


class CheckThread:
    """Runs a check in a thread of its own; whoever asks meanwhile gets the same answer.

    Args:
        check: returns whether all is well.
        seconds: after which the answer is no.
    """

    def __init__(self, check: Callable[[], bool], *, seconds: float) -> None:
        self._check, self._seconds = check, seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="check")
        self._running: asyncio.Future[bool] | None = None

    async def is_well(self) -> bool:
        """Return the result of a check that has begun now or shortly before."""
        if self._running is None or self._running.done():
            loop = asyncio.get_running_loop()
            self._running = loop.run_in_executor(self._thread, self._check)
        try:
            # Shielded: the next one who asks waits for the same check.
            return await asyncio.wait_for(asyncio.shield(self._running), self._seconds)
        except TimeoutError:
            return False


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


_PAGES = (pages.ROUTES, tags.ROUTES, approvals.ROUTES, datasets.ROUTES, signing_in.ROUTES)
_SECONDS_TO_BE_READY = 5.0
_SHORT_WAIT = 60.0
"""Seconds above which who waits for a job counts as an open stream."""

Endpoint = Callable[[Request], Awaitable[ASGIApp]]

_logger = logging.getLogger("promptgraft.service.server")
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def make_app(
    manager: JobManager,
    *,
    access: Access,
    mirrors: Path,
    base_path: str = "",
    patience: float = streams.SECONDS_TO_READ,
    ending: threading.Event | None = None,
) -> ASGIApp:
    """Return the application.

    It may be mounted in another one: its links begin with the ``root_path`` of a request.

    Args:
        manager: the jobs and the projects.
        access: decides which requests are allowed.
        mirrors: a folder in which jobs are mirrored for reports and archives.
        base_path: the path below which browsers see it, such as ``/pg``. Requests may come with
            it, or without it from a proxy that removes it.
        patience: seconds after which the stream of a client that does not read is closed.
        ending: set when the server stops, so that open streams end and waiting replies are sent.
    """
    ending = ending or threading.Event()
    server = _Server(manager, access, mirrors, patience=patience, ending=ending)
    routes: list[BaseRoute] = [
        StarletteRoute("/healthz", _alive),
        StarletteRoute("/readyz", server.ready),
        StarletteRoute("/assets/{name}", server.open(pages.asset)),
        StarletteRoute("/api/openapi.json", server.open(_document)),
        StarletteRoute(
            "/metrics", server.endpoint(Route("GET /metrics", Scope.ADMIN, server.show_metrics))
        ),
    ]
    routes += [
        StarletteRoute(
            route.path, server.open(route.handler, route.most_bytes), methods=[route.method]
        )
        for route in signing_in.OPEN_ROUTES
    ]
    for prefix, table in ((PREFIX, ROUTES), *(("", table) for table in _PAGES)):
        routes += [
            StarletteRoute(
                f"{prefix}{route.path}", server.endpoint(route, prefix), methods=[route.method]
            )
            for route in table
        ]
    pages.prepare()
    errors = (HTTPException, PromptgraftError, ApiProblem, Exception)
    inner = Starlette(routes=routes, exception_handlers=dict.fromkeys(errors, server.refuse))
    app = server.requests.measured(inner)
    return _below(app, base_path) if base_path else app


def make_access(
    database: Database,
    *,
    hosts: Iterable[str],
    limits: Sequence[str],
    proxy_from: Sequence[str],
    user_header: str,
    user_scopes: Sequence[str],
    oidc: str | None,
    is_secure: bool,
) -> Access:
    """Return the access control that the options of ``promptgraft serve`` ask for.

    Raises:
        ConfigError, DataFormatError: an option, or a file that it names, is invalid.
    """
    scopes = scopes_of(user_scopes)
    return Access(
        TokenStore(database),
        hosts=hosts,
        limits=Limits.of(limits),
        proxy=Proxy(addresses=proxy_from, user_header=user_header, scopes=scopes),
        provider=OidcProvider(read_oidc(oidc)) if oidc else None,
        is_secure=is_secure,
    )


def _below(app: ASGIApp, base: str) -> ASGIApp:
    """Return an application for requests below a path, or from a proxy that removes the path."""

    async def below(scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = str(scope["path"])
            is_whole = path == base or path.startswith(f"{base}/")
            path = path if is_whole else f"{base}{path}"
            scope = {**scope, "path": f"{base}/" if path == base else path, "root_path": base}
        await app(scope, receive, send)

    return below


@contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """Give a listening socket.

    Raises:
        ConfigError: the address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY; a reply would else wait 40 ms for its body.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound_socket:
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


def server_settings(
    app: ASGIApp, limits: Limits, *, certificate: str | None = None, key: str | None = None
) -> uvicorn.Config:
    """Return the settings of a server of an application."""
    return uvicorn.Config(
        app,
        http=connection_class(limits),
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="off",
        ssl_certfile=certificate,
        ssl_keyfile=key,
        timeout_graceful_shutdown=5,
        # Forwarded addresses are believed of named proxies only, by `Access`.
        proxy_headers=False,
    )


def serve(config: uvicorn.Config, listening: socket.socket, ending: threading.Event) -> None:
    """Serve requests until SIGTERM or Ctrl+C; then set ``ending``."""
    # Modules and templates are never freed: looking through them would hold up a request.
    gc.freeze()
    _EndingServer(config, ending).run(sockets=[listening])


class _EndingServer(uvicorn.Server):
    """Tells the application that it stops: uvicorn itself would wait for open streams in vain."""

    def __init__(self, config: uvicorn.Config, ending: threading.Event) -> None:
        super().__init__(config)
        self._ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending.set()
        await super().shutdown(sockets)


async def _alive(_: Request) -> Response:
    # In the event loop: it must answer while all threads are busy. To any host name: probes come
    # by address, and it tells nothing.
    return _response(reply({"status": "ok"}))


def _document(call: ApiCall) -> ApiReply:
    return ApiReply(content=json.dumps(openapi(ROUTES, call.visit.base)).encode())


class _Server:
    """Turns handlers into endpoints, and errors into problem documents."""

    def __init__(
        self,
        manager: JobManager,
        access: Access,
        mirrors: Path,
        *,
        patience: float,
        ending: threading.Event,
    ) -> None:
        self._patience, self._feed = patience, streams.Feed(manager, ending)
        self._manager, self._access, self._mirrors = manager, access, Mirrors(mirrors)
        self._views, self.requests = JobViews(), RequestMetrics()
        limits = access.limits
        self._reports = ReportPool(int(limits.reports), int(limits.waiting_reports))
        self._database = CheckThread(self._is_ready, seconds=_SECONDS_TO_BE_READY)

    def _is_ready(self) -> bool:
        try:
            self._manager.database.check()
        except PromptgraftError as error:
            # The reason names the database, and anybody may ask.
            _logger.warning("not ready: %s", error)
            return False
        return True

    async def ready(self, _: Request) -> Response:
        """Answer whether the database does, in a thread and on a connection of its own."""
        if await self._database.is_well():
            return _response(reply({"status": "ok"}))
        return _response(reply({"status": "unavailable"}, 503, Retry_After="5"))

    def open(
        self, handler: Callable[[ApiCall], ApiReply], most_bytes: int = MOST_BODY_BYTES
    ) -> Endpoint:
        """Return an endpoint that needs no token."""

        async def answer(request: Request) -> Response:
            self._access.check_origin(request.method, request.headers)
            visit = self._visit(request)
            body = await self._body(request, most_bytes)
            return _response(
                await run_in_threadpool(handler, self._call(request, LOCAL, visit, body))
            )

        return answer

    async def _enter(self, request: Request) -> tuple[Visit, ApiCaller]:
        """Return where a request comes from, and who asks; raises as `Access.caller`."""
        self._access.check_origin(request.method, request.headers)
        visit = self._visit(request)
        caller = await run_in_threadpool(
            self._access.caller, request.headers, request.cookies, visit, peer=_peer(request)
        )
        request.state.caller = caller
        return visit, caller

    def _visit(self, request: Request) -> Visit:
        return self._access.visit(
            request.headers, peer=_peer(request), base=_base(request), scheme=request.url.scheme
        )

    def _call(self, request: Request, caller: ApiCaller, visit: Visit, body: bytes) -> ApiCall:
        return ApiCall(
            manager=self._manager.acting_for(
                caller.name,
                most_queued=int(self._access.limits.queued_jobs),
                projects=caller.projects,
            ),
            mirrors=self._mirrors,
            views=self._views,
            access=self._access,
            caller=caller,
            visit=visit,
            path=request.path_params,
            # Of a name that is repeated, every value counts.
            query={
                name: ",".join(request.query_params.getlist(name)) for name in request.query_params
            },
            headers=dict(request.headers),
            body=body,
        )

    async def _body(self, request: Request, most: int = MOST_BODY_BYTES) -> bytes:
        try:
            async with asyncio.timeout(self._access.limits.body_seconds):
                return await _body(request, most)
        except TimeoutError:
            seconds = self._access.limits.body_seconds
            raise ApiProblem(408, f"body: did not arrive within {seconds:.0f} seconds") from None
        except ClientDisconnect:  # nobody reads the reply, but it is no fault of the server
            raise ApiProblem(408, "body: the client left before it had arrived") from None

    def show_metrics(self, call: ApiCall) -> ApiReply:
        """Return metrics for Prometheus."""
        return show_metrics(call, self.requests)

    def endpoint(self, route: Route, prefix: str = "") -> Endpoint:
        """Return an endpoint that needs the scope of a route."""

        async def answer(request: Request) -> ASGIApp:
            visit, caller = await self._enter(request)
            if route.scope is not None:
                caller.check(route.scope)
            _check_text((*request.path_params.values(), *request.query_params.values()))
            body = await self._body(request, route.most_bytes)
            call = self._call(request, caller, visit, body)
            if route.path.endswith("/events") and _wants_stream(request):
                job = await run_in_threadpool(lambda: call.job)
                last = request.headers.get("last-event-id") or call.query.get("after") or "0"
                # Not a reply of a handler, which would hold a thread while the stream is open.
                return streams.ServerStream(
                    feed=self._feed,
                    job=job,
                    after=natural(last) or 0,
                    access=self._access,
                    caller=caller,
                    patience=self._patience,
                )
            if route.is_heavy:
                return _response(await self._reports.run(lambda: route.handler(call)))
            response = await run_in_threadpool(route.handler, call)
            return _response(
                await self._waited(response, call, request) if response.seconds else response
            )

        self.requests.name(answer, f"{prefix}{route.path}")
        return answer

    async def _waited(self, answer: ApiReply, call: ApiCall, request: Request) -> ApiReply:
        """Return a reply once its job is at rest, its time is over, or its client has left."""
        job = await run_in_threadpool(call.manager.get, answer.job)
        seconds, last = answer.seconds, -1
        with contextlib.ExitStack() as stack:
            if seconds > _SHORT_WAIT:
                try:
                    stack.enter_context(self._access.streaming(call.caller, job.project))
                except ApiProblem:
                    # The job is there: a preference is no reason to refuse it.
                    seconds = _SHORT_WAIT
            until = time.monotonic() + seconds
            while time.monotonic() < until and not await request.is_disconnected():
                # Threads are few: one is used for each look, and none while waiting.
                latest = await run_in_threadpool(self._feed.latest, job)
                if latest != last:
                    last, job = latest, await run_in_threadpool(call.manager.get, answer.job)
                if job.is_at_rest or self._feed.ending.is_set():
                    break
                await asyncio.sleep(streams.SECONDS_BETWEEN_LOOKS)
        return attrs.evolve(answer, content=reply(job_json(job)).content)

    async def refuse(self, request: Request, error: Exception) -> Response:
        """Answer with a problem document, or with a page for a browser."""
        problem = self._problem(error)
        if problem.status == 405:
            problem.headers["Allow"] = ", ".join(_allowed(request))
        # Faults of clients are not logged: anybody could fill the disk with them.
        if problem.status >= 500:
            _logger.error("%s %s: %s", request.method, request.url.path, problem.detail)
        headers = {**_SAFE, **problem.headers}
        if "text/html" in request.headers.get("accept", ""):
            if problem.status in (404, 405) and not hasattr(request.state, "caller"):
                # A path that no endpoint has is refused before anybody has looked who asks.
                with contextlib.suppress(PromptgraftError, ApiProblem):
                    await self._enter(request)
            form = await self._lost_form(request) if problem.status == 401 else {}
            page = pages.problem_page(
                problem,
                _base(request),
                _wanted(request),
                is_lost=request.method == "POST",
                who=getattr(request.state, "caller", None),
                provider=self._access.provider_name,
                form=form,
            )
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

    def _problem(self, error: Exception) -> ApiProblem:
        match error:
            case ApiProblem():
                return error
            case PromptgraftError():
                return problem_of(error, self._manager.projects)
            case HTTPException():
                status = error.status_code if error.status_code in TITLES else 400
                allowed = dict(error.headers or {})
                detail = "nothing found at this path" if status == 404 else error.detail
                return ApiProblem(status, detail, headers=allowed)
        _logger.error("a fault in promptgraft", exc_info=error)
        return ApiProblem(
            500, "a fault in promptgraft; please report it with the lines in the log of the server"
        )

    async def _lost_form(self, request: Request) -> Mapping[str, str]:
        """Return the fields of a form whose sender is signed out; none if it is no form."""
        if request.method != "POST":
            return {}
        with contextlib.suppress(ApiProblem):
            # Not the longest of data sets: anybody may send this, and the page has all of it.
            body = await self._body(request, MOST_BODY_BYTES)
            form = parsed_form(request.headers.get("content-type", ""), body)
            return {name: values[-1] for name, values in form.items()}
        return {}


def _peer(request: Request) -> str:
    return request.client.host if request.client else ""


def _base(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def _wanted(request: Request) -> str:
    """Return path and query of a page below the application; empty for other requests."""
    if "GET" not in _allowed(request):
        return ""
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{request.url.path.removeprefix(_base(request))}{query}"


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
        raise ApiProblem(400, "a name or a parameter contains the character NUL; remove it")


async def _body(request: Request, most: int) -> bytes:
    # The header allows an early refusal, but may be missing or wrong: what arrives is counted too.
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > most:
        raise ApiProblem(413, f"body: expected at most {most:,} bytes, found {int(length):,}")
    chunks = bytearray()
    async for chunk in request.stream():
        chunks += chunk
        if len(chunks) > most:
            raise ApiProblem(413, f"body: expected at most {most:,} bytes, found more")
    return bytes(chunks)


def _wants_stream(request: Request) -> bool:
    return "text/event-stream" in request.headers.get("accept", "")


def _response(reply: ApiReply) -> Response:
    headers: Mapping[str, str] = {**_SAFE, **reply.headers}
    media = reply.media if reply.content else None
    return Response(reply.content, status_code=reply.status, media_type=media, headers=headers)
