"""What one call has used: requests, tokens, money."""

from __future__ import annotations

import asyncio
import threading
from decimal import Decimal

from promptgraft.adapters.base import NO_USAGE, ModelCalled, Usage
from promptgraft.runtime.budget import NOTHING, ZERO, Budget, Charge


class Bill:
    """Reserves and settles the requests of one call, each exactly once.

    Written in the thread of the event loop, closed in the thread that called: a call may be
    broken off while a request of it still runs.

    Args:
        budget: what is paid from; None for no limit.
        expected: what is set aside for a request.
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
        """Set money aside for a request that is sent now.

        Raises:
            BudgetExhaustedError: there is none left.
            CancelledError: nobody waits for the call any more.
        """
        with self._lock:
            if self._closed:
                raise asyncio.CancelledError
            if self._budget is not None:
                self._budget.reserve(self._expected)
            self._requests += 1
            self._open = True

    def answered(self, usage: Usage, cost: Decimal | None) -> None:
        """End the request with an answer; ``cost`` is in US dollars, None when unknown."""
        with self._lock:
            if self._open:
                self._usage = usage
                self._cost = cost
                tokens = usage.input_tokens + usage.output_tokens
                self._settle(Charge(cost=cost or ZERO, tokens=tokens))

    def failed(self) -> None:
        """End the request without an answer, unless it has ended."""
        with self._lock:
            self._settle(NOTHING)

    def close(self, *, model: str, seconds: float, fault: str) -> ModelCalled:
        """Return the account of the call; whatever still runs is no longer part of it."""
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
