"""Where requests wait for their turn: one gate for each account and process.

Everything but :func:`gate_of` happens in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import attrs

from promptgraft.adapters.calling.limiter import Limiter, Ticket, Verdict
from promptgraft.adapters.calling.retrying import ANNOUNCED_WAIT, Announce
from promptgraft.clock import Clock


class PausedError(Exception):
    """The gate stays closed for so many seconds; ``refusal`` says why that is too long."""

    def __init__(self, seconds: float, refusal: str) -> None:
        super().__init__(refusal)
        self.seconds = seconds
        self.refusal = refusal


class Lane:
    """The requests of one adapter, of which ``width`` may be in flight; None for no limit."""

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
    """Lets requests through in the order of their arrival, as many as its limiter allows.

    ``reached`` tells whether a connection to the account's server was ever made.
    """

    def __init__(self, clock: Clock, limiter: Limiter | None = None) -> None:
        self._clock = clock
        self._limiter = limiter or Limiter()
        self._waiters: dict[_Waiter, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._announced = float("-inf")
        self.reached = False

    async def enter(
        self, lane: Lane, *, refusal: Callable[[float], str], announce: Announce
    ) -> Ticket:
        """Wait for a ticket, which must be given back with :meth:`leave`.

        ``refusal`` returns why a pause of so many seconds is too long, or an empty text.
        ``announce`` is called for a long pause that no other request has announced.

        Raises:
            PausedError: a pause is too long.
        """
        turn: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(lane, refusal, announce, turn)
        self._waiters[waiter] = None
        self._tell_of_pause((waiter,))
        self._admit()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave(turn.result(), lane, Verdict.SILENT)
            raise
        finally:
            self._waiters.pop(waiter, None)

    def leave(
        self, ticket: Ticket, lane: Lane, verdict: Verdict, *, wait: float | None = None
    ) -> None:
        """Give ``ticket`` back; ``wait`` is the seconds that a refusal asks for."""
        lane.in_flight -= 1
        self._limiter.finish(ticket, verdict, now=self._clock.monotonic(), wait=wait)
        if verdict is Verdict.LIMITED:
            self._tell_of_pause(tuple(self._waiters))
        self._admit()

    def _admit(self) -> None:
        """Admit the waiters that may start, and schedule the next look at the others."""
        now = self._clock.monotonic()
        for waiter in tuple(self._waiters):
            if waiter.turn.done() or waiter.lane.is_full:
                continue
            ticket = self._limiter.start(now)
            if ticket is None:
                self._come_back(self._limiter.closed(now))
                return
            waiter.lane.in_flight += 1
            del self._waiters[waiter]
            waiter.turn.set_result(ticket)

    def _come_back(self, seconds: float) -> None:
        if seconds > 0:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(seconds, self._admit)

    def _tell_of_pause(self, waiters: tuple[_Waiter, ...]) -> None:
        """Refuse the waiters that may not wait that long, and announce the pause to one other."""
        now = self._clock.monotonic()
        pause = self._limiter.pause(now)
        if pause <= 0:
            return
        staying = []
        for waiter in waiters:
            if waiter.turn.done():
                continue
            if refusal := waiter.refusal(pause):
                waiter.turn.set_exception(PausedError(pause, refusal))
            else:
                staying.append(waiter)
        if staying and pause > ANNOUNCED_WAIT and now + pause > self._announced + ANNOUNCED_WAIT:
            self._announced = now + pause
            staying[0].announce(pause, "rate limited; no request is started before")


_gates: dict[tuple[int, str], Gate] = {}


def gate_of(account: str, clock: Clock) -> Gate:
    """Return the gate that everybody in this process shares for ``account``."""
    # One step of a dictionary, so no lock, of which a forked process might get a taken copy.
    return _gates.setdefault((os.getpid(), account), Gate(clock))
