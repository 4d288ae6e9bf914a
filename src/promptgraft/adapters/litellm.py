"""The adapter for all other providers, through litellm, which speaks their protocols."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Any, ClassVar

import attrs

from promptgraft.adapters.base import NO_USAGE, Usage
from promptgraft.adapters.calling.access import Access, Api
from promptgraft.adapters.calling.caller import Caller
from promptgraft.adapters.calling.prices import ModelPrice
from promptgraft.adapters.calling.turns import NothingReceivedError, Received, Turn
from promptgraft.adapters.openai import CHAT, OpenAIAdapter
from promptgraft.ground.secrets import SENSITIVE
from promptgraft.prompt.schema import JsonObject

_MILLION = 1_000_000
_CODES = {
    "ContextWindowExceededError": "context_length_exceeded",
    "ContentPolicyViolationError": "content_policy_violation",
}


@cache
def _loaded() -> Any:
    """Import litellm, which takes seconds, without letting it fetch its price list."""
    # Before the import, during which it would fetch the list.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    library: Any = importlib.import_module("litellm")
    library.suppress_debug_info = True  # otherwise it prints advice when a call fails
    return library


class _Endpoint:
    """Sends requests through litellm, with its retries disabled."""

    def __init__(self, access: Access, model: str) -> None:
        # litellm reads keys from environment variables of its own: any that looks like one is
        # treated as a secret.
        keys = [value for name, value in os.environ.items() if SENSITIVE.search(name) and value]
        self.account = f"{access.account} {model.partition('/')[0]}"
        self.secrets = (*access.secrets, *(key for key in keys if len(key) >= len("sk-12345")))
        self.blanked = access.blanked
        self._given: Mapping[str, object] = {
            "api_key": access.key or None,
            "api_base": access.address,
            "extra_headers": access.sent_headers or None,
            "num_retries": 0,
            "max_retries": 0,
        }
        self._library = _loaded()
        self._errors = importlib.import_module("openai")  # litellm's own are derived from these

    async def send(self, body: JsonObject, *, seconds: float) -> Received:
        errors = self._errors
        try:
            async with asyncio.timeout(seconds):
                reply = await self._library.acompletion(**body, **self._given, timeout=seconds)
        except (TimeoutError, errors.APITimeoutError):
            raise NothingReceivedError(
                f"no whole answer within {seconds:g} s; raise `timeout` for a slow model",
                timed_out=True,
            ) from None
        # After the timeout, which is derived from it.
        except errors.APIConnectionError as error:
            raise NothingReceivedError(f"the connection failed: {error}") from None
        except errors.OpenAIError as error:
            name = type(error).__name__
            error_body = {"type": name, "code": _CODES.get(name), "message": str(error)}
            return Received(
                status=getattr(error, "status_code", None) or 500,
                headers=dict(getattr(error, "litellm_response_headers", None) or {}),
                content=json.dumps({"error": error_body}),
            )
        # Encoded again, so that it is judged, blanked and read like any other response.
        return Received(status=200, headers={}, content=reply.model_dump_json())


@attrs.frozen(eq=False)
class LiteLLMAdapter(OpenAIAdapter):
    """Answers prompts with a model of any provider that litellm knows.

    Takes the arguments of ``OpenAIAdapter``; these differ.

    Args:
        model: litellm's name of the model, such as ``groq/llama-3.3-70b-versatile``.
        api_key: the key; ``LITELLM_API_KEY``, or the variable that litellm reads for the
            provider, when it is None.
        base_url: the address; ``LITELLM_API_BASE``, or the provider's own, when it is None.

    Raises:
        ConfigError: see ``OpenAIAdapter``.
    """

    service: ClassVar[Api] = attrs.evolve(
        CHAT,
        adapter="LiteLLMAdapter",
        provider="litellm",
        packages=("litellm", "stamina"),
        address_variable="LITELLM_API_BASE",
        needs_key=False,
        taken={**CHAT.taken, "stream": "the adapter"},
    )

    def price_of(self, usage: Usage) -> Decimal | None:
        own_price = self.prices.of(usage, provider=None, model=self.model)
        if own_price is not None or not self.prices.known:
            return own_price
        listed = _price_listed(self.model)
        return None if listed is None else listed.of(usage)

    def _price(self, turn: Turn) -> Decimal | None:
        return None if turn.usage == NO_USAGE else self.price_of(turn.usage)

    def _new_caller(self) -> Caller:
        return Caller(
            _Endpoint(self._access, self.model),
            policy=self.policy,
            call_timeout=self.timeout,
            max_concurrency=self.max_concurrency,
        )


def _price_listed(model: str) -> ModelPrice | None:
    """Return the price in litellm's own list; None for an unlisted model."""
    provider, _, name = model.partition("/")
    for key in (model, name):
        prices = _loaded().model_cost.get(key, {})
        if key == model or prices.get("litellm_provider") == provider:
            sent, received = prices.get("input_cost_per_token"), prices.get("output_cost_per_token")
            if sent is not None and received is not None:
                cached = prices.get("cache_read_input_token_cost", sent)
                each = [Decimal(str(price)) * _MILLION for price in (sent, received, cached)]
                return ModelPrice(input=each[0], output=each[1], cached_input=each[2])
    return None
