"""One call of a model: queueing, budget, requests, retries and the answer.

Of calls whose prompts begin alike one goes ahead, so that the others find it in the provider's
cache. The journal of a run keeps calls one by one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import attrs
import msgspec

from promptgraft import errors
from promptgraft.adapters.base import (
    NO_USAGE,
    CallWaiting,
    ModelCalled,
    Usage,
    called_from_json,
    called_to_json,
)
from promptgraft.adapters.calling import retrying, turns
from promptgraft.adapters.calling.access import blanked, redacted_line
from promptgraft.adapters.calling.faults import Fault, judge, unreadable
from promptgraft.adapters.calling.limiter import Gate, Lane, PausedError, Verdict, gate_of
from promptgraft.ground.clock import Clock, SystemClock
from promptgraft.ground.serde import HexDigest, Json
from promptgraft.ground.strict.checks import COUNT, SECONDS
from promptgraft.prompt.schema import JsonObject
from promptgraft.runtime import event_loop
from promptgraft.runtime.calls import Bound, Places
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import NOTHING, ZERO, Budget, Charge, SessionProtocol


@attrs.define(eq=False, kw_only=True)
class KeptCall:
    """One call of a model in an answer of a run.

    Attributes:
        places: gives the call its place.
        question: SHA-256 of what is asked, and of whom.
        bound: the most that a request can cost.
        place: its place in the answer.
        called: how it ended; None before that.
    """

    places: Places
    question: HexDigest
    bound: Bound
    place: str = attrs.field(init=False)
    called: ModelCalled | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.place = self.places.next()

    def recall(self, session: SessionProtocol) -> turns.Turn | None:
        """Return the answer that an earlier process has paid for, and dispatch how it came."""
        answer = self.places.kept.find(self.place, self.question)
        if answer is None:
            return None
        match answer:
            case {"calls": [called], "turn": turn}:
                session.dispatch(called_from_json(called, self.place))
                return _turn_from_json(turn, self.place)
        raise errors.JournalCorruptError(
            f"the journal's record of the call `{self.place}` is no answer of a model; restore the "
            "journal"
        )

    def sending(self) -> None:
        """Note that a request is about to be sent."""
        self.places.kept.sent(self.place, self.question, self.bound)

    def keep(self, turn: turns.Turn) -> None:
        """Keep the answer."""
        self.places.kept.keep(self.place, lambda: self._record(turn))

    def _record(self, turn: turns.Turn) -> tuple[HexDigest, Json] | None:
        if self.called is None:
            return None
        calls: list[Json] = [called_to_json(self.called)]
        # Only a turn that the conversation goes on from is ever sent back.
        goes_on = turn.finish in {turns.Finish.TOOLS, turns.Finish.PAUSED}
        turn_json = _turn_to_json(turn if goes_on else attrs.evolve(turn, messages=()))
        return self.question, {"calls": calls, "turn": turn_json}


class _KeptTurn(msgspec.Struct):
    """A turn as the journal keeps it."""

    text: str
    requests: list[tuple[str, str, str]]
    finish: turns.Finish
    finish_reason: str
    usage: tuple[int, int, int, int]
    cache_write_tokens: int
    model: str
    messages: list[dict[str, Any]]


def _turn_to_json(turn: turns.Turn) -> Json:
    """Return a turn as the journal keeps it."""
    return {
        "text": turn.text,
        "requests": [[request.id, request.name, request.arguments] for request in turn.requests],
        "finish": turn.finish.value,
        "finish_reason": turn.finish_reason,
        "usage": [*attrs.astuple(turn.usage)],
        "cache_write_tokens": turn.cache_write_tokens,
        "model": turn.model,
        "messages": [*turn.messages],
    }


def _turn_from_json(plain: Json, key: str) -> turns.Turn:
    """Return the turn that the journal keeps under ``key``.

    Raises:
        JournalCorruptError: ``plain`` is not what :func:`_turn_to_json` returned.
    """
    try:
        kept_turn = msgspec.convert(plain, _KeptTurn)
    except msgspec.ValidationError as error:
        raise errors.JournalCorruptError(
            f"the journal's record `{key}` holds no answer of a model: {error}; restore the journal"
        ) from None
    sent, received, cached, thought = kept_turn.usage
    return turns.Turn(
        text=kept_turn.text,
        requests=tuple(
            turns.ToolRequest(id=id_, name=name, arguments=arguments)
            for id_, name, arguments in kept_turn.requests
        ),
        finish=kept_turn.finish,
        finish_reason=kept_turn.finish_reason,
        usage=Usage(
            input_tokens=sent,
            output_tokens=received,
            cached_tokens=cached,
            reasoning_tokens=thought,
        ),
        cache_write_tokens=kept_turn.cache_write_tokens,
        model=kept_turn.model,
        messages=tuple(kept_turn.messages),
    )


WAIT = 15.0
"""Longest wait for the call that goes ahead, in seconds: a prompt is cached when its answer
begins, and a model that thinks may take much longer to end it."""

_KEPT = 240.0
"""Seconds that a beginning is relied on after a call; providers keep it for five minutes."""
_MOST = 1_000

Work = Callable[[], Awaitable[turns.Turn | Fault]]


class Beginnings:
    """The beginnings of prompts that the provider has in its cache; used in event loops only.

    Args:
        clock: tells how old a cached beginning is.
        longest: longest wait for the call that goes ahead, in seconds.
    """

    def __init__(self, clock: Clock, *, longest: float = WAIT) -> None:
        self._clock = clock
        self._longest = longest
        self._cached = OrderedDict[str, float]()
        # By loop as well: a future may only be awaited in its own.
        self._ahead: dict[tuple[object, str], asyncio.Future[None]] = {}

    async def after_the_first(
        self, beginning: str, work: Work, *, waited: Callable[[float], None]
    ) -> turns.Turn | Fault:
        """Do work, after the first call with the same beginning if that is still under way.

        Args:
            beginning: identifies the beginning; empty if it is too short for a cache.
            work: makes the call.
            waited: is told the seconds of the wait.
        """
        if not beginning:
            return await work()
        key, began = (asyncio.get_running_loop(), beginning), self._clock.monotonic()
        while not self._is_cached(beginning) and (first := self._ahead.get(key)) is not None:
            await asyncio.wait([first], timeout=self._longest)
            if not first.done():
                break
        waited(self._clock.monotonic() - began)
        if self._is_cached(beginning) or key in self._ahead:
            return self._noted(beginning, await work())
        # Nobody is ahead, or the first has failed: this call goes ahead.
        ahead = self._ahead[key] = asyncio.get_running_loop().create_future()
        try:
            return self._noted(beginning, await work())
        finally:
            del self._ahead[key]
            ahead.set_result(None)

    def _is_cached(self, beginning: str) -> bool:
        return self._clock.monotonic() - self._cached.get(beginning, float("-inf")) < _KEPT

    def _noted(self, beginning: str, outcome: turns.Turn | Fault) -> turns.Turn | Fault:
        if isinstance(outcome, turns.Turn):
            self._cached[beginning] = self._clock.monotonic()
            self._cached.move_to_end(beginning)
            if len(self._cached) > _MOST:
                self._cached.popitem(last=False)
        return outcome


GRACE = 0.5
"""Seconds after a request's timeout before an endpoint that ignores it is cancelled."""

