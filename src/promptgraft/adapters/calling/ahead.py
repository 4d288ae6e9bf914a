"""Calls whose prompts begin alike: one goes ahead, so that the others find it in the cache."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from promptgraft.adapters.calling.faults import Fault
from promptgraft.adapters.calling.turns import Turn
from promptgraft.ground.clock import Clock

WAIT = 15.0
"""Longest wait for the call that goes ahead, in seconds: a prompt is cached when its answer
begins, and a model that thinks may take much longer to end it."""

_KEPT = 240.0
"""Seconds that a beginning is relied on after a call; providers keep it for five minutes."""
_MOST = 1_000

Work = Callable[[], Awaitable[Turn | Fault]]


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
    ) -> Turn | Fault:
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

    def _noted(self, beginning: str, outcome: Turn | Fault) -> Turn | Fault:
        if isinstance(outcome, Turn):
            self._cached[beginning] = self._clock.monotonic()
            self._cached.move_to_end(beginning)
            if len(self._cached) > _MOST:
                self._cached.popitem(last=False)
        return outcome
