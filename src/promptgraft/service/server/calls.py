"""Requests and replies of handlers, routes, and the OpenAPI document of a table of routes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import attrs

from promptgraft import __version__
from promptgraft.errors import ConfigError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import Json, is_deeper, parse_json, shown
from promptgraft.ground.strict.checks import Kind
from promptgraft.ground.strict.nodes import Source
from promptgraft.service.jobs import Job, JobManager
from promptgraft.service.server.access import Access, Visit
from promptgraft.service.server.mirrors import Mirrors
from promptgraft.service.server.problems import TITLES, ApiProblem
from promptgraft.service.server.replies import PARTIAL, REF, partial, reply_schemas, with_changes
from promptgraft.service.server.tokens import ApiCaller, Scope
from promptgraft.service.server.views import JobView, JobViews

T = TypeVar("T")

PREFIX = "/api/v1"
# 256 KiB: far above the largest request, which changes some settings of a job.
MOST_BODY_BYTES = 262_144
MOST_DEPTH = 32
LARGEST_POSITION = 2**31 - 2
"""Largest number that databases hold in an integer, less one for what comes after it."""

_NO_TEXTS: Mapping[str, str] = FrozenMap()
_PLACEHOLDER = re.compile(r"{(\w+)}")


@attrs.frozen(kw_only=True)
class ApiCall:
    """A request as handlers see it.

    Attributes:
        manager: the jobs; it acts under the caller's name, and has the projects that they see.
        mirrors: run directories of jobs, for reports and archives.
        views: cached views of jobs.
        access: sessions, and open streams.
        caller: who sends the request.
        visit: where it comes from.
        path: values of the placeholders of the path.
        query: parameters of the query string.
        headers: headers by lower-case name.
        body: the body; empty if there is none.
    """

    manager: JobManager
    mirrors: Mirrors
    views: JobViews
    access: Access
    caller: ApiCaller
    visit: Visit
    path: Mapping[str, str] = _NO_TEXTS
    query: Mapping[str, str] = _NO_TEXTS
    headers: Mapping[str, str] = _NO_TEXTS
    body: bytes = b""

    @cached_property
    def job(self) -> Job:
        """The job in the path.

        Raises:
            JobNotFoundError: there is none, or the caller cannot see its project.
        """
        return self.manager.get(self.path["job"], projects=self.caller.projects)

    @cached_property
    def view(self) -> JobView:
        """View of the job in the path.

        Raises:
            JobNotFoundError: see :attr:`job`.
        """
        return self.views.of(self.manager, self.job)

    def project(self, name: str) -> str:
        """Return the name of a project that the caller can see.

        Raises:
            ConfigError: the caller cannot see it.
        """
        if not self.caller.sees(name):
            raise ConfigError(f"there is no project `{name}` for this token")
        return name

    def read(self, kind: Kind[T]) -> T:
        """Return the validated body.

        Raises:
            Problem: 400, 415: it is not acceptable JSON.
            DataFormatError: it is invalid; with the path of each fault.
        """
        source = Source.of(self._document(), is_trusted=False)
        document = kind.read(source.root)
        source.raise_all()
        assert document is not None  # noqa: S101 - what has no fault is read
        return document

    def object(self) -> dict[str, Json]:
        """Return the body as it was sent, including defaults that it names.

        Raises:
            Problem: as :meth:`read`.
            ConfigError: it is not an object.
        """
        value = self._document()
        if not isinstance(value, dict):
            raise ConfigError(f"body: expected an object, found {shown(value)}")
        return value

    def _document(self) -> Json:
        media = self.headers.get("content-type", "application/json").partition(";")[0]
        if media.strip().lower() != "application/json":
            raise ApiProblem(415, f"expected application/json, found {media[:100]}")
        try:
            # Actions such as a rollback need no body.
            value = parse_json(self.body or b"{}", where="body")
        except (ConfigError, ValueError) as error:
            raise ApiProblem(400, str(error)) from None
        # Later code recurses over the value.
        if is_deeper(value, MOST_DEPTH):
            raise ApiProblem(400, f"body: nested more than {MOST_DEPTH} deep")
        return value

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        """Return an integer parameter of the query.

        Raises:
            Problem: 422: it is not an integer, or out of range.
        """
        text = self.query.get(name)
        if text is None:
            return default
        number = natural(text)
        if number is not None and least <= number <= most:
            return number
        raise ApiProblem(
            422, f"{name}: expected an integer from {least} to {most}, found {text[:40]!r}"
        )


def natural(given: str) -> int | None:
    """Parse a natural number of up to 11 digits; None for anything else."""
    # `isdigit` alone accepts digits of any script.
    return int(given) if given.isascii() and given.isdigit() and len(given) < 12 else None


@attrs.frozen(kw_only=True)
class ApiReply:
    """Reply of a handler.

    Attributes:
        status: the HTTP status.
        content: the body.
        media: its media type.
        headers: further headers.
        job: id of a job to wait for: the reply is sent, with that job, when it is at rest.
        seconds: longest time to wait; 0 sends the reply at once.
    """

    status: int = 200
    content: bytes = b""
    media: str = "application/json"
    headers: Mapping[str, str] = _NO_TEXTS
    job: str = ""
    seconds: float = 0.0


def reply(document: Json, status: int = 200, **headers: str) -> ApiReply:
    """Return a reply with JSON; ``_`` stands for ``-`` in names of headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ApiReply(status=status, content=json.dumps(document).encode(), headers=named)