UNREACHABLE = 3.0
"""Seconds after which a call is given up if the server has never been reached."""
MEND = "check base_url and the network"


@attrs.frozen(eq=False, kw_only=True)
class Caller:
    """Calls one endpoint from any thread; belongs to the process that created it.

    Attributes:
        endpoint: sends the requests.
        policy: attempts and waits of a call.
        call_timeout: seconds of wall time for one request.
        max_concurrency: limit on its own requests in flight, in addition to the shared limiter of
            the account; None for no limit.
        limited: whether requests wait for a slot at all.
        if_absent: the advice for a server that does not have the path of the requests.
    """

    endpoint: turns.Endpoint = attrs.field(kw_only=False)
    policy: retrying.RetryPolicy = attrs.field(kw_only=True)
    call_timeout: float = attrs.field(validator=SECONDS)
    max_concurrency: int | None = attrs.field(default=None, validator=COUNT.or_none)
    limited: bool = attrs.field(default=True)
    if_absent: str = attrs.field(default="")
    clock: Clock = attrs.field(factory=SystemClock)
    lane: Lane = attrs.field(init=False)
    gate: Gate = attrs.field(init=False)
    beginnings: Beginnings = attrs.field(init=False)
    availability: retrying.Availability = attrs.field(init=False, factory=retrying.Availability)

    @lane.default
    def _new_lane(self) -> Lane:
        return Lane(self.max_concurrency)

    @gate.default
    def _shared_gate(self) -> Gate:
        return gate_of(self.endpoint.account, self.clock)

    @beginnings.default
    def _no_beginnings(self) -> Beginnings:
        return Beginnings(self.clock)

    def call(
        self,
        body: JsonObject,
        *,
        read: Callable[[JsonObject], turns.Turn],
        price: Callable[[turns.Turn], Decimal | None],
        model: str,
        expected: Charge,
        session: SessionProtocol,
        deadline: Deadline | None,
        kept_call: KeptCall | None = None,
        beginning: str = "",
    ) -> turns.Turn:
        """Send ``body``, retry as the policy allows, and return the answer.

        Every request is charged to the budget of ``session``: ``expected`` is reserved before and
        the actual cost settled after it. Exactly one ``ModelCalled`` is dispatched however the
        call ends; long waits are announced with ``CallWaiting``. ``deadline`` interrupts a request
        in flight.

        Args:
            body: the request.
            read: decodes the body of a response.
            price: returns the cost of an answer in US dollars; None if it is unknown.
            model: name of the model, for events and messages.
            expected: reserved for each request.
            session: receives events and notices, and holds the budget.
            deadline: end of the run.
            kept_call: what the journal keeps of the call; None for nothing.
            beginning: identifies the part of ``body`` that the provider caches; calls with the
                same one wait until the first of them is answered.

        Raises:
            ProviderError, PromptTooLongError, RefusedAnswerError: there is no answer.
            LimitReachedError: time or budget is exhausted, or the run was cancelled.
        """
        time = retrying.CallTime(self.policy, self.clock, deadline)
        call = _Call(
            caller=self,
            body=body,
            read=read,
            price=price,
            time=time,
            bill=Bill(session.budget, expected),
            deadline=deadline,
            kept=kept_call,
            announce=lambda seconds, reason: session.notify(
                CallWaiting(model=model, seconds=seconds, reason=self._safe(reason))
            ),
        )
        policy = self.availability.bounded(self.policy)
        fault = "broken off"  # reported if the call ends in any other way than those below
        try:
            trying = self.beginnings.after_the_first(
                beginning,
                lambda: retrying.retry(
                    call.attempt, policy=policy, time=time, announce=call.announce
                ),
                # Not the call's fault, like the time in the queue.
                waited=time.exclude,
            )
            outcome = event_loop.run(trying, deadline=deadline)
            if not isinstance(outcome, Fault) or (outcome.retried and not outcome.limited):
                self.availability.note(answered=not isinstance(outcome, Fault))
            fault = self._message(outcome, model) if isinstance(outcome, Fault) else ""
        except errors.LimitReachedError as error:
            cancelled = "cancelled: " if isinstance(error, errors.RunCancelledError) else ""
            fault = self._safe(f"{cancelled}{error}")
            raise
        finally:
            called = call.bill.close(model=model, seconds=time.total, fault=fault)
            session.dispatch(called)
            if kept_call is not None:
                kept_call.called = called
        # Raised here and not in the loop, so that no cause or context can hold a key.
        if isinstance(outcome, Fault):
            raise outcome.error(fault)
        return outcome

    def _message(self, fault: Fault, model: str) -> str:
        message = ": ".join(filter(None, (f"model `{model}`: {fault.what}", fault.detail)))
        return self._safe(f"{message}; {fault.mend}" if fault.mend else message)

    def _safe(self, text: str) -> str:
        return redacted_line(text, self.endpoint.secrets)


