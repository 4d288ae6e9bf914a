"""What the calls of a run take: tokens, money and time, as the journal keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from enum import StrEnum

import msgspec

from promptgraft.adapters.base import ModelCalled, PromptExecuted
from promptgraft.errors import JournalCorruptError, PromptgraftError
from promptgraft.serde import Json

MICROSECONDS = 1_000_000

_MAX_NAME_CHARS = 200


class Role(StrEnum):
    """What a call was for."""

    TASK = "task"
    TEACHER = "teacher"
    JUDGE = "judge"
    REFLECTION = "reflection"
    BACKWARD = "backward"
    AGGREGATE = "aggregate"
    OPTIMIZE = "optimize"


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


def spent_on(role: Role, events: Iterable[object], adapter: str) -> tuple[Spending, ...]:
    """Return what the calls took that were made for one answer.

    Args:
        role: what the calls were for.
        events: those of the session in which they were made.
        adapter: the identity of what made them. If it reports no calls but has answered,
            one call of unknown price is counted.
    """
    calls = []
    usage = None
    for event in events:
        if isinstance(event, ModelCalled) and event.requests:
            calls.append(event)
        elif isinstance(event, PromptExecuted):
            usage = event.response.usage
    if not calls and usage is not None:
        calls = [ModelCalled(model=adapter, requests=1, usage=usage, cost=None, seconds=0.0)]
    return tuple(
        Spending(
            role=role,
            model=call.model[:_MAX_NAME_CHARS],
            requests=call.requests,
            input_tokens=call.usage.input_tokens,
            output_tokens=call.usage.output_tokens,
            cached_tokens=call.usage.cached_tokens,
            cost=call.cost,
            microseconds=round(call.seconds * MICROSECONDS),
        )
        for call in calls
    )


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


class AbandonedRolloutError(PromptgraftError):
    """A rollout ended in an error after calls that must be paid for.

    Attributes:
        cause: the error.
        spent: the calls.
    """

    def __init__(self, cause: PromptgraftError, spent: tuple[Spending, ...]) -> None:
        super().__init__(cause, spent)
        self.cause = cause
        self.spent = spent

    def __str__(self) -> str:
        return str(self.cause)
