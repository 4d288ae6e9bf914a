"""What calls of models cost, in US dollars."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import attrs

from promptgraft.adapters.base import NO_USAGE, Usage
from promptgraft.adapters.calling.turns import Turn
from promptgraft.errors import ConfigError
from promptgraft.frozenmap import FrozenMap
from promptgraft.serde import shown
from promptgraft.strict.checks import money

MEND = (
    "give the model its `prices: {input: …, output: …}` in the project file, or the adapter "
    "`prices=` in Python, in US dollars for a million tokens; or leave max_cost out"
)
"""What to do where ``max_cost`` is to be kept, and a price is not known."""

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
    """The price of a model, in US dollars for a million tokens.

    Attributes:
        input: tokens sent.
        output: tokens received.
        cached_input: tokens that the provider read from its cache; None for the price of input.
        cache_write: tokens that it wrote to its cache; None for the price of input.

    Raises:
        ConfigError: a price is negative or no number.
    """

    input: Decimal = attrs.field(converter=_as_dollars)
    output: Decimal = attrs.field(converter=_as_dollars)
    cached_input: Decimal | None = attrs.field(default=None, converter=_as_dollars_or_none)
    cache_write: Decimal | None = attrs.field(default=None, converter=_as_dollars_or_none)

    def of(self, usage: Usage, cache_write_tokens: int = 0) -> Decimal:
        """Return what tokens cost, exactly."""
        cached = self.input if self.cached_input is None else self.cached_input
        written = self.input if self.cache_write is None else self.cache_write
        fresh = usage.input_tokens - usage.cached_tokens - cache_write_tokens
        return (
            self.input * fresh
            + cached * usage.cached_tokens
            + written * cache_write_tokens
            + self.output * usage.output_tokens
        ) / _MILLION


def _as_table(table: Mapping[str, ModelPrice]) -> FrozenMap[str, ModelPrice]:
    for name, price in table.items():
        if not isinstance(price, ModelPrice):
            raise ConfigError(
                f"prices: `{name}`: expected a ModelPrice(input=, output=), found {shown(price)}"
            )
    return FrozenMap(table)


@attrs.frozen
class Prices:
    """Prices by model: the user's first, then those of `genai-prices`; nothing is fetched.

    A model that neither knows has no price, which is not a price of 0.

    Attributes:
        table: prices by the name of a model, or by ``provider/model``, which goes before it.
        known: whether to ask `genai-prices` for models that are not in the table.

    Raises:
        ConfigError: the table holds something else.
    """

    table: Mapping[str, ModelPrice] = attrs.field(factory=dict, converter=_as_table)
    known: bool = attrs.field(default=True, kw_only=True)

    def cost(self, turn: Turn, *, provider: str | None, model: str) -> Decimal | None:
        """Return US dollars for a turn; None when its price or its tokens are not known.

        ``provider`` is a name or the address of an interface. ``model`` was asked for; the one that
        answered is looked for first.
        """
        if turn.usage == NO_USAGE:
            return None
        names = dict.fromkeys((turn.model, model))
        costs = (
            self.of(turn.usage, provider=provider, model=name, written=turn.cache_write_tokens)
            for name in names
        )
        return next((cost for cost in costs if cost is not None), None)

    def of(
        self, usage: Usage, *, provider: str | None, model: str, written: int = 0
    ) -> Decimal | None:
        """Return US dollars for tokens of a model; None when its price is not known."""
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
            found = genai_prices.calc_price(tokens, model, provider_api_url=provider)
        else:
            found = genai_prices.calc_price(tokens, model, provider_id=provider)
    except (LookupError, ValueError):  # no such model, or counts that contradict each other
        return None
    price = found.model_price
    return None if price.input_mtok is None or price.output_mtok is None else found.total_price