@attrs.frozen(kw_only=True)
class _Call:
    """The part of a call that runs in the event loop."""

    caller: Caller
    body: JsonObject = attrs.field(hash=False)
    read: Callable[[JsonObject], turns.Turn]
    price: Callable[[turns.Turn], Decimal | None]
    time: retrying.CallTime
    bill: Bill
    deadline: Deadline | None
    kept: KeptCall | None
    announce: retrying.Announce

    async def attempt(self) -> turns.Turn | Fault:
        if not self.caller.limited:
            # Calls in batches, which would hold a slot for hours.
            return await self._request()
        gate, lane, clock = self.caller.gate, self.caller.lane, self.caller.clock
        queued = clock.monotonic()
        try:
            ticket = await gate.enter(lane, refusal=self.time.refusal, announce=self.announce)
        except PausedError as paused:
            what = f"rate limited for another {paused.seconds:.0f} s ({paused.refusal})"
            return Fault(error=errors.RateLimitedError, what=what)
        finally:
            # The policy's timeout does not cover the queue, whose length is not the call's fault.
            self.time.exclude(clock.monotonic() - queued)
        verdict, wait = Verdict.SILENT, None
        try:
            outcome = await self._request()
            if isinstance(outcome, turns.Turn):
                verdict = Verdict.CLEAN
            elif outcome.limited:
                verdict, wait = Verdict.LIMITED, outcome.wait
        finally:
            gate.leave(ticket, lane, verdict, wait=wait)
        return outcome

    async def _request(self) -> turns.Turn | Fault:
        if self.deadline is not None:
            self.deadline.check()
        self.bill.begin()
        try:
            if self.kept is not None and self.kept.places.kept.is_slow:
                # In a thread: a database takes a while, and other calls go on meanwhile.
                await event_loop.in_thread(self.kept.sending)
            elif self.kept is not None:
                self.kept.sending()
            received = await self._send()
            # Requests of fallbacks were sent all the same; `begin` has counted the first.
            if isinstance(received, turns.Received):
                self.bill.more(received.requests - 1)
            outcome = self._outcome_of(received)
            if isinstance(outcome, turns.Turn):
                self.bill.answered(outcome.usage, self.price(outcome))
        finally:
            # Does nothing if the answer has settled the reservation.
            self.bill.failed()
        return outcome

    def _outcome_of(
        self, received: turns.Received | turns.NothingReceivedError
    ) -> turns.Turn | Fault:
        gate, secrets = self.caller.gate, self.caller.endpoint.blanked
        caller = self.caller
        body = judge(received, now=caller.clock.now(), if_absent=caller.if_absent)
        if not (isinstance(received, turns.NothingReceivedError) and received.unreachable):
            gate.reached = True
        elif not gate.reached and isinstance(body, Fault) and self.time.total >= UNREACHABLE:
            # An address that never answered is more likely wrong than temporarily down.
            return attrs.evolve(body, error=errors.PermanentProviderError, mend=MEND, retried=False)
        try:
            return body if isinstance(body, Fault) else self.read(blanked(body, secrets))
        except turns.UnreadableTurnError as error:
            if error.billed is not None and error.billed.usage != NO_USAGE:
                self.bill.answered(error.billed.usage, self.price(error.billed))
            return unreadable(error)

    async def _send(self) -> turns.Received | turns.NothingReceivedError:
        seconds = min(self.caller.call_timeout, self.time.left_of_call)
        # If the run's deadline shortens the request, a timeout is not the provider's fault.
        last = self.time.left_of_run <= seconds
        seconds = min(seconds, self.time.left_of_run)
        try:
            async with asyncio.timeout(seconds + GRACE):
                return await self.caller.endpoint.send(self.body, seconds=seconds)
        except TimeoutError:
            nothing = turns.NothingReceivedError(f"nothing within {seconds:g} s", timed_out=True)
        except turns.NothingReceivedError as error:
            nothing = error
        if last and nothing.timed_out:
            self.time.check_run()
            raise errors.DeadlineExceededError("the deadline of the run has passed")
        return nothing