@attrs.frozen
class Route:
    """A route: dispatch, access control and documentation of an operation.

    Attributes:
        at: HTTP method and path after the prefix, such as ``GET /jobs/{job}``.
        scope: the scope that a caller needs; None if none is needed.
        handler: the function that replies.
        query: query parameters with their JSON Schemas.
        headers: request headers with their JSON Schemas.
        body: kind of the body; None if there is none.
        reply: class of the JSON document of the reply; None if it has none.
        statuses: statuses of success.
        media: media type of the reply.
        is_heavy: whether it is answered in the small pool of reports.
        most_bytes: size of the body.
    """

    at: str
    scope: Scope | None
    handler: Callable[[ApiCall], ApiReply]
    query: Mapping[str, Mapping[str, Json]] = attrs.field(
        default=FrozenMap(), kw_only=True, hash=False
    )
    headers: Mapping[str, Mapping[str, Json]] = attrs.field(
        default=FrozenMap(), kw_only=True, hash=False
    )
    body: Kind[object] | None = attrs.field(default=None, kw_only=True)
    reply: type | None = attrs.field(default=None, kw_only=True)
    statuses: tuple[int, ...] = attrs.field(default=(200,), kw_only=True)
    media: str = attrs.field(default="application/json", kw_only=True)
    is_heavy: bool = attrs.field(default=False, kw_only=True)
    most_bytes: int = attrs.field(default=MOST_BODY_BYTES, kw_only=True)

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.at.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path after the prefix, with placeholders."""
        return self.at.partition(" ")[2]

    @property
    def summary(self) -> str:
        """Summary for the documentation: the first line of the handler's docstring."""
        return (self.handler.__doc__ or "").splitlines()[0]

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Names of the placeholders."""
        return tuple(_PLACEHOLDER.findall(self.path))


_SUCCESS = {200: "Done", 201: "Made", 202: "Accepted", 204: "Removed"}
_ALWAYS = (400, 401, 403, 404, 429, 503)
_WITH_BODY = (408, 409, 413, 415, 422)


def openapi(routes: Sequence[Route], base: str = "") -> dict[str, Json]:
    """Return the OpenAPI 3.1 document of a table of routes, mounted at the path ``base``."""
    paths: dict[str, Json] = {}
    for route in routes:
        at = paths.setdefault(f"{PREFIX}{route.path}", {})
        assert isinstance(at, dict)  # noqa: S101 - made in the line before
        at[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "promptgraft",
            "version": __version__,
            "description": "Optimization jobs: submit, watch, pause, resume, promote.",
        },
        "servers": [{"url": base or "/"}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "ProblemDocument": _PROBLEM,
                **reply_schemas(route.reply for route in routes if route.reply is not None),
            },
        },
        "security": [{"token": []}],
    }


_PROBLEM: dict[str, Json] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "One line that says what to do."},
        "faults": {"type": "array", "items": {"type": "string"}},
    },
}


def _operation(route: Route) -> dict[str, Json]:
    parameters: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in route.placeholders
    ]
    parameters += [
        {"name": name, "in": place, "schema": dict(schema)}
        for place, route_parameter in (("query", route.query), ("header", route.headers))
        for name, schema in route_parameter.items()
    ]
    statuses = sorted({*_ALWAYS, *_WITH_BODY})
    problem: Json = {"$ref": "#/components/schemas/ProblemDocument"}
    responses: dict[str, Json] = {
        f"{status}": {
            "description": TITLES[status],
            "content": {"application/problem+json": {"schema": problem}},
        }
        for status in statuses
    }
    for status in route.statuses:
        answer: dict[str, Json] = {"description": _SUCCESS[status]}
        if status != 204:
            answer["content"] = {route.media: {"schema": _reply_schema(route)}}
        responses[f"{status}"] = answer
    operation: dict[str, Json] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "description": f"Needs the scope `{route.scope}`." if route.scope else "",
        "parameters": parameters,
        "responses": responses,
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": with_changes(route.body.schema)}},
        }
    return operation


def _reply_schema(route: Route) -> Json:
    if route.reply is None:
        binary: dict[str, Json] = {} if route.media.startswith("text/") else {"format": "binary"}
        return {"type": "string", **binary}
    name = route.reply.__name__
    if "fields" in route.query and name in PARTIAL:
        return partial(name)
    return {"$ref": REF.format(name=name)}
