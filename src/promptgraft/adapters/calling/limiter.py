"""How many requests an account may have in flight, and the queue in which they wait.

The limiter learns the number from responses. It is a state machine without a clock: every call
passes the time. ``specs/adapters.md`` describes its algorithm, constants and guarantees. The gate,
one per account and process, admits requests; it belongs to the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from enum import StrEnum

import attrs

from promptgraft.adapters.calling.retrying import ANNOUNCED_WAIT, Announce
from promptgraft.ground.clock import Clock

START = 4
"""Initial number of requests in flight."""

FIRST_PATIENCE = 16
LONGEST_PATIENCE = 256
"""Clean responses before a probe; doubled each time that a probe is refused."""

CUTS = (1.0, 0.95, 0.85, 0.7)
"""Factors of the limit at the first cut and at consecutive ones; the last applies to all further
cuts. Every cut takes at least 1."""

FIRST_PAUSE = 0.1
LONGEST_OWN_PAUSE = 10.0
"""Seconds without new requests after a refusal, unless it asks for more; doubled with each
consecutive cut."""

LONGEST_PAUSE = 3600.0
"""Longest pause in seconds, whatever a refusal asks for."""

PACE = 0.7
"""Share of the mean spacing that starts of requests keep after the first refusal: a provider that
counts requests per second refuses bursts, however few are in flight."""

REST = 10.0
"""Seconds without a probe, for each second of the last pause."""


class Verdict(StrEnum):
    """What a finished request says about the number of requests in flight."""

    CLEAN = "clean"
    LIMITED = "limited"
    SILENT = "silent"


@attrs.frozen(kw_only=True)
class Ticket:
    """Permission to have one request in flight.

    ``in_flight`` is the number of requests when it was issued, including its own. A ``probe`` is
    one above the limit, to test whether the limit still holds.
    """

    serial: int
    began: float
    in_flight: int
    probe: bool


@attrs.define
class _Growth:
    """How the limit grows once slow start is over: by a probe, then in doubling steps.

    Attributes:
        clean: clean responses under full load since the last change.
        patience: clean responses before the next probe.
        is_probing: whether a probe is in flight.
        step: by how much the limit grows next; 0 when a probe must come first.
        proven: the limit before it began to grow.
        rest_ends: when probes may begin again.
    """

    clean: int = 0
    patience: int = FIRST_PATIENCE
    is_probing: bool = False
    step: int = 0
    proven: int = START
    rest_ends: float = 0.0


@attrs.define
class _Refusals:
    """The present episode of refusals, which one overload has caused, and the ones before it.

    Attributes:
        episodes: how many there were; slow start lasts until the first.
        ends: the first serial that does not belong to the present one.
        floor: the limit does not fall below this in the present one.
        streak: episodes without a clean round in between.
        calm: clean responses since the present one.
        pause: seconds without new requests after a refusal, unless it asks for more.
    """

    episodes: int = 0
    ends: int = 0
    floor: int = 1
    streak: int = 0
    calm: int = 0
    pause: float = FIRST_PAUSE


class Limiter:
    """Issues tickets and learns from the verdicts on them; not thread-safe.

    Times are seconds on any monotonic clock. ``most`` is a hard upper bound, None for none.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._limit = START
        self._in_flight = 0
        self._serial = 0
        self._growth = _Growth()
        self._refusals = _Refusals()
        self._pause_ends = float("-inf")
        self._asked_ends = float("-inf")
        self._seconds = 0.0  # of a clean request, smoothed; they set the distance between starts
        self._next_start = float("-inf")

    @property
    def limit(self) -> int:
        """Requests that may be in flight, not counting a single probe; at least 1."""
        return self._limit

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def pause(self, now: float) -> float:
        """Return the seconds until the pause ends; 0 if there is none."""
        return max(0.0, self._pause_ends - now)

    def asked(self, now: float) -> float:
        """Return the seconds that refusals ask for, be they longer than the pause."""
        return max(0.0, self._pause_ends - now, self._asked_ends - now)

    def closed(self, now: float) -> float:
        """Return the seconds until a request may start if a slot is free."""
        return max(0.0, self._pause_ends - now, self._next_start - now)

    def start(self, now: float) -> Ticket | None:
        """Return a ticket, or None if no request may start now."""
        if self.closed(now) > 0 or (self._most is not None and self._in_flight >= self._most):
            return None
        probe = self._in_flight >= self._limit
        if probe and not self._may_probe(now):
            return None
        self._growth.is_probing = self._growth.is_probing or probe
        self._in_flight += 1
        self._serial += 1
        if self._refusals.episodes > 0:
            self._next_start = now + PACE * self._seconds / self._limit
        return Ticket(serial=self._serial, began=now, in_flight=self._in_flight, probe=probe)

    def finish(
        self, ticket: Ticket, verdict: Verdict, *, now: float, wait: float | None = None
    ) -> None:
        """Take ``ticket`` back; ``wait`` is the seconds that a refusal asks for."""
        # Only responses under full load show that the limit could be higher.
        full = self._in_flight >= self._limit - (
            self._limit // 8 if self._refusals.episodes > 0 else 0
        )
        self._in_flight -= 1
        if ticket.probe:
            self._growth.is_probing = False
        if verdict is Verdict.CLEAN:
            # A plain mean at first, then a moving average over about 20 requests.
            self._seconds += ((now - ticket.began) - self._seconds) / min(ticket.serial, 20)
        if verdict is Verdict.LIMITED:
            self._cut(ticket, now=now, wait=wait or 0.0)
        elif verdict is Verdict.CLEAN and ticket.serial >= self._refusals.ends:
            self._grow(ticket, full=full)

    def _may_probe(self, now: float) -> bool:
        growth = self._growth
        ready = growth.clean >= growth.patience and now >= growth.rest_ends
        alone = self._in_flight == self._limit and not growth.is_probing
        return ready and alone and self._refusals.episodes > 0 and growth.step == 0

    def _grow(self, ticket: Ticket, *, full: bool) -> None:
        growth, refusals = self._growth, self._refusals
        refusals.calm += 1
        if refusals.calm >= self._limit:
            refusals.streak = 0
        if ticket.probe:
            growth.proven = self._limit
            self._raise_limit(1)
        elif full and refusals.episodes == 0:
            # Slow start: one more per clean response doubles the limit each round.
            self._limit += 1
        elif full:
            growth.clean += 1
            if growth.step > 0 and growth.clean >= self._limit:
                self._raise_limit(growth.step)

    def _raise_limit(self, step: int) -> None:
        self._limit += step
        self._growth.step = min(2 * step, self._limit)
        self._growth.clean = 0

    def _cut(self, ticket: Ticket, *, now: float, wait: float) -> None:
        refusals = self._refusals
        if ticket.serial >= refusals.ends:
            self._begin_episode(ticket)
        # Refused with so many others in flight: the provider's limit cannot be higher than that.
        most = ticket.in_flight - 1
        if refusals.episodes == 1:
            # Slow start overshot: what is in flight was either admitted or will be refused as well.
            most = min(most, self._in_flight)
        self._limit = max(refusals.floor, min(self._limit, most))
        pause = min(max(wait, refusals.pause), LONGEST_PAUSE)
        self._pause_ends = max(self._pause_ends, now + pause)
        self._asked_ends = max(self._asked_ends, now + wait)
        self._growth.rest_ends = max(self._growth.rest_ends, now + REST * pause)

    def _begin_episode(self, ticket: Ticket) -> None:
        growth, refusals = self._growth, self._refusals
        refusals.ends = self._serial + 1
        refusals.floor = max(1, self._limit // 2)
        refusals.pause = min(LONGEST_OWN_PAUSE, FIRST_PAUSE * 2.0 ** min(refusals.streak, 20))
        if not ticket.probe:
            cut = CUTS[min(refusals.streak, len(CUTS) - 1)]
            self._limit = max(refusals.floor, min(self._limit - 1, int(self._limit * cut)))
        vain = ticket.probe or (growth.step > 0 and self._limit <= growth.proven + 1)
        growth.patience = min(2 * growth.patience, LONGEST_PATIENCE) if vain else FIRST_PATIENCE
        refusals.episodes += 1
        growth.step = growth.clean = refusals.calm = 0
        refusals.streak += 1


class PausedError(Exception):
    """The provider asks to wait ``seconds``; ``refusal`` says why that is too long."""

    def __init__(self, seconds: float, refusal: str) -> None:
        super().__init__(refusal)
        self.seconds = seconds
        self.refusal = refusal


class Lane:
    """The requests of one adapter; at most ``width`` may be in flight, None for no limit."""

    def __init__(self, width: int | None = None) -> None:
        self._width = width
        self.in_flight = 0

    @property
    def is_full(self) -> bool:
        return self._width is not None and self.in_flight >= self._width


@attrs.frozen(eq=False)
class _Waiter:
    lane: Lane
    refusal: Callable[[float], str]
    announce: Announce
    turn: asyncio.Future[Ticket]


class Gate:
    """Admits requests in order of arrival, as many as its limiter allows.

    ``reached`` is whether the account's server has ever been connected to.
    """

    def __init__(self, clock: Clock, limiter: Limiter | None = None) -> None:
        self._clock = clock
        self._limiter = limiter or Limiter()
        # A dictionary for its order and for removal in constant time; waiters compare by identity.
        self._waiters: dict[_Waiter, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._announced = float("-inf")
        self.reached = False

    async def enter(
        self, lane: Lane, *, refusal: Callable[[float], str], announce: Announce
    ) -> Ticket:
        """Wait for a ticket, which must be returned with :meth:`leave`.

        ``refusal`` returns why a wait of so many seconds is too long, or an empty text; a reason
        raises ``PausedError``. ``announce`` is called for a long pause that no other request has
        announced.
        """
        turn: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(lane, refusal, announce, turn)
        self._waiters[waiter] = None
        self._apply_pause((waiter,))
        self._admit()
        try:
            return await turn
        except asyncio.CancelledError:
            # The ticket may have been issued just before the cancellation: do not leak its slot.
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave(turn.result(), lane, Verdict.SILENT)
            raise
        finally:
            self._waiters.pop(waiter, None)

    def leave(
        self, ticket: Ticket, lane: Lane, verdict: Verdict, *, wait: float | None = None
    ) -> None:
        lane.in_flight -= 1
        self._limiter.finish(ticket, verdict, now=self._clock.monotonic(), wait=wait)
        if verdict is Verdict.LIMITED:
            self._apply_pause(tuple(self._waiters))
        self._admit()

    def _admit(self) -> None:
        """Admit the waiters that may start, and schedule the next attempt."""
        now = self._clock.monotonic()
        for waiter in tuple(self._waiters):
            # A refused or cancelled waiter is still here until its task has run.
            if waiter.turn.done() or waiter.lane.is_full:
                continue
            ticket = self._limiter.start(now)
            if ticket is None:
                self._schedule_admission(self._limiter.closed(now))
                return
            waiter.lane.in_flight += 1
            del self._waiters[waiter]
            waiter.turn.set_result(ticket)

    def _schedule_admission(self, seconds: float) -> None:
        # At 0 all slots are taken: the next request to leave admits another.
        if seconds > 0:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(seconds, self._admit)

    def _apply_pause(self, waiters: tuple[_Waiter, ...]) -> None:
        """Refuse the waiters that may not wait for the pause; let one of the others announce it."""
        now = self._clock.monotonic()
        pause, requested_pause = self._limiter.pause(now), self._limiter.asked(now)
        if pause <= 0:
            return
        staying = []
        for waiter in waiters:
            if waiter.turn.done():
                continue
            if refusal := waiter.refusal(requested_pause):
                waiter.turn.set_exception(PausedError(requested_pause, refusal))
            else:
                staying.append(waiter)
        if staying and pause > ANNOUNCED_WAIT and now + pause > self._announced + ANNOUNCED_WAIT:
            self._announced = now + pause
            # One announcement for all waiters: they share the pause.
            staying[0].announce(pause, "rate limited; no request is started before")


_gates: dict[tuple[int, str], Gate] = {}
_shares: dict[int, int] = {}
"""Hard limits on requests per account, by process id."""


def share_accounts(most: int) -> None:
    """Limit this process to ``most`` requests in flight per account.

    For processes that share accounts with others. Call before the first request.
    """
    _shares[os.getpid()] = most


def gate_of(account: str, clock: Clock) -> Gate:
    """Return the gate of ``account`` in this process."""
    # Atomic dictionary operations instead of a lock, which a fork might copy while it is held.
    # The gates of a parent process, copied by a fork, belong to its event loop.
    key = process, _ = os.getpid(), account
    gate = _gates.get(key)
    return gate or _gates.setdefault(key, Gate(clock, Limiter(_shares.get(process))))
