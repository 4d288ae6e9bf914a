"""What a run has used so far: calls, tokens, money and time, by role and model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from enum import StrEnum

import attrs
import msgspec

from promptgraft.adapters.base import NO_USAGE, ModelCalled, PromptExecuted, Usage
from promptgraft.errors import BudgetExhaustedError, JournalCorruptError
from promptgraft.runtime.budget import ZERO, Budget, Charge
from promptgraft.serde import Json

_MICROSECONDS = 1_000_000


class Role(StrEnum):
    """What a call was for."""

    TASK = "task"
    JUDGE = "judge"
    REFLECTION = "reflection"


@attrs.frozen(kw_only=True)
class Spending:
    """What the calls of one model took that were made for one answer.

    Attributes:
        role: what they were for.
        model: the model, in its provider's word.
        calls: how many there were.
        requests: requests that were sent for them, retries included.
        usage: tokens.
        cost: US dollars; None when the price is not known.
        microseconds: wall time, waits included. An integer, so that a sum does not depend on
            the order in which answers arrive.
    """

    role: Role
    model: str
    calls: int = 1
    requests: int = 1
    usage: Usage = NO_USAGE
    cost: Decimal | None
    microseconds: int = 0

    @property
    def charge(self) -> Charge:
        """Money and tokens; an unknown cost counts as none."""
        tokens = self.usage.input_tokens + self.usage.output_tokens
        return Charge(cost=self.cost or ZERO, tokens=tokens)


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


def spent_on(role: Role, events: Iterable[object], adapter: str) -> tuple[Spending, ...]:
    """Return what the calls took that were made for one answer.

    Args:
        role: what the calls were for.
        events: those of the session in which they were made.
        adapter: the identity of what made them. When it tells of no calls but has answered,
            it has made one at a price that nobody knows.
    """
    spent = []
    usage = None
    for event in events:
        if isinstance(event, ModelCalled) and event.requests:
            spent.append(_spending_of(role, event))
        elif isinstance(event, PromptExecuted):
            usage = event.response.usage
    if not spent and usage is not None:
        spent = [Spending(role=role, model=adapter, usage=usage, cost=None)]
    return tuple(spent)


def _spending_of(role: Role, call: ModelCalled) -> Spending:
    return Spending(
        role=role,
        model=call.model,
        requests=call.requests,
        usage=call.usage,
        cost=call.cost,
        microseconds=round(call.seconds * _MICROSECONDS),
    )


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
        return Charge(
            cost=sum((found.cost for found in self.sums.values()), ZERO),
            tokens=sum(found.sent + found.received for found in self.sums.values()),
        )

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

    def count_rollout(self, *, scored: bool) -> None:
        """Count a rollout."""
        self.rollouts += 1
        self.unscored += not scored
        if self._whole is not None:
            self._whole.count_rollout(scored=scored)

    def count_reflection(self) -> None:
        """Count a reflection."""
        self.reflections += 1
        if self._whole is not None:
            self._whole.count_reflection()

    def count(self, spent: Sequence[Spending]) -> None:
        """Add calls that were made now."""
        for one in spent:
            self._sum(one.role, one.model).add(one)
        if self._whole is not None:
            self._whole.count(spent)

    def take(self, part: Ledger) -> None:
        """Add what another part of the same whole has counted."""
        self.rollouts += part.rollouts
        self.unscored += part.unscored
        self.reflections += part.reflections
        for (role, model), found in part.sums.items():
            self._sum(role, model).take(found)

    def _sum(self, role: Role, model: str) -> Sum:
        found = self.sums.get((role, model))
        if found is None:
            found = self.sums[role, model] = Sum()
        return found

    def replay(self, spent: Sequence[Spending]) -> None:
        """Add calls that an earlier process made, and pay for them."""
        self.count(spent)
        for one in spent:
            self._budget.pay(one.charge)


class Sum:
    """Calls of one model for one role.

    Added up in place: replaying a long run does it for every answer.
    """

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

    def add(self, spent: Spending) -> None:
        self.calls += spent.calls
        self.requests += spent.requests
        self.microseconds += spent.microseconds
        self.sent += spent.usage.input_tokens
        self.received += spent.usage.output_tokens
        self.cached += spent.usage.cached_tokens
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
            seconds=self.microseconds / _MICROSECONDS,
        )


def money(amount: Decimal | None) -> str | None:
    """Return US dollars as documents have them: a decimal number as text."""
    return None if amount is None else f"{amount:f}"


def spent_to_json(spent: Iterable[Spending]) -> Json:
    """Return what the journal keeps of calls."""
    return [
        [
            one.role,
            one.model,
            one.calls,
            one.requests,
            one.usage.input_tokens,
            one.usage.output_tokens,
            one.usage.cached_tokens,
            None if one.cost is None else str(one.cost),
            one.microseconds,
        ]
        for one in spent
    ]


class KeptSpending(msgspec.Struct, array_like=True, frozen=True):
    """What the journal keeps of :class:`Spending`."""

    role: Role
    model: str
    calls: int
    requests: int
    sent: int
    received: int
    cached: int
    cost: str | None
    microseconds: int

    def spending(self) -> Spending:
        """Return it as the ledger counts it.

        Raises:
            ArithmeticError: the cost is no number.
        """
        return Spending(
            role=self.role,
            model=self.model,
            calls=self.calls,
            requests=self.requests,
            usage=NO_USAGE
            if self.sent == self.received == self.cached == 0
            else Usage(
                input_tokens=self.sent, output_tokens=self.received, cached_tokens=self.cached
            ),
            cost=None if self.cost is None else ZERO if self.cost == "0" else Decimal(self.cost),
            microseconds=self.microseconds,
        )


def spent_from_json(plain: Json, key: str) -> tuple[Spending, ...]:
    """Return the calls that the journal keeps under ``key``.

    Raises:
        JournalCorruptError: it keeps something else.
    """
    try:
        return tuple([one.spending() for one in msgspec.convert(plain, list[KeptSpending])])
    except (msgspec.ValidationError, ArithmeticError):
        raise JournalCorruptError(
            f"the journal's record `{key}` holds no calls where they should be; restore the journal"
        ) from None
