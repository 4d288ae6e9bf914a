"""Turns of a conversation with a model, and the two interfaces of an adapter.

A *wire* knows a provider's format but nothing about networks; an *endpoint* knows how to send
requests but nothing about formats. Everything in between is shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Protocol, TypeAlias, TypeVar

import attrs
import msgspec

from promptgraft.adapters.base import NO_USAGE, Usage
from promptgraft.errors import Lasting, TransientProviderError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import Json, map_texts
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.schema import JsonObject

T = TypeVar("T")


class Finish(StrEnum):
    """Why a model stopped, independent of the provider."""

    DONE = "done"
    TOOLS = "tools"
    PAUSED = "paused"  # send the turn back and the model continues it
    LENGTH = "length"
    REFUSED = "refused"


@attrs.frozen(kw_only=True)
class ToolRequest:
    """A request to call a tool; ``arguments`` is the model's JSON, which may be invalid."""

    id: str
    name: str
    arguments: str


@attrs.frozen(kw_only=True)
class ToolAnswer:
    """The reply to a tool request: the result, or an error if ``failed``."""

    request: ToolRequest
    content: str
    failed: bool = False

    @property
    def text(self) -> str:
        """The reply for formats in which only the text can tell an error."""
        return f"Error: {self.content}" if self.failed else self.content


@attrs.frozen(kw_only=True)
class Turn:
    """One reply of a model.

    Attributes:
        text: its text; empty if it only requests tools.
        requests: the tools that it requests, in its order.
        finish: why it stopped.
        finish_reason: the same in the provider's terms.
        usage: tokens; ``NO_USAGE`` if the provider does not count them.
        cache_write_tokens: the part of the input tokens written to the provider's cache, which have
            a price of their own.
        model: the provider's name of the model that answered.
        messages: the reply as the next request must repeat it: one message, or several items.
    """

    text: str
    requests: tuple[ToolRequest, ...] = ()
    finish: Finish
    finish_reason: str
    usage: Usage
    cache_write_tokens: int = 0
    model: str
    messages: tuple[JsonObject, ...] = attrs.field(hash=False)


Tokens = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
"""A token count; a negative or absurd one makes the price of the answer unknown."""


def counted_in(kind: type[T], usage: object) -> T:
    """Return the token counts of an answer; none if they are missing or cannot be read.

    Some gateways write whole numbers as texts or with a point.

    The answer is good whatever a server says of its tokens; it is kept, and its price is unknown.
    """
    try:
        return msgspec.convert(usage, kind, strict=False)
    except msgspec.ValidationError:
        return kind()


def usage_of(
    sent: int | None, received: int | None, *, cached: int, written: int, reasoning: int
) -> Usage:
    """Return the tokens of an answer; ``NO_USAGE`` if counts are missing or contradictory.

    ``sent`` includes ``cached`` and ``written``, the tokens read from and written to the cache;
    ``received`` includes ``reasoning``.
    """
    if sent is None or received is None or cached + written > sent:
        return NO_USAGE
    return Usage(
        input_tokens=sent,
        output_tokens=received,
        cached_tokens=cached,
        # Some servers count them beside the answer; the bill is what they say of the whole.
        reasoning_tokens=min(reasoning, received),
    )


class UnreadableTurnError(TransientProviderError):
    """The body of a successful response is truncated or is not an answer.

    ``billed`` has the tokens that it counts all the same, in a turn without a text; ``shape`` is
    whether another answer would be alike.
    """

    billed: Turn | None = None
    shape = True


class BrokenTurnError(UnreadableTurnError):
    """The provider says that it could not finish its answer."""

    shape = False


def misshapen(detail: object) -> UnreadableTurnError:
    """Return the refusal of a body, with what was expected and what was found in it."""
    return UnreadableTurnError(f"the answer does not have the shape of one: {detail}")


class Wire(Protocol):
    """A provider's wire format; pure functions of data.

    ``open`` returns the body of the first request, ``extend`` the body of the request that follows
    a turn. ``stable`` returns the part of a request that is the same for all cases of a candidate,
    which the provider may cache. ``read`` decodes the body of a response, or raises
    ``UnreadableTurnError``. ``counted`` returns the tokens that a body counts, even if it cannot be
    read, and those written to the provider's cache.
    """

    def open(self, rendered: RenderedPrompt[object]) -> JsonObject: ...

    def read(self, body: JsonObject) -> Turn: ...

    def counted(self, body: JsonObject) -> tuple[Usage, int]: ...

    def stable(self, body: JsonObject) -> Json: ...

    def extend(
        self, request: JsonObject, turn: Turn, answers: Sequence[ToolAnswer]
    ) -> JsonObject: ...


@attrs.frozen(kw_only=True)
class Received:
    """A response of any status; header names are in lower case.

    ``requests`` counts the requests that were sent for it: several, if the endpoint has fallbacks.
    """

    status: int
    headers: Mapping[str, str] = attrs.field(converter=FrozenMap[str, str])
    content: str
    requests: int = 1


class NothingReceivedError(TransientProviderError):
    """A request got no usable response.

    It took too long (``timed_out``), the connection was never established (``unreachable``) or
    broke, or the response was too large.
    """

    def __init__(self, message: str, *, timed_out: bool = False, unreachable: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.unreachable = unreachable


class UselessReplyError(NothingReceivedError):
    """A reply arrived, and asking again would bring the same one: it lacks what was asked for."""

    lasting = Lasting.PERMANENT


Files: TypeAlias = Sequence[tuple[str, tuple[str, bytes, str]]]
"""Parts of a form: the field, and the name, content and media type of a file."""


class Endpoint(Protocol):
    """Sends requests to one provider under one account.

    ``send`` is only awaited in the thread of ``promptgraft.runtime.event_loop``.

    Attributes:
        account: the scope of rate limits: provider, host, and a digest of the key.
        secrets: texts that must not appear in any message.
        blanked: the secrets that are also blanked in valid answers.
    """

    account: str
    secrets: tuple[str, ...]
    blanked: tuple[str, ...]

    async def send(self, body: JsonObject, *, seconds: float) -> Received:
        """Send one request and return the response, whatever its status.

        Raises ``NothingReceivedError`` if the response is not complete within ``seconds`` of wall
        time.
        """
        ...


def sendable(body: JsonObject) -> JsonObject:
    """Return a body that UTF-8 can encode: lone surrogates become U+FFFD."""
    return {_text(key): map_texts(value, _text, keys=True) for key, value in body.items()}


def extended(
    request: JsonObject, turn: Turn, replies: Sequence[JsonObject], *, field: str = "messages"
) -> JsonObject:
    """Return a request extended by a turn and the replies to it, in the list ``field``."""
    messages = request[field]
    before = messages if isinstance(messages, list) else []
    # Results of tools may hold lone surrogates, which no HTTP body can carry.
    return {**request, **sendable({field: [*before, *turn.messages, *replies]})}


def _text(text: str) -> str:
    if text.isascii():
        return text
    # UTF-16 joins the two halves of a pair into one character; only lone ones are replaced.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_as(kind: type[T], body: JsonObject) -> T:
    """Convert a body to ``kind``, ignoring unknown fields, or raise ``UnreadableTurnError``."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise misshapen(error) from None
