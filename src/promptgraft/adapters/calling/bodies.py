"""Bodies of requests and answers as plain data."""

from __future__ import annotations

from typing import TypeVar

from promptgraft.adapters.calling.turns import UnreadableTurnError
from promptgraft.prompt.schema import JsonObject
from promptgraft.serde import Json

T = TypeVar("T")


def sendable(body: JsonObject) -> JsonObject:
    """Return a body in which every text can be written as UTF-8.

    Halves of a character that have lost their other half become U+FFFD; two halves in a row
    become the character.
    """
    return {_text(key): _sendable(value) for key, value in body.items()}


def _sendable(value: Json) -> Json:
    match value:
        case str():
            return _text(value)
        case list():
            return [_sendable(item) for item in value]
        case dict():
            return sendable(value)
    return value


def _text(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_as(kind: type[T], body: JsonObject) -> T:
    """Return a body as an instance of ``kind``; fields that ``kind`` lacks are passed over.

    Raises:
        UnreadableTurnError: it has another shape.
    """
    import msgspec

    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise UnreadableTurnError(f"the answer does not have the shape of one: {error}") from None
