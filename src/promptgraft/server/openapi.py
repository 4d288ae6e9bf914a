"""The OpenAPI document (3.1), made of the table of routes."""

from __future__ import annotations

from collections.abc import Sequence

from promptgraft import __version__
from promptgraft.serde import Json
from promptgraft.server.calls import Route
from promptgraft.server.problems import TITLES

PREFIX = "/api/v1"

_SUCCESS = {200: "Done", 201: "Made", 202: "Accepted", 204: "Removed"}
_ALWAYS = (400, 401, 403, 404, 429, 503)
_WITH_BODY = (409, 413, 415, 422)


def openapi(routes: Sequence[Route]) -> dict[str, Json]:
    """Return the document of some routes."""
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
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": _PROBLEM},
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
        for place, given in (("query", route.query), ("header", route.headers))
        for name, schema in given.items()
    ]
    statuses = sorted({*_ALWAYS, *_WITH_BODY})
    problem: Json = {"$ref": "#/components/schemas/Problem"}
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
            schema: dict[str, Json] = {"type": "object"} if "json" in route.media else {}
            answer["content"] = {route.media: {"schema": schema}}
        responses[f"{status}"] = answer
    found: dict[str, Json] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "description": f"Needs the scope `{route.scope}`.",
        "parameters": parameters,
        "responses": responses,
    }
    if route.body is not None:
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": route.body.schema}},
        }
    return found
