"""What calls cost."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft import ModelPrice, Prices
from promptgraft.adapters.base import Usage
from promptgraft.adapters.calling.turns import Finish, Turn
from promptgraft.errors import ConfigError

PRICE = ModelPrice(input=3, output="15", cached_input=0.3, cache_write="3.75")
USED = Usage(input_tokens=1_000_000, output_tokens=200_000, cached_tokens=600_000)


def turn(usage: Usage = USED, *, model: str = "m-2025", written: int = 0) -> Turn:
    return Turn(
        text="",
        finish=Finish.DONE,
        finish_reason="stop",
        usage=usage,
        cache_write_tokens=written,
        model=model,
        messages=(),
    )


def test_every_kind_of_token_has_its_price() -> None:
    prices = Prices({"m": PRICE})
    cost = prices.cost(turn(written=100_000), provider="nobody", model="m")
    assert cost == Decimal("0.9") + Decimal("0.18") + Decimal("0.375") + 3


def test_prices_that_are_left_out_are_those_of_input() -> None:
    plain = Prices({"m": ModelPrice(input=3, output=15)})
    assert plain.cost(turn(written=100_000), provider=None, model="m") == Decimal(6)


def test_the_users_price_goes_before_a_known_one_and_the_providers_before_any() -> None:
    name = "claude-sonnet-4-5"
    dear, cheap = ModelPrice(input=100, output=0), ModelPrice(input=1, output=0)
    assert Prices({name: dear}).cost(turn(), provider="anthropic", model=name) == 100
    both = Prices({name: dear, f"anthropic/{name}": cheap})
    assert both.cost(turn(), provider="anthropic", model=name) == 1
    assert both.cost(turn(), provider="other", model=name) == 100


def test_the_model_that_answered_goes_before_the_one_that_was_asked() -> None:
    prices = Prices({"m": PRICE, "m-2025": ModelPrice(input=1, output=0)})
    assert prices.cost(turn(), provider=None, model="m") == 1


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("anthropic", "claude-sonnet-4-5"),
        ("openai", "gpt-4o-2024-08-06"),
        ("https://openrouter.ai/api/v1", "anthropic/claude-sonnet-4.5"),
    ],
)
def test_known_models_have_a_price_and_cached_tokens_are_cheaper(provider: str, model: str) -> None:
    fresh = Usage(input_tokens=10_000, output_tokens=1_000)
    cached = Usage(input_tokens=10_000, output_tokens=1_000, cached_tokens=9_000)
    dear = Prices().cost(turn(fresh, model=model), provider=provider, model=model)
    cheap = Prices().cost(turn(cached, model=model), provider=provider, model=model)
    assert dear is not None
    assert cheap is not None
    assert 0 < cheap < dear < 1


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "nobody-knows"),
        ("anthropic", "claude-nobody"),
        ("http://127.0.0.1:8000/v1", "gpt-4o"),
        (None, "gpt-4o"),
        ("openai", "whisper-1"),
    ],
)
def test_an_unknown_model_has_no_price_which_is_not_zero(provider: str | None, model: str) -> None:
    assert Prices().cost(turn(model=model), provider=provider, model=model) is None


def test_tokens_that_nobody_counted_have_no_price() -> None:
    assert Prices({"m": PRICE}).cost(turn(Usage()), provider=None, model="m") is None


def test_known_prices_can_be_left_out() -> None:
    name = "claude-sonnet-4-5"
    assert Prices(known=False).cost(turn(), provider="anthropic", model=name) is None


@pytest.mark.parametrize("value", [-1, "-0.1", float("nan"), float("inf"), "dear", True, None])
def test_a_price_is_a_number_of_at_least_zero(value: Any) -> None:
    with pytest.raises(ConfigError, match="expected US dollars for a million tokens"):
        ModelPrice(input=value, output=1)


def test_a_table_of_something_else_is_refused() -> None:
    with pytest.raises(ConfigError, match="prices: `m`: expected a ModelPrice"):
        Prices({"m": 3})  # type: ignore[dict-item]


def test_prices_pickle() -> None:
    prices = Prices({"m": PRICE})
    assert pickle.loads(pickle.dumps(prices)) == prices


@given(st.lists(st.integers(0, 10**7), min_size=4, max_size=4))
def test_costs_are_exact_sums(counts: list[int]) -> None:
    fresh, cached, written, out = counts
    usage = Usage(input_tokens=fresh + cached + written, output_tokens=out, cached_tokens=cached)
    micro = 300 * fresh + 30 * cached + 375 * written + 1500 * out
    assert PRICE.of(usage, written) * 100_000_000 == micro
