"""What a run has used so far: calls, tokens, money and time, by role and model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal

import attrs

from promptgraft.adapters.base import Usage
from promptgraft.errors import BudgetExhaustedError
from promptgraft.runtime.budget import ZERO, Budget, Charge
from promptgraft.targets.spending import MICROSECONDS, Role, Spending


@attrs.frozen(kw_only=True)
class LedgerEntry:
    """What a run has used of one model for one role.

    Attributes:
        role: what for.
        model: the model, in its provider's word.
        calls: how often it was called.
        retries: requests beyond the first of each call.
        usage: tokens.
        cost: US dollars of the calls whose price is known.
        unpriced_calls: calls whose price is not known.
        seconds: wall time of all calls together, waits included.
    """

    role: Role
    model: str
    calls: int
    retries: int
    usage: Usage
    cost: Decimal
    unpriced_calls: int
    seconds: float


class Ledger:
    """Counts every answer of a run, recorded before or made now.

    Args:
        rollout_budget: rollouts that the run may use; never exceeded.
        max_reflections: reflections that the run may use; None for no limit.
        budget: money and tokens that the run may use. Calls of this process are paid from it
            when they are made; the ledger pays those of earlier ones.
        whole: counts everything that this one counts, too; it knows what is used at the moment.

    Attributes:
        rollouts: rollouts so far.
        unscored: those of them that the provider failed.
        reflections: reflections so far.
        sums: the calls so far, by role and model.
    """

    def __init__(
        self,
        rollout_budget: int,
        *,
        max_reflections: int | None = None,
        budget: Budget | None = None,
        whole: Ledger | None = None,
    ) -> None:
        self._rollout_budget = rollout_budget
        self._max_reflections = max_reflections
        self._budget = Budget() if budget is None else budget
        self._whole = whole
        self.sums: dict[tuple[Role, str], Sum] = {}
        self.rollouts = 0
        self.unscored = 0
        self.reflections = 0

    def part(self) -> Ledger:
        """Return a ledger of a part of the run, which this one is the whole of."""
        return Ledger(
            self._rollout_budget,
            max_reflections=self._max_reflections,
            budget=self._budget,
            whole=self,
        )

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """What was used, by role and model."""
        ordered = sorted(self.sums.items(), key=lambda item: (tuple(Role).index(item[0][0]), item))
        return tuple(found.entry(role, model) for (role, model), found in ordered)

    @property
    def charge(self) -> Charge:
        """Money and tokens of all roles together."""
        charge = Charge()
        for found in self.sums.values():
            charge = charge.plus(found.charge)
        return charge

    @property
    def known_cost(self) -> Decimal | None:
        """US dollars of all roles together; None when the price of a call is not known."""
        if any(found.unpriced for found in self.sums.values()):
            return None
        return self.charge.cost

    def affords(self, rollouts: int) -> bool:
        """Tell whether the budget has room for that many more rollouts."""
        return self.rollouts + rollouts <= self._rollout_budget

    def check(self) -> None:
        """Do nothing while there is money.

        Raises:
            BudgetExhaustedError: ``max_cost`` or ``max_tokens`` is reached, or calls are made
                whose cost is not known although there is a limit for it.
        """
        if self._whole is not None:
            self._whole.check()
            return
        self._budget.check(self.charge)
        if self._budget.needs_prices:
            for (_, model), found in self.sums.items():
                if found.unpriced:
                    raise BudgetExhaustedError(
                        f"max_cost cannot be kept: the price of `{model}` is not known; give the "
                        "adapter its prices or leave max_cost out",
                        limit="max_cost",
                    )

    @property
    def limits_reflections(self) -> bool:
        """Whether the number of reflections has a limit."""
        return self._max_reflections is not None

    def allows_reflection(self, used: int) -> bool:
        """Tell whether one more may be used after so many."""
        return self._max_reflections is None or used < self._max_reflections

    def check_reflections(self, used: int) -> None:
        """Do nothing while one more reflection may be used after so many.

        Raises:
            BudgetExhaustedError: ``max_reflections`` is reached.
        """
        if not self.allows_reflection(used):
            raise BudgetExhaustedError(
                f"max_reflections: {used} of {self._max_reflections} are used",
                limit="max_reflections",
            )

    def count_rollouts(self, made: int, *, unscored: int) -> None:
        """Count rollouts, and those of them that the provider failed."""
        self.rollouts += made
        self.unscored += unscored
        if self._whole is not None:
            self._whole.count_rollouts(made, unscored=unscored)

    def count_reflection(self) -> None:
        """Count a reflection."""
        self.reflections += 1
        if self._whole is not None:
            self._whole.count_reflection()

    def count(self, spent: Iterable[Spending]) -> None:
        """Add calls that were made now."""
        self.add(_summed(spent))

    def add(self, sums: Mapping[tuple[Role, str], Sum]) -> None:
        """Add calls, by role and model."""
        self._take(sums)
        if self._whole is not None:
            self._whole.add(sums)

    def take(self, part: Ledger) -> None:
        """Add what another part of the same whole has counted."""
        self.rollouts += part.rollouts
        self.unscored += part.unscored
        self.reflections += part.reflections
        self._take(part.sums)

    def _take(self, sums: Mapping[tuple[Role, str], Sum]) -> None:
        for key, found in sums.items():
            known = self.sums.get(key)
            if known is None:
                known = self.sums[key] = Sum()
            known.take(found)

    def replay(self, spent: Iterable[Spending]) -> None:
        """Add calls that an earlier process made, and pay for them."""
        sums = _summed(spent)
        self.add(sums)
        for found in sums.values():
            self._budget.pay(found.charge)


class Sum:
    """Calls of one model for one role, added up in place."""

    __slots__ = (
        "cached",
        "calls",
        "cost",
        "microseconds",
        "received",
        "requests",
        "sent",
        "unpriced",
    )

    def __init__(self) -> None:
        self.calls = self.requests = self.unpriced = self.microseconds = 0
        self.sent = self.received = self.cached = 0
        self.cost = ZERO

    @property
    def charge(self) -> Charge:
        """Money and tokens; an unknown cost counts as none."""
        return Charge(cost=self.cost, tokens=self.sent + self.received)

    def add(self, spent: Spending) -> None:
        self.calls += spent.calls
        self.requests += spent.requests
        self.microseconds += spent.microseconds
        self.sent += spent.input_tokens
        self.received += spent.output_tokens
        self.cached += spent.cached_tokens
        if spent.cost is None:
            self.unpriced += spent.calls
        elif spent.cost:
            self.cost += spent.cost

    def take(self, other: Sum) -> None:
        self.calls += other.calls
        self.requests += other.requests
        self.microseconds += other.microseconds
        self.sent += other.sent
        self.received += other.received
        self.cached += other.cached
        self.unpriced += other.unpriced
        self.cost += other.cost

    def entry(self, role: Role, model: str) -> LedgerEntry:
        return LedgerEntry(
            role=role,
            model=model,
            calls=self.calls,
            retries=max(0, self.requests - self.calls),
            usage=Usage(
                input_tokens=self.sent, output_tokens=self.received, cached_tokens=self.cached
            ),
            cost=self.cost,
            unpriced_calls=self.unpriced,
            seconds=self.microseconds / MICROSECONDS,
        )


def _summed(spent: Iterable[Spending]) -> dict[tuple[Role, str], Sum]:
    sums: dict[tuple[Role, str], Sum] = defaultdict(Sum)
    for one in spent:
        sums[one.role, one.model].add(one)
    return sums


def money(amount: Decimal | None) -> str | None:
    """Return US dollars as documents have them: a decimal number as text."""
    return None if amount is None else f"{amount:f}"