class Bill:
    """Reserves ``expected`` for the requests of one call and settles each exactly once.

    The event loop's thread writes it and the calling thread closes it, because a call may be
    interrupted while one of its requests is still running.
    """

    def __init__(self, budget: Budget | None, expected: Charge) -> None:
        self._budget = budget
        self._expected = expected
        self._requests = 0
        self._usage = NO_USAGE
        self._cost: Decimal | None = ZERO
        self._open = False
        self._closed = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Reserve the budget for the next request.

        Raises ``BudgetExhaustedError`` if none is left, and ``CancelledError`` if the caller has
        stopped waiting for the call.
        """
        with self._lock:
            # The interrupted caller has reported its requests; another would not be counted.
            if self._closed:
                raise asyncio.CancelledError
            if self._budget is not None:
                self._budget.reserve(self._expected)
            self._requests += 1
            self._open = True

    def more(self, requests: int) -> None:
        """Count requests that the endpoint sent on its own."""
        with self._lock:
            self._requests += requests

    def answered(self, usage: Usage, cost: Decimal | None) -> None:
        """Settle a request that was answered; ``cost`` is in US dollars, None if unknown."""
        with self._lock:
            if self._open:
                # The sum of all requests: an answer that could not be used may have been counted.
                self._usage = NO_USAGE if usage == NO_USAGE else self._usage + usage
                self._cost = None if cost is None or self._cost is None else self._cost + cost
                tokens = usage.input_tokens + usage.output_tokens
                actual = Charge(cost=cost or ZERO, tokens=tokens)
                # Without token counts the real price is unknown: charge the reservation.
                self._settle(self._expected if usage == NO_USAGE else actual)

    def failed(self) -> None:
        """Release the reservation of a request that has not been settled."""
        with self._lock:
            self._settle(NOTHING)

    def close(self, *, model: str, seconds: float, fault: str) -> ModelCalled:
        """Close the bill and return the event of the call, without any request still running."""
        with self._lock:
            self._closed = True
            self._settle(NOTHING)
        return ModelCalled(
            model=model,
            requests=self._requests,
            usage=self._usage,
            cost=self._cost,
            seconds=seconds,
            fault=fault,
        )

    def _settle(self, actual: Charge) -> None:
        if self._open and self._budget is not None:
            self._budget.settle(self._expected, actual)
        self._open = False
