"""Requests by hand, for what no SDK would send."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from urllib.parse import urlsplit

from promptgraft.ground.serde import Json
from servers.behaviour import JsonObject
from servers.loopback import KEY, LoopbackServer

Change = Callable[[JsonObject], object]


def posted(server: LoopbackServer, body: object, **headers: str) -> tuple[int, Json]:
    """Send a body, or a text as it is, and return status and body of the response."""
    connection = http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=5)
    usual = {
        "content-type": "application/json",
        "authorization": f"Bearer {KEY}",
        "anthropic-version": "2023-06-01",
    }
    text = body if isinstance(body, str) else json.dumps(body)
    try:
        connection.request("POST", server.provider.path, text, usual | headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def said(body: Json) -> str:
    """Return the message of an error."""
    assert isinstance(body, dict)
    error = body["error"]
    assert isinstance(error, dict)
    return str(error["message"])


def nested(body: JsonObject, *path: str | int) -> JsonObject:
    """Return the object at a place."""
    found: Json = body
    for step in path:
        if isinstance(step, int):
            assert isinstance(found, list)
            found = found[step]
        else:
            assert isinstance(found, dict)
            found = found[step]
    assert isinstance(found, dict)
    return found


def put(value: Json, *path: str | int) -> Change:
    """Return what puts a value into a place."""
    *place, last = path
    return lambda body: nested(body, *place).__setitem__(str(last), value)


def drop(*path: str | int) -> Change:
    """Return what takes away what stands in a place."""
    *place, last = path
    return lambda body: nested(body, *place).pop(str(last))
