"""What a run has used so far: calls, tokens, money and time, by role and model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal

import attrs

from promptgraft.adapters.base import Usage
from promptgraft.adapters.calling.prices import MEND
from promptgraft.errors import BudgetExhaustedError
from promptgraft.evals.spending import MICROSECONDS, Role, Spending
from promptgraft.runtime.session import ZERO, Budget, Charge
from promptgraft.search.stopping import RunStoppedError, StopReason


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


@attrs.define(eq=False)
class Ledger:
    """Counts every answer of a run, recorded before or made now.

    Attributes:
        rollout_budget: rollouts that the run may use; never exceeded.
        max_reflections: reflections that the run may use; None for no limit.
        budget: money and tokens that the run may use. Calls of this process are paid from it
            when they are made; the ledger pays those of earlier ones.
        whole: counts everything that this one counts, too; it knows what is used at the moment.
        rollouts: rollouts so far.
        unscored: those of them that the provider failed.
        reflections: reflections so far.
        sums: the calls so far, by role and model.
    """

    rollout_budget: int
    max_reflections: int | None = attrs.field(default=None, kw_only=True)
    budget: Budget = attrs.field(factory=Budget, kw_only=True)
    whole: Ledger | None = attrs.field(default=None, kw_only=True)
    rollouts: int = attrs.field(default=0, init=False)
    unscored: int = attrs.field(default=0, init=False)
    reflections: int = attrs.field(default=0, init=False)
    sums: defaultdict[tuple[Role, str], Sum] = attrs.field(
        factory=lambda: defaultdict(Sum), init=False
    )

    def part(self) -> Ledger:
        """Return a ledger of a part of the run, which this one is the whole of."""
        return attrs.evolve(self, whole=self)

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """What was used, by role and model."""
        ordered = sorted(self.sums.items(), key=lambda item: (tuple(Role).index(item[0][0]), item))
        return tuple(found.entry(role, model) for (role, model), found in ordered)

    @property
    def charge(self) -> Charge:
        """Money and tokens of all roles together; unknown costs count as none."""
        found = self.sums.values()
        cost = sum((one.cost for one in found), ZERO)
        return Charge(cost=cost, tokens=sum(one.sent + one.received for one in found))

    @property
    def known_cost(self) -> Decimal | None:
        """US dollars of all roles together; None when the price of a call is not known."""
        if any(found.unpriced for found in self.sums.values()):
            return None
        return self.charge.cost

    def spent_on(self, role: Role) -> tuple[int, Decimal]:
        """Return calls and US dollars of a role; unknown costs count as none."""
        found = [one for (named, _), one in self.sums.items() if named is role]
        return sum(one.calls for one in found), sum((one.cost for one in found), ZERO)

    def check(self) -> None:
        """Do nothing while there is money.

        Raises:
            BudgetExhaustedError: ``max_cost`` or ``max_tokens`` is reached, or calls are made
                whose cost is not known although there is a limit for it.
        """
        whole = self.whole or self
        self.budget.check(whole.charge)
        if self.budget.needs_prices:
            for (_, model), found in whole.sums.items():
                if found.unpriced:
                    raise BudgetExhaustedError(
                        f"max_cost cannot be kept: the price of `{model}` is not known; {MEND}",
                        limit="max_cost",
                    )

    def count(
        self,
        spent: Sequence[Spending] = (),
        *,
        rollouts: int = 0,
        unscored: int = 0,
        reflections: int = 0,
        recorded: bool = False,
    ) -> None:
        """Add answers, and the calls that were made for them.

        Args:
            spent: the calls.
            rollouts: rollouts among the answers.
            unscored: those of them that the provider failed.
            reflections: reflections among the answers.
            recorded: whether an earlier process made the calls: they are paid for here.
        """
        self.rollouts += rollouts
        self.unscored += unscored
        self.reflections += reflections
        for one in spent:
            found = self.sums[one.role, one.model]
            found.calls += one.calls
            found.requests += one.requests
            found.microseconds += one.microseconds
            found.sent += one.input_tokens
            found.received += one.output_tokens
            found.cached += one.cached_tokens
            if one.cost is None:
                found.unpriced += one.calls
            elif one.cost:
                found.cost += one.cost
        if self.whole is not None:
            self.whole.count(spent, rollouts=rollouts, unscored=unscored, reflections=reflections)
        if recorded and spent:
            cost = sum((one.cost for one in spent if one.cost), ZERO)
            self.budget.pay(Charge(cost=cost, tokens=sum(one.tokens for one in spent)))

    def take(self, part: Ledger) -> None:
        """Add what another part of the same whole has counted."""
        self.rollouts += part.rollouts
        self.unscored += part.unscored
        self.reflections += part.reflections
        for key, found in part.sums.items():
            own = self.sums[key]
            for name in Sum.__slots__:
                setattr(own, name, getattr(own, name) + getattr(found, name))


@attrs.define(eq=False, weakref_slot=False)
class Sum:
    """Calls of one model for one role, added up in place."""

    calls: int = 0
    requests: int = 0
    unpriced: int = 0
    microseconds: int = 0
    sent: int = 0
    received: int = 0
    cached: int = 0
    cost: Decimal = ZERO

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


def money(amount: Decimal | None) -> str | None:
    """Return US dollars as documents have them: a decimal number as text."""
    return None if amount is None else f"{amount:f}"


@attrs.define(eq=False)
class RolloutBudget:
    """What the budget pays for, besides everything that is reserved.

    Attributes:
        ledger: what the parts of the run have used that are taken account of.
        reserve: rollouts that are kept for the end of the run.
        under_way: rollouts that are kept for branches under way.
    """

    _ledger: Ledger
    _reserve: int = attrs.field(default=0, kw_only=True)
    under_way: int = attrs.field(default=0, init=False)

    @property
    def used(self) -> int:
        """Rollouts used so far."""
        return self._ledger.rollouts

    @property
    def kept(self) -> int:
        """Rollouts that are kept for the end of the run at this time."""
        return self._reserve

    def affords(self, rollouts: int) -> bool:
        """Tell whether there is room for that many more, besides everything that is kept."""
        kept = self._reserve + self.under_way
        return self._ledger.rollouts + rollouts + kept <= self._ledger.rollout_budget

    def require(self, rollouts: int, what: str) -> None:
        """Do nothing while there is room for that many more, besides everything that is kept.

        Raises:
            RunStoppedError: there is none, so that ``what`` cannot be done.
        """
        if not self.affords(rollouts):
            raise RunStoppedError(
                StopReason.BUDGET, f"{what}, which takes {rollouts} rollouts, more than are left"
            )

    def release(self, rollouts: int) -> None:
        """Make rollouts available that were kept for the end of the run."""
        self._reserve -= rollouts
