"""The server as one ASGI application: the API, the dashboard, and what operators look at."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

import attrs
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp

from promptgraft.errors import PromptgraftError
from promptgraft.jobs import JobManager
from promptgraft.jobs.preparing import job_json
from promptgraft.server import pages
from promptgraft.server.access import COOKIE, LOCAL, Access, Caller
from promptgraft.server.api import ROUTES
from promptgraft.server.calls import MOST_BODY_BYTES, Call, Reply, Route, natural, reply
from promptgraft.server.figures import figures
from promptgraft.server.openapi import PREFIX, openapi
from promptgraft.server.problems import TITLES, Problem, problem_of
from promptgraft.server.streams import SECONDS_BETWEEN_LOOKS, SECONDS_TO_READ, EventStream, Feed
from promptgraft.server.views import JobViews

Endpoint = Callable[[Request], Awaitable[ASGIApp]]

_logger = logging.getLogger("promptgraft.server")
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
        access: who may ask.
        mirrors: a folder in which jobs are mirrored for reports and archives.
        patience: seconds that a client may leave events unread; then its stream is closed.
    """
    server = _Server(manager, access, mirrors, patience)
    document = json.dumps(openapi(ROUTES)).encode()

    def describe(_: Call) -> Reply:
        return Reply(content=document)

    routes: list[BaseRoute] = [
        StarletteRoute("/healthz", server.open(lambda _: reply({"status": "ok"}))),
        StarletteRoute("/readyz", server.open(_ready)),
        StarletteRoute("/login", server.login),
        StarletteRoute("/assets/{name}", server.open(pages.asset)),
        StarletteRoute("/api/openapi.json", server.open(describe)),
        StarletteRoute("/metrics", server.endpoint(figures)),
    ]
    for prefix, table in ((PREFIX, ROUTES), ("", pages.ROUTES)):
        routes += [
            StarletteRoute(f"{prefix}{one.path}", server.endpoint(one), methods=[one.method])
            for one in table
        ]
    return Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: server.refuse,
            PromptgraftError: server.refuse,
            Problem: server.refuse,
            Exception: server.refuse,
        },
    )


async def _waited(found: Reply, call: Call) -> Reply:
    """Return the job that an answer waits for; no thread, of which there are few, waits."""
    until = time.monotonic() + found.seconds
    while True:
        job = await run_in_threadpool(call.manager.get, found.job)
        if job.is_at_rest or time.monotonic() >= until:
            return attrs.evolve(found, content=reply(job_json(job)).content)
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)


def _ready(call: Call) -> Reply:
    call.manager.list(limit=1)
    return reply({"status": "ok"})


class _Server:
    """Makes endpoints of handlers."""

    def __init__(self, manager: JobManager, access: Access, mirrors: Path, patience: float) -> None:
        self._patience, self._feed = patience, Feed(manager)
        self._manager, self._access, self._mirrors = manager, access, mirrors
        self._views, self._mirroring = JobViews(), threading.Lock()

    def open(self, handler: Callable[[Call], Reply]) -> Endpoint:
        """Return an endpoint that everybody may ask."""

        async def ask(request: Request) -> Response:
            self._access.check_origin(request.method, request.headers)
            return _response(await run_in_threadpool(handler, self._call(request, LOCAL)))

        return ask

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

        async def ask(request: Request) -> ASGIApp:
            self._access.check_origin(request.method, request.headers)
            caller = await run_in_threadpool(self._access.caller, request.headers, request.cookies)
            caller.check(route.scope)
            _check_text((*request.path_params.values(), *request.query_params.values()))
            call = self._call(request, caller, await _body(request))
            if route.path.endswith("/events") and _wants_stream(request):
                job = await run_in_threadpool(lambda: call.job)
                last = request.headers.get("last-event-id") or call.query.get("after") or "0"
                return EventStream(
                    self._feed,
                    job,
                    after=natural(last) or 0,
                    access=self._access,
                    caller=caller,
                    patience=self._patience,
                )
            found = await run_in_threadpool(route.handler, call)
            return _response(await _waited(found, call) if found.seconds else found)

        return ask

    async def login(self, request: Request) -> Response:
        """Let a browser in that has the link, and hide the code from its history."""
        self._access.check_origin(request.method, request.headers)
        session = self._access.redeem(request.query_params.get("code", ""))
        response = RedirectResponse("/", status_code=303, headers=_SAFE)
        response.set_cookie(COOKIE, session, httponly=True, samesite="strict", path="/")
        return response

    async def refuse(self, request: Request, error: Exception) -> Response:
        """Answer with a problem document, or with a page for browsers."""
        problem = _problem(error)
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
            said = "there is nothing at this path" if status == 404 else error.detail
            return Problem(status, said, headers=allowed)
    _logger.error("a fault in promptgraft", exc_info=error)
    return Problem(500, "a fault in promptgraft; the log of the server has the lines to report")


def _check_text(values: Iterable[str]) -> None:
    # Databases keep no text with it.
    if any("\0" in one for one in values):
        raise Problem(400, "a name or a parameter has the character NUL; leave it out")


async def _body(request: Request) -> bytes:
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > MOST_BODY_BYTES:
        raise Problem(
            413, f"body: expected at most {MOST_BODY_BYTES:,} bytes, found {int(length):,}"
        )
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > MOST_BODY_BYTES:
            raise Problem(413, f"body: expected at most {MOST_BODY_BYTES:,} bytes, found more")
    return bytes(found)


def _wants_stream(request: Request) -> bool:
    return "text/event-stream" in request.headers.get("accept", "")


def _response(found: Reply) -> Response:
    headers: Mapping[str, str] = {**_SAFE, **found.headers}
    media = found.media if found.content else None
    return Response(found.content, status_code=found.status, media_type=media, headers=headers)
