"""Threads apart from those that answer requests: a few for what takes long, one for checks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from promptgraft.service.server.problems import ApiProblem

T = TypeVar("T")


class ReportPool:
    """Makes reports a few at a time, so that other requests find threads.

    Args:
        threads: how many are made at a time.
        waiting: how many more may wait; further ones are refused.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="reports")
        self._most, self._count = threads + waiting, 0

    async def run(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns, in a thread of the pool.

        Raises:
            ApiProblem: 429: too many wait.
        """
        # Only the event loop counts, so that no lock is needed.
        if self._count >= self._most:
            raise ApiProblem(
                429,
                f"{self._count} reports are being made or wait for that; ask again in a moment",
                headers={"Retry-After": "5"},
            )
        self._count += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, make)
        finally:
            self._count -= 1


class CheckThread:
    """Runs a check in a thread of its own; whoever asks meanwhile gets the same answer.

    Args:
        check: returns whether all is well.
        seconds: after which the answer is no.
    """

    def __init__(self, check: Callable[[], bool], *, seconds: float) -> None:
        self._check, self._seconds = check, seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="check")
        self._running: asyncio.Future[bool] | None = None

    async def is_well(self) -> bool:
        """Return the result of a check that has begun now or shortly before."""
        if self._running is None or self._running.done():
            loop = asyncio.get_running_loop()
            self._running = loop.run_in_executor(self._thread, self._check)
        try:
            # Shielded: the next one who asks waits for the same check.
            return await asyncio.wait_for(asyncio.shield(self._running), self._seconds)
        except TimeoutError:
            return False
