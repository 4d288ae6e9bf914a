"""Replies compared with the OpenAPI document: every field is there, and no other."""

from __future__ import annotations

import functools
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

from jsonschema import Draft202012Validator

from promptgraft.ground.serde import Json
from promptgraft.service.server.api import ROUTES
from promptgraft.service.server.calls import PREFIX, openapi

# The fields of an event depend on its kind.
OPEN = {"EventReply"}


@functools.cache
def components() -> dict[str, Any]:
    """Return the schemas of the document, in which no object has a field that it does not name."""
    document: Any = openapi(ROUTES)
    schemas: dict[str, Any] = document["components"]["schemas"]
    for name, schema in schemas.items():
        if "properties" in schema and name not in OPEN:
            schema.setdefault("additionalProperties", False)
    return {"components": {"schemas": schemas}, "paths": document["paths"]}


@functools.cache
def validator(method: str, path: str, status: int, *, partial: bool) -> Draft202012Validator | None:
    """Return what checks the reply of an operation; None for one without a JSON document."""
    for route in ROUTES:
        pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(f"{PREFIX}{route.path}"))
        if route.method == method and re.fullmatch(pattern, path):
            break
    else:
        return None
    responses = components()["paths"][f"{PREFIX}{route.path}"][method.lower()]["responses"]
    content = responses[str(status)].get("content", {})
    schema = content.get("application/json", {}).get("schema")
    if schema is None:
        return None
    if not partial and "anyOf" in schema:
        schema = schema["anyOf"][0]
    return Draft202012Validator({**schema, "components": components()["components"]})


def check_documented(method: str, url: str, status: int, document: Json) -> None:
    """Fail if a successful reply is not as documented."""
    parts = urlsplit(url)
    partial = "fields" in parse_qs(parts.query)
    checks = validator(method, parts.path, status, partial=partial)
    faults = [] if checks is None else list(checks.iter_errors(document))
    assert not faults, f"{method} {url}: {faults[0].json_path}: {faults[0].message[:500]}"
