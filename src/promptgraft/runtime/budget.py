"""Money and tokens that a run may use, watched call by call."""

from __future__ import annotations

import threading
from decimal import Decimal

import attrs

from promptgraft.errors import BudgetExhaustedError
from promptgraft.strict.checks import COUNT, DOLLARS

ZERO = Decimal(0)


@attrs.frozen(kw_only=True)
class Charge:
    """What calls cost: US dollars, and tokens sent and received."""

    cost: Decimal = ZERO
    tokens: int = 0

    def __add__(self, other: Charge) -> Charge:
        return Charge(cost=self.cost + other.cost, tokens=self.tokens + other.tokens)

    def __sub__(self, other: Charge) -> Charge:
        return Charge(cost=self.cost - other.cost, tokens=self.tokens - other.tokens)


NOTHING = Charge()


class Budget:
    """Lets calls begin while there is money; safe to share between threads.

    Money is reserved before a call begins and paid when it ends. What a call will cost is
    not known before, so the limits may be exceeded by the calls in flight, never by more.

    Args:
        max_cost: US dollars, above 0; None for no limit.
        max_tokens: tokens sent and received, at least 1; None for no limit.

    Raises:
        ConfigError: a limit is out of range.
    """

    def __init__(self, *, max_cost: Decimal | None = None, max_tokens: int | None = None) -> None:
        DOLLARS.or_none.hold("max_cost", max_cost)
        COUNT.or_none.hold("max_tokens", max_tokens)
        self._max_cost = max_cost
        self._max_tokens = max_tokens
        self.paid = NOTHING  # by calls that have ended
        self._reserved = NOTHING
        self._lock = threading.Lock()

    @property
    def is_limited(self) -> bool:
        return self._max_cost is not None or self._max_tokens is not None

    @property
    def needs_prices(self) -> bool:
        """Whether a call of unknown cost would break a limit unnoticed."""
        return self._max_cost is not None

    def check(self, used: Charge) -> None:
        """Raise ``BudgetExhaustedError`` if ``used``, of all sessions, has reached a limit."""
        if self._max_cost is not None and used.cost >= self._max_cost:
            raise BudgetExhaustedError(
                f"max_cost: {used.cost:.4f} of {self._max_cost} US dollars are used or reserved",
                limit="max_cost",
            )
        if self._max_tokens is not None and used.tokens >= self._max_tokens:
            raise BudgetExhaustedError(
                f"max_tokens: {used.tokens} of {self._max_tokens} tokens are used or reserved",
                limit="max_tokens",
            )

    def reserve(self, expected: Charge) -> None:
        """Set aside the least that a call will cost.

        Raises ``BudgetExhaustedError`` when what is paid and reserved has reached a limit.
        """
        with self._lock:
            self.check(self.paid + self._reserved)
            self._reserved += expected

    def settle(self, expected: Charge, actual: Charge) -> None:
        """End a reservation and pay what the call has cost."""
        with self._lock:
            self._reserved -= expected
            self.paid += actual

    def pay(self, actual: Charge) -> None:
        """Pay for a call that nothing was reserved for, such as one of an earlier process."""
        with self._lock:
            self.paid += actual
