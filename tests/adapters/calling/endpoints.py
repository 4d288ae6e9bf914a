"""Endpoints, answers and calls for tests, without any network."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from decimal import Decimal

import attrs

from promptgraft.adapters.base import Usage
from promptgraft.adapters.calling.caller import Caller
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.adapters.calling.turns import (
    Endpoint,
    Finish,
    NothingReceivedError,
    Received,
    Turn,
    UnreadableTurnError,
)
from promptgraft.ground.clock import Clock, SystemClock
from promptgraft.prompt.schema import JsonObject
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Charge, Session

SECRET = "sk-test/very+secret=1"
USAGE = Usage(input_tokens=30, output_tokens=12, cached_tokens=8)
PRICE = Decimal("0.25")
EXPECTED = Charge(tokens=10)
QUICK = RetryPolicy(attempts=3, wait_initial=0.001, wait_max=0.002)
_accounts = itertools.count()


def received(status: int, content: object = "", **headers: str) -> Received:
    """Return an answer; ``retry_after`` stands for the header ``retry-after``."""
    text = content if isinstance(content, str) else json.dumps(content)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Received(status=status, headers=names, content=text)


def error(kind: str, message: str = "no", code: str | None = None) -> dict[str, object]:
    """Return an error body as both families of providers write it."""
    return {"type": "error", "error": {"type": kind, "code": code, "message": message}}


HELLO = received(200, {"text": "hello"})
DOWN = received(503, error("api_error", "down"))
LIMITED = received(429, error("rate_limit_error", "slow down"))


@attrs.define
class Scripted:
    """Answers with what it is given, then with :data:`HELLO`; each account is its own."""

    answers: list[Received | NothingReceivedError] = attrs.field(factory=list)
    secrets: tuple[str, ...] = (SECRET,)
    blanked: tuple[str, ...] = (SECRET,)
    account: str = attrs.field(factory=lambda: f"scripted-{next(_accounts)}")
    bodies: list[JsonObject] = attrs.field(factory=list)
    on_send: Callable[[], None] = lambda: None

    async def send(self, body: JsonObject, *, seconds: float) -> Received:
        assert seconds > 0
        self.bodies.append(body)
        self.on_send()
        answer = self.answers.pop(0) if self.answers else HELLO
        if isinstance(answer, NothingReceivedError):
            raise answer
        return answer


@attrs.define
class Hanging:
    """Never answers and ignores how many seconds it has; ``on_send`` hears of each request."""

    secrets: tuple[str, ...] = (SECRET,)
    blanked: tuple[str, ...] = (SECRET,)
    account: str = attrs.field(factory=lambda: f"hanging-{next(_accounts)}")
    on_send: Callable[[], None] = lambda: None
    deaf: bool = False
    sent: int = 0
    broken_off: int = 0

    async def send(self, body: JsonObject, *, seconds: float) -> Received:
        self.sent += 1
        self.on_send()
        never = asyncio.get_running_loop().create_future()
        try:
            await never
        except asyncio.CancelledError:
            self.broken_off += 1
            if self.deaf:
                await asyncio.get_running_loop().create_future()
            raise
        raise AssertionError("nobody ends it")


def read(body: JsonObject) -> Turn:
    """Read ``{"text": ...}``."""
    text = body.get("text")
    if not isinstance(text, str):
        raise UnreadableTurnError(f"expected a text, found {body}")
    return Turn(
        text=text, finish=Finish.DONE, finish_reason="stop", usage=USAGE, model="m-1", messages=()
    )


def caller_of(
    endpoint: Endpoint,
    *,
    policy: RetryPolicy = QUICK,
    call_timeout: float = 30.0,
    max_concurrency: int | None = None,
    clock: Clock | None = None,
) -> Caller:
    return Caller(
        endpoint,
        policy=policy,
        call_timeout=call_timeout,
        max_concurrency=max_concurrency,
        clock=clock or SystemClock(),
    )


def call(
    caller: Caller,
    session: Session | None = None,
    *,
    deadline: Deadline | None = None,
    price: Decimal | None = PRICE,
    expected: Charge = EXPECTED,
) -> str:
    """Call with an empty body and return the text of the answer."""
    turn = caller.call(
        {},
        read=read,
        price=lambda _: price,
        model="m",
        expected=expected,
        session=session or Session(),
        deadline=deadline,
    )
    return turn.text
