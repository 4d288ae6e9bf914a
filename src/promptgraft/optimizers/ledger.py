"""What a run has used so far: calls, tokens, money and time, by role and model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum

import attrs
import msgspec

from promptgraft.adapters.base import ModelCalled, PromptExecuted, Usage
from promptgraft.errors import BudgetExhaustedError, JournalCorruptError
from promptgraft.runtime.budget import ZERO, Budget, Charge
from promptgraft.serde import Json

_MICROSECONDS = 1_000_000


class Role(StrEnum):
    """What a call was for."""

    TASK = "task"
    JUDGE = "judge"
    REFLECTION = "reflection"


class Spending(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What the calls of one model took that were made for one answer.

    The journal keeps one as the list of its fields: replaying a long run reads one for every
    answer.

    Attributes:
        role: what they were for.
        model: the model, in its provider's word.
        calls: how many there were.
        requests: requests that were sent for them, retries included.
        input_tokens: tokens sent, cached ones included.
        output_tokens: tokens received.
        cached_tokens: those of the sent tokens that the provider read from its cache.
        cost: US dollars; None when the price is not known.
        microseconds: wall time, waits included. An integer, so that a sum does not depend on
            the order in which answers arrive.
    """

    role: Role
    model: str
    calls: int = 1
    requests: int = 1
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: Decimal | None
    microseconds: int = 0

    @property
    def tokens(self) -> int:
        """Tokens sent and received."""
        return self.input_tokens + self.output_tokens


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
        spent = [_spending(role, adapter, usage, cost=None)]
    return tuple(spent)


def _spending_of(role: Role, call: ModelCalled) -> Spending:
    return _spending(
        role,
        call.model,
        call.usage,
        cost=call.cost,
        requests=call.requests,
        microseconds=round(call.seconds * _MICROSECONDS),
    )


def _spending(
    role: Role,
    model: str,
    usage: Usage,
    *,
    cost: Decimal | None,
    requests: int = 1,
    microseconds: int = 0,
) -> Spending:
    return Spending(
        role=role,
        model=model,
        requests=requests,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        cost=cost,
        microseconds=microseconds,
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
            seconds=self.microseconds / _MICROSECONDS,
        )


def _summed(spent: Iterable[Spending]) -> dict[tuple[Role, str], Sum]:
    sums: dict[tuple[Role, str], Sum] = defaultdict(Sum)
    for one in spent:
        sums[one.role, one.model].add(one)
    return sums


def money(amount: Decimal | None) -> str | None:
    """Return US dollars as documents have them: a decimal number as text."""
    return None if amount is None else f"{amount:f}"


def spent_to_json(spent: Sequence[Spending]) -> Json:
    """Return what the journal keeps of calls."""
    return [msgspec.to_builtins(one) for one in spent]


def spent_from_json(plain: Json, key: str) -> tuple[Spending, ...]:
    """Return the calls that the journal keeps under ``key``.

    Raises:
        JournalCorruptError: it keeps something else.
    """
    try:
        spent = msgspec.convert(plain, tuple[Spending, ...])
        # So that nothing but what was written is read: no number for a text, no other length.
        if spent_to_json(spent) == plain:
            return spent
    except msgspec.ValidationError:
        pass
    raise JournalCorruptError(
        f"the journal's record `{key}` holds no calls where they should be; restore the journal"
    )
