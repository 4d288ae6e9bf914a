"""The ledger of a run: calls, tokens, money and time used so far, by role and model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal

import attrs

from promptgraft.adapters.base import Usage
from promptgraft.errors import BudgetExhaustedError
from promptgraft.evals.spending import MICROSECONDS, Role, Spending
from promptgraft.ground.text import counted
from promptgraft.runtime.session import ZERO, Budget, Charge
from promptgraft.search.stopping import RunStoppedError, StopReason


@attrs.frozen(kw_only=True)
class LedgerEntry:
    """What a run has used of one model for one role.

    Attributes:
        role: the purpose of the calls.
        model: the model, as its provider names it.
        calls: number of calls.
        retries: requests beyond the first of each call.
        usage: tokens.
        cost: US dollars of the calls whose price is known.
        unpriced_calls: calls whose price is not known.
        seconds: total duration of all calls, including waits.
    """

    role: Role
    model: str
    calls: int
    retries: int
    usage: Usage
    cost: Decimal
    unpriced_calls: int
    seconds: float

    @property
    def is_uncounted(self) -> bool:
        """Whether calls that are not free reported no tokens, so that these are unknown."""
        tokens = self.usage.input_tokens + self.usage.output_tokens
        return not tokens and bool(self.unpriced_calls or self.cost)

    @property
    def tokens(self) -> tuple[int | None, int | None]:
        """Tokens in and out; None if they are unknown."""
        if self.is_uncounted:
            return None, None
        return self.usage.input_tokens, self.usage.output_tokens


def unanswered_in(ledger: Iterable[LedgerEntry]) -> str:
    """Return a sentence on the requests of a ledger that were not answered; empty for none."""
    requests = sum(entry.calls for entry in ledger if entry.role is Role.UNANSWERED)
    if not requests:
        return ""
    were = "was" if requests == 1 else "were"
    return (
        f"{counted(requests, 'request')} {were} sent and not answered, because the run was killed "
        "or stopped; the ledger has the most that can have been charged"
    )


@attrs.define(eq=False)
class Ledger:
    """Counts every answer of a run, whether it is recorded or new.

    Attributes:
        rollout_budget: rollouts that the run may use; never exceeded.
        max_reflections: reflections that the run may use; None for no limit.
        budget: money and tokens that the run may use. Calls of this process are charged when
            they are made; the ledger charges those of earlier processes.
        whole: the ledger of the whole run, which counts everything that this one counts.
        rollouts: rollouts so far.
        unscored: those of them without a score, because the provider failed.
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
        """Return a ledger for a part of the run; this one counts what it counts."""
        return attrs.evolve(self, whole=self)

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """What was used, by role and model, in the order of roles."""
        ordered = sorted(self.sums.items(), key=lambda item: (tuple(Role).index(item[0][0]), item))
        return tuple(total.entry(role, model) for (role, model), total in ordered)

    @property
    def charge(self) -> Charge:
        """Money and tokens of all roles; unknown costs count as 0."""
        totals = self.sums.values()
        cost = sum((total.cost for total in totals), ZERO)
        return Charge(cost=cost, tokens=sum(total.sent + total.received for total in totals))

    @property
    def known_cost(self) -> Decimal | None:
        """US dollars of all roles; None if the price of a call is not known."""
        if any(total.unpriced for total in self.sums.values()):
            return None
        return self.charge.cost

    def spent_on(self, role: Role) -> tuple[int, Decimal]:
        """Return calls and US dollars of a role; unknown costs count as 0."""
        totals = [total for (named, _), total in self.sums.items() if named is role]
        return sum(total.calls for total in totals), sum((total.cost for total in totals), ZERO)

    def check(self) -> None:
        """Raise if money or tokens are used up.

        Raises:
            BudgetExhaustedError: ``max_cost`` or ``max_tokens`` is reached, or there is a
                ``max_cost`` and the price of a call is not known.
        """
        # Running branches count too: what they have spent is gone, joined or not.
        whole = self.whole or self
        self.budget.check(whole.charge)
        if self.budget.needs_prices:
            for (role, model), total in whole.sums.items():
                if total.unpriced:
                    why = (
                        f"a call of `{model}` has no known cost: its server counted no tokens, or "
                        "it is an agent that failed or reported no cost; give an agent "
                        "`max_call_cost`, a model its prices, or limit max_tokens instead"
                    )
                    if role is Role.UNANSWERED:
                        why = (
                            f"a call of `{model}` was sent and not answered, and nothing says what "
                            "it can have cost; give an agent `max_call_cost`, a model its prices"
                        )
                    raise BudgetExhaustedError(f"max_cost cannot be kept: {why}", limit="max_cost")

    def count(
        self,
        spent: Sequence[Spending] = (),
        *,
        rollouts: int = 0,
        unscored: int = 0,
        reflections: int = 0,
        recorded: bool = False,
        in_whole: bool = False,
    ) -> None:
        """Add answers, and the calls that were made for them.

        Args:
            spent: the calls.
            rollouts: rollouts among the answers.
            unscored: those of them without a score.
            reflections: reflections among the answers.
            recorded: whether an earlier process made the calls, so that they are charged now.
            in_whole: whether the whole has counted the calls already.
        """
        self.rollouts += rollouts
        self.unscored += unscored
        self.reflections += reflections
        for spending in spent:
            total = self.sums[spending.role, spending.model]
            total.calls += spending.calls
            total.requests += spending.requests
            total.microseconds += spending.microseconds
            total.sent += spending.input_tokens
            total.received += spending.output_tokens
            total.cached += spending.cached_tokens
            total.reasoning += spending.reasoning_tokens
            if spending.cost is None:
                total.unpriced += spending.calls
            elif spending.cost:
                total.cost += spending.cost
        if self.whole is not None and not in_whole:
            # Without `recorded`: both ledgers share one budget, which is charged below.
            self.whole.count(spent, rollouts=rollouts, unscored=unscored, reflections=reflections)
        # Not passed on to the whole, which has the same budget and would pay again.
        if recorded and spent:
            cost = sum((spending.cost for spending in spent if spending.cost), ZERO)
            self.budget.pay(Charge(cost=cost, tokens=sum(spending.tokens for spending in spent)))

    def take(self, part: Ledger) -> None:
        """Add the counts of another part of the same whole, which has counted them already."""
        self.rollouts += part.rollouts
        self.unscored += part.unscored
        self.reflections += part.reflections
        for key, total in part.sums.items():
            sum_here = self.sums[key]
            for name in Sum.__slots__:
                setattr(sum_here, name, getattr(sum_here, name) + getattr(total, name))


