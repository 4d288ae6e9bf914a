"""Providers and workers in virtual time, for tests of the limiter."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from functools import partial
from typing import Protocol

import attrs

from promptgraft.adapters.calling.limiter import Limiter, Ticket, Verdict


class Provider(Protocol):
    """Decides when a request arrives whether it is served."""

    def accept(self, now: float) -> bool: ...

    def end(self) -> None: ...

    def retry_after(self, now: float) -> float | None: ...


@attrs.define
class Concurrent:
    """Refuses what exceeds ``most`` requests at once."""

    most: int
    wait: float | None = None
    active: int = 0

    def accept(self, now: float) -> bool:
        if self.active >= self.most:
            return False
        self.active += 1
        return True

    def end(self) -> None:
        self.active -= 1

    def retry_after(self, now: float) -> float | None:
        return self.wait


@attrs.define
class Bucket:
    """Serves ``rate`` requests a second, up to ``size`` of them at once."""

    rate: float
    size: float
    told: bool = True
    tokens: float = attrs.field(init=False, default=attrs.Factory(lambda self: self.size, True))
    seen: float = 0.0

    def accept(self, now: float) -> bool:
        self.tokens = min(self.size, self.tokens + (now - self.seen) * self.rate)
        self.seen = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    def end(self) -> None:
        pass

    def retry_after(self, now: float) -> float | None:
        return (1 - self.tokens) / self.rate if self.told else None


@attrs.frozen
class Ended:
    """A request is over: when it began, whether it was served, and the limit afterwards."""

    began: float
    served: bool
    limit: int


@attrs.define
class World:
    """Workers who always have a next request, before one provider.

    A request takes ``latency``, give or take the share ``jitter`` of it; each way takes ``way``
    seconds of it, and a refusal takes only the two ways.
    """

    provider: Provider
    workers: int = 128
    seed: int = 0
    latency: float = 1.0
    jitter: float = 0.5
    way: float = 0.01
    limiter: Limiter = attrs.field(factory=Limiter)
    ended: list[Ended] = attrs.field(factory=list)
    now: float = 0.0
    _began: int = 0
    _events: list[tuple[float, int, Callable[[], None]]] = attrs.field(factory=list)
    _count: itertools.count[int] = attrs.field(factory=itertools.count)
    _random: random.Random = attrs.field(
        init=False, default=attrs.Factory(lambda self: random.Random(self.seed), True)
    )

    def run(self, requests: int) -> list[Ended]:
        """Go on until so many further requests have ended, and return them."""
        first = len(self.ended)
        while len(self.ended) < first + requests:
            self._start()
            self.now, _, happen = heapq.heappop(self._events)
            happen()
        return self.ended[first : first + requests]

    def _start(self) -> None:
        while self.limiter.in_flight < self.workers:
            ticket = self.limiter.start(self.now)
            if ticket is None:
                break
            self._at(self.way, partial(self._arrive, ticket, self.now))
        closed = self.limiter.closed(self.now)
        if closed > 0:
            self._at(closed, lambda: None)

    def _arrive(self, ticket: Ticket, began: float) -> None:
        if self.provider.accept(self.now):
            seconds = max(
                0.0,
                self.latency * self._random.uniform(1 - self.jitter, 1 + self.jitter)
                - 2 * self.way,
            )
            self._at(seconds, lambda: self._serve(ticket, began))
        else:
            wait = self.provider.retry_after(self.now)
            self._at(self.way, lambda: self._end(ticket, began, Verdict.LIMITED, wait))

    def _serve(self, ticket: Ticket, began: float) -> None:
        self.provider.end()
        self._at(self.way, lambda: self._end(ticket, began, Verdict.CLEAN, None))

    def _end(self, ticket: Ticket, began: float, verdict: Verdict, wait: float | None) -> None:
        self.limiter.finish(ticket, verdict, now=self.now, wait=wait)
        served = verdict is Verdict.CLEAN
        self.ended.append(Ended(began, served, self.limiter.limit))

    def _at(self, seconds: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._count), happen))
