"""What a loopback server does with a request, as plain data."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum

import attrs

from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import Json, canonical_json

JsonObject = dict[str, Json]


class Stop(StrEnum):
    """Why the model stops."""

    DONE = "done"
    LENGTH = "length"
    REFUSED = "refused"
    FILTERED = "filtered"


class Break(StrEnum):
    """Where the connection goes wrong."""

    NOWHERE = "nowhere"
    BEFORE_HEADERS = "reset before the headers"
    IN_HEADERS = "reset in the middle of the headers"
    AFTER_HEADERS = "reset after the headers"
    IN_BODY = "reset in the middle of the body"
    ENDS_EARLY = "closed in the middle of the body"
    HANGS = "nothing is ever sent"
    HANGS_AFTER_HEADERS = "headers are sent, and nothing more"
    DRIPS = "one byte at a time, 20 ms each"


@attrs.frozen
class Call:
    """The model calls a tool; ``arguments`` is JSON as the model wrote it."""

    tool: str
    arguments: str


@attrs.frozen(kw_only=True)
class Answer:
    """What the model says; tokens that are not given are counted from the texts.

    ``thought_tokens`` are thought and not shown; they come on top of the output tokens.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: Stop = Stop.DONE
    input_tokens: int | None = None
    output_tokens: int | None = None
    thought_tokens: int = 0


@attrs.frozen(kw_only=True)
class Fault:
    """An error in the words of a provider; Anthropic knows neither ``code`` nor ``param``."""

    status: int
    kind: str
    message: str
    code: str | None = None
    param: str | None = None


def _frozen(headers: Mapping[str, str]) -> FrozenMap[str, str]:
    return FrozenMap({name.lower(): value for name, value in headers.items()})


@attrs.frozen(kw_only=True)
class Behaviour:
    """How a request is answered.

    Attributes:
        status: of the response; from 400 on the body is the provider's own error.
        headers: added to those that the provider always sends.
        answer: what the model says; None asks the server's brain.
        fault: an error instead of the provider's usual one for the status.
        body: exactly these bytes instead of anything else.
        content_type: of the response.
        breaks: where the connection goes wrong.
        chunked: whether the body is sent in chunks rather than with its length.
        seconds: time before the response begins, at most 1; tests keep below 0.02.
    """

    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=FrozenMap[str, str], converter=_frozen)
    answer: Answer | None = None
    fault: Fault | None = None
    body: bytes | None = None
    content_type: str = "application/json"
    breaks: Break = Break.NOWHERE
    chunked: bool = False
    seconds: float = attrs.field(default=0.0, validator=attrs.validators.le(1.0))


WELL = Behaviour()


@attrs.frozen(kw_only=True)
class Asked:
    """A valid request.

    Attributes:
        number: how many valid requests came before it.
        model: the model that is asked.
        texts: the texts of system and user, in order.
        tools: names of the tools that it may call.
        results: what the model has been told of its calls, in order; a failed one first has
            ``"error: "``.
        schema: the JSON Schema that the answer is held to; None for none.
        body: the whole request.
        headers: names in lower case.
    """

    number: int
    model: str
    texts: tuple[str, ...]
    tools: tuple[str, ...]
    results: tuple[str, ...]
    schema: JsonObject | None
    body: JsonObject
    headers: Mapping[str, str]


Brain = Callable[[Asked], Answer]
Script = Callable[[Asked], Behaviour]


def in_turn(*behaviours: Behaviour) -> Script:
    """Return a script that behaves like this for the first requests, and then well."""

    def script(asked: Asked) -> Behaviour:
        return behaviours[asked.number] if asked.number < len(behaviours) else WELL

    return script


def always(behaviour: Behaviour) -> Script:
    """Return a script that behaves like this for every request."""
    return lambda _: behaviour


def storm(*behaviours: Behaviour, share: float, seed: int = 0) -> Script:
    """Return a script in which a share of the requests meets one of some behaviours.

    What a request meets depends on its body and on how often that has been asked before, not
    on the order in which requests arrive.
    """
    times = Counter[str]()

    def script(asked: Asked) -> Behaviour:
        body = canonical_json(asked.body)
        times[body] += 1
        chance = random.Random(f"{seed} {times[body]} {body}")
        return chance.choice(behaviours) if chance.random() < share else WELL

    return script


def says(text: str) -> Brain:
    """Return a brain that always says ``text``."""
    return lambda _: Answer(text=text)