# Without a slot for weak references, because `Ledger.take` adds up all `__slots__`.
@attrs.define(eq=False, weakref_slot=False)
class Sum:
    """Running totals of one model in one role; mutable, because a replay adds up millions."""

    calls: int = 0
    requests: int = 0
    unpriced: int = 0
    microseconds: int = 0
    sent: int = 0
    received: int = 0
    cached: int = 0
    reasoning: int = 0
    cost: Decimal = ZERO

    def entry(self, role: Role, model: str) -> LedgerEntry:
        return LedgerEntry(
            role=role,
            model=model,
            calls=self.calls,
            retries=max(0, self.requests - self.calls),
            usage=Usage(
                input_tokens=self.sent,
                output_tokens=self.received,
                cached_tokens=self.cached,
                reasoning_tokens=self.reasoning,
            ),
            cost=self.cost,
            unpriced_calls=self.unpriced,
            seconds=self.microseconds / MICROSECONDS,
        )


def money(amount: Decimal | None) -> str | None:
    """Return US dollars in the form of documents: a decimal number as text."""
    # Not `str`, which writes small amounts with an exponent.
    return None if amount is None else f"{amount:f}"


@attrs.define(eq=False)
class RolloutBudget:
    """The rollout budget of a search, without what is reserved.

    Attributes:
        ledger: what the search and its joined branches have used.
        reserve: rollouts that are still kept for the end of the run.
        in_flight: rollouts reserved for running branches.
    """

    _ledger: Ledger
    reserve: int = attrs.field(default=0, kw_only=True)
    in_flight: int = attrs.field(default=0, init=False)

    @property
    def whole(self) -> int:
        """The budget of the run, with everything that is reserved."""
        return self._ledger.rollout_budget

    @property
    def used(self) -> int:
        """Rollouts used so far."""
        return self._ledger.rollouts

    @property
    def left(self) -> int:
        """Rollouts left beside all reserves; below 0 if running branches may use more than that."""
        ledger = self._ledger
        return ledger.rollout_budget - ledger.rollouts - self.reserve - self.in_flight

    def affords(self, rollouts: int) -> bool:
        """Return whether the budget covers that many more rollouts and all reserves."""
        return rollouts <= self.left

    def require(self, rollouts: int, what: str) -> None:
        """Raise if the budget does not cover that many more rollouts and all reserves.

        Raises:
            RunStoppedError: it does not; ``what`` says what they were wanted for.
        """
        if not self.affords(rollouts):
            raise RunStoppedError(
                StopReason.BUDGET, f"{what}, which takes {rollouts} rollouts, more than are left"
            )

    def release(self, rollouts: int) -> None:
        """Make rollouts available that were reserved for the end of the run."""
        self.reserve -= rollouts
