"""Budgets: checked before a call, paid after it, exact between threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.errors import BudgetExhaustedError, ConfigError
from promptgraft.runtime import Budget, Charge

CENT = Charge(cost=Decimal("0.01"), tokens=10)


def test_a_budget_without_limits_lets_everything_begin() -> None:
    budget = Budget()
    budget.reserve(CENT)
    budget.settle(CENT, Charge(cost=Decimal(10**9), tokens=10**12))
    budget.reserve(CENT)
    assert not budget.needs_prices


def test_what_is_reserved_counts_until_it_is_settled() -> None:
    budget = Budget(max_cost=Decimal("0.02"))
    budget.reserve(CENT)
    budget.reserve(CENT)
    with pytest.raises(BudgetExhaustedError, match=r"^max_cost: 0\.0200 of 0\.02 US dollars"):
        budget.reserve(CENT)
    budget.settle(CENT, Charge())
    budget.reserve(CENT)
    assert budget.needs_prices


def test_the_error_names_the_limit_that_was_reached() -> None:
    budget = Budget(max_tokens=10)
    budget.pay(CENT)
    with pytest.raises(BudgetExhaustedError, match=r"^max_tokens: 10 of 10 tokens") as caught:
        budget.reserve(Charge())
    assert caught.value.limit == "max_tokens"


@given(
    costs=st.lists(st.integers(0, 30), min_size=1, max_size=60),
    in_flight=st.integers(1, 16),
    limit=st.integers(1, 300),
)
def test_a_limit_is_exceeded_by_the_calls_in_flight_at_most(
    costs: list[int], in_flight: int, limit: int
) -> None:
    budget = Budget(max_tokens=limit)
    running: list[int] = []
    for cost in costs:
        if len(running) == in_flight:
            budget.settle(Charge(), Charge(tokens=running.pop(0)))
        try:
            budget.reserve(Charge())
        except BudgetExhaustedError:
            break
        running.append(cost)
    for cost in running:
        budget.settle(Charge(), Charge(tokens=cost))
    assert budget.paid.tokens < limit + in_flight * 30


def test_threads_lose_nothing() -> None:
    budget = Budget()

    def pay(_: int) -> None:
        budget.reserve(CENT)
        budget.settle(CENT, CENT)

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(pay, range(400)))
    assert budget.paid == Charge(cost=Decimal("4.00"), tokens=4_000)


@pytest.mark.parametrize("cost", [Decimal(0), Decimal(-1), Decimal("NaN"), Decimal("Infinity")])
def test_a_limit_in_money_is_a_positive_amount(cost: Decimal) -> None:
    with pytest.raises(ConfigError, match=r"^max_cost: expected US dollars above 0 and of at most"):
        Budget(max_cost=cost)


def test_a_limit_in_tokens_is_positive() -> None:
    with pytest.raises(ConfigError, match=r"^max_tokens: expected an integer of at least 1, found"):
        Budget(max_tokens=0)
