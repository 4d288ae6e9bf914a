"""Turns of a conversation with a model, and the two seams of an adapter.

A *wire* knows a provider's format and nothing of networks; an *endpoint* knows how to send
and nothing of formats. What lies between them is shared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Protocol, TypeAlias, TypeVar

import attrs
import msgspec

from promptgraft.adapters.base import NO_USAGE, Usage
from promptgraft.errors import TransientProviderError
from promptgraft.frozenmap import FrozenMap
from promptgraft.prompt.rendered import RenderedPrompt, RenderedSection
from promptgraft.prompt.schema import JsonObject
from promptgraft.serde import map_texts

T = TypeVar("T")


class Finish(StrEnum):
    """Why a model stopped, in words that all providers share."""

    DONE = "done"
    TOOLS = "tools"
    PAUSED = "paused"  # it asks to be continued
    LENGTH = "length"
    REFUSED = "refused"


@attrs.frozen(kw_only=True)
class ToolRequest:
    """A model wants a tool to be called; ``arguments`` is its JSON, which may be invalid."""

    id: str
    name: str
    arguments: str


@attrs.frozen(kw_only=True)
class ToolAnswer:
    """The result of a tool, or what went wrong."""

    request: ToolRequest
    content: str
    failed: bool = False


@attrs.frozen(kw_only=True)
class Turn:
    """One answer of a model.

    Attributes:
        text: its text; empty when it only calls tools.
        requests: tools that it wants to be called, in its order.
        finish: why it stopped.
        finish_reason: the same in the provider's word.
        usage: tokens; ``NO_USAGE`` when the provider does not count them.
        cache_write_tokens: those of the sent tokens that were written to the provider's
            cache at a price of their own.
        model: the model that answered, in the provider's word.
        message: the answer as the next request must repeat it.
    """

    text: str
    requests: tuple[ToolRequest, ...] = ()
    finish: Finish
    finish_reason: str
    usage: Usage
    cache_write_tokens: int = 0
    model: str
    message: JsonObject


Tokens = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
"""A count of tokens in an answer; one that is negative or absurd makes it unreadable."""


def usage_of(sent: int | None, received: int | None, cached: int, written: int) -> Usage:
    """Return the tokens of an answer; ``NO_USAGE`` when they are not counted or cannot be right.

    ``sent`` includes ``cached`` and ``written``, which were read from and written to the cache.
    """
    if sent is None or received is None or cached + written > sent:
        return NO_USAGE
    return Usage(input_tokens=sent, output_tokens=received, cached_tokens=cached)


class UnreadableTurnError(TransientProviderError):
    """A body with a good status that is no answer, or one cut short."""


class Wire(Protocol):
    """A provider's format. Pure: data in, data out.

    ``open`` returns the body of the first request, ``extend`` that of the request that follows a
    turn. ``read`` returns the answer in a body, or raises ``UnreadableTurnError``.
    """

    def open(self, rendered: RenderedPrompt[object]) -> JsonObject: ...

    def read(self, body: JsonObject) -> Turn: ...

    def extend(
        self, request: JsonObject, turn: Turn, answers: Sequence[ToolAnswer]
    ) -> JsonObject: ...


@attrs.frozen(kw_only=True)
class Received:
    """A response of any status; headers have names in lower case.

    Attributes:
        requests: how many were sent for it, by an endpoint that asks several servers.
    """

    status: int
    headers: Mapping[str, str] = attrs.field(converter=FrozenMap[str, str])
    content: str
    requests: int = 1


class NothingReceivedError(TransientProviderError):
    """A request got no usable answer.

    It took too long (``timed_out``), its connection was never made (``unreachable``) or broke, or
    what came back was too large.
    """

    def __init__(self, message: str, *, timed_out: bool = False, unreachable: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.unreachable = unreachable


Files: TypeAlias = Sequence[tuple[str, tuple[str, bytes, str]]]
"""Parts of a form: field, and name, bytes and type of a file."""


class Endpoint(Protocol):
    """Sends bodies to one provider with one account.

    ``send`` is only awaited in the thread of ``promptgraft.runtime.event_loop``.

    Attributes:
        account: what a limit of the provider belongs to: provider, host, and a digest of the key.
        secrets: texts that must appear in no message.
        blanked: those of them that are blanked in valid answers as well.
    """

    account: str
    secrets: tuple[str, ...]
    blanked: tuple[str, ...]

    async def send(self, body: JsonObject, *, seconds: float) -> Received:
        """Send one request and return what came back, whatever its status.

        Raises ``NothingReceivedError`` when not all came back within ``seconds`` of wall time.
        """
        ...


@attrs.frozen(kw_only=True)
class Content:
    """The two texts that a model is sent; ``system`` is the same for all bound values."""

    system: str
    user: str


def content_of(rendered: RenderedPrompt[object], *, say_format: bool) -> Content:
    """Split a prompt before the first section that shows a value; all is the user's without one.

    With ``say_format`` it says which answers are wanted, for models that take no schema.
    """
    first = next((n for n, section in enumerate(rendered.sections) if _is_bound(section)), 0)
    system = attrs.evolve(rendered, sections=rendered.sections[:first]).text
    user = attrs.evolve(rendered, sections=rendered.sections[first:]).text
    schema = rendered.output_schema if say_format else None
    if schema is None:
        return Content(system=system, user=user)
    wanted = _wanted(schema)
    if system:
        return Content(system=f"{system}\n\n{wanted}", user=user)
    return Content(system="", user=f"{user}\n\n{wanted}")


def _is_bound(section: RenderedSection) -> bool:
    return any(segment.placeholder is not None for segment in section.segments)


def _wanted(schema: JsonObject) -> str:
    options = schema.get("enum")
    if isinstance(options, list):
        said = schema.get("description")
        named = ", ".join(str(option) for option in options)
        text = f"Answer with exactly one of these and nothing else: {named}."
        return f"## Answer\n\n{text}" + (f"\n\n{said}" if said else "")
    return (
        "## Answer\n\nAnswer with one JSON object that fits this JSON Schema and nothing else:\n\n"
        f"```json\n{json.dumps(schema, ensure_ascii=False)}\n```"
    )


def sendable(body: JsonObject) -> JsonObject:
    """Return a body in UTF-8: surrogate pairs become their character, lone ones U+FFFD."""
    return {_text(key): map_texts(value, _text, keys=True) for key, value in body.items()}


def extended(request: JsonObject, turn: Turn, told: Sequence[JsonObject]) -> JsonObject:
    """Return a request with further messages: a turn, and the answers to it."""
    messages = request["messages"]
    before = messages if isinstance(messages, list) else []
    return {**request, **sendable({"messages": [*before, turn.message, *told]})}


def _text(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_as(kind: type[T], body: JsonObject) -> T:
    """Return a body as a ``kind``, other fields ignored, or raise ``UnreadableTurnError``."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise UnreadableTurnError(f"the answer does not have the shape of one: {error}") from None
