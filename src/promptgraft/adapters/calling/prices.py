"""Prices of calls of models, in US dollars."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Protocol

import attrs

from promptgraft.adapters.base import NO_USAGE, Usage
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.strict.checks import instance, money

_MILLION = Decimal(1_000_000)
PRICE = attrs.evolve(money(0, texts=True), what="US dollars for a million tokens, at least 0")
"""US dollars for a million tokens, as a number or a text."""


def _as_dollars(value: Decimal | float | str) -> Decimal:
    PRICE.hold("price", value)
    return PRICE.fits(value) or Decimal(0)


def _as_dollars_or_none(value: Decimal | float | str | None) -> Decimal | None:
    return None if value is None else _as_dollars(value)


@attrs.frozen(kw_only=True)
class ModelPrice:
    """The prices of a model, in US dollars per million tokens.

    Attributes:
        input: input tokens.
        output: output tokens.
        cached_input: tokens read from the provider's cache; None for the price of ``input``.
        cache_write: tokens written to the provider's cache; None for the price of ``input``.

    Raises:
        ConfigError: a price is negative or not a number.
    """

    input: Decimal = attrs.field(converter=_as_dollars)
    output: Decimal = attrs.field(converter=_as_dollars)
    cached_input: Decimal | None = attrs.field(default=None, converter=_as_dollars_or_none)
    cache_write: Decimal | None = attrs.field(default=None, converter=_as_dollars_or_none)

    def of(self, usage: Usage, cache_write_tokens: int = 0) -> Decimal:
        """Return the exact price of the tokens."""
        cached = self.input if self.cached_input is None else self.cached_input
        written = self.input if self.cache_write is None else self.cache_write
        fresh = usage.input_tokens - usage.cached_tokens - cache_write_tokens
        return (
            self.input * fresh
            + cached * usage.cached_tokens
            + written * cache_write_tokens
            + self.output * usage.output_tokens
        ) / _MILLION


class PricedTurn(Protocol):
    """What the price of an answer depends on; a ``Turn`` has it."""

    @property
    def model(self) -> str: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def cache_write_tokens(self) -> int: ...


def _as_table(table: Mapping[str, ModelPrice]) -> FrozenMap[str, ModelPrice]:
    for name, price in table.items():
        instance(ModelPrice, "a ModelPrice(input=, output=)").hold(f"prices: `{name}`", price)
    return FrozenMap(table)


@attrs.frozen
class Prices:
    """Prices by model: the user's first, then those bundled with `genai-prices`.

    Nothing is fetched. A model that neither lists has an unknown price, which is not 0.

    Attributes:
        table: prices by model name, or by ``provider/model``, which takes precedence.
        known: whether to look up models that are not in the table in `genai-prices`.

    Raises:
        ConfigError: a value of the table is not a ``ModelPrice``.
    """

    table: Mapping[str, ModelPrice] = attrs.field(factory=dict, converter=_as_table)
    known: bool = attrs.field(default=True, kw_only=True)

    def cost(self, turn: PricedTurn, *, provider: str | None, model: str) -> Decimal | None:
        """Return the cost of a turn in US dollars; None if its price or tokens are unknown.

        ``provider`` is a name or an address. ``model`` is the one requested; the one that answered
        is looked up first.
        """
        if turn.usage == NO_USAGE:
            return None
        # An alias such as `-latest` is answered by a dated model, whose price is the exact one.
        names = dict.fromkeys((turn.model, model))
        costs = (
            self.of(turn.usage, provider=provider, model=name, written=turn.cache_write_tokens)
            for name in names
        )
        return next((cost for cost in costs if cost is not None), None)

    def of(
        self, usage: Usage, *, provider: str | None, model: str, written: int = 0
    ) -> Decimal | None:
        """Return the price of tokens in US dollars; None if the model has no known price."""
        for name in (f"{provider}/{model}", model):
            if name in self.table:
                return self.table[name].of(usage, written)
        if not self.known or provider is None:
            return None
        return _known(usage, provider, model, written)


def _known(usage: Usage, provider: str, model: str, written: int) -> Decimal | None:
    import genai_prices

    tokens = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=written,
    )
    try:
        if "://" in provider:
            calculated = genai_prices.calc_price(tokens, model, provider_api_url=provider)
        else:
            calculated = genai_prices.calc_price(tokens, model, provider_id=provider)
    except (LookupError, ValueError):  # unknown model, or contradictory counts
        return None
    price = calculated.model_price
    # Without one of the two prices the total would silently omit it.
    return None if price.input_mtok is None or price.output_mtok is None else calculated.total_price
