"""The tokens, money and time that calls take, as the journal records them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from enum import StrEnum

import msgspec

from promptgraft.adapters.base import ModelCalled, PromptExecuted
from promptgraft.errors import JournalCorruptError, PromptgraftError
from promptgraft.ground.serde import Json
from promptgraft.journal.base import Journal

MICROSECONDS = 1_000_000

_MAX_NAME_CHARS = 200


class Role(StrEnum):
    """The purpose of a call."""

    TASK = "task"
    TEACHER = "teacher"
    JUDGE = "judge"
    REFLECTION = "reflection"
    BACKWARD = "backward"
    AGGREGATE = "aggregate"
    OPTIMIZE = "optimize"
    UNANSWERED = "sent, not answered"
    """Requests of any purpose whose answers were lost, at the most that they can have cost."""


class Spending(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The cost of the calls of one model for one answer.

    The journal records it as a list of its fields, which is fast to read: replaying a long run
    reads one for every answer.

    Attributes:
        role: the purpose of the calls.
        model: the name of the model at its provider.
        calls: number of calls.
        requests: number of requests sent, including retries.
        input_tokens: tokens sent, including cached ones.
        output_tokens: tokens received.
        cached_tokens: tokens sent that the provider read from its cache.
        cost: US dollars; None if the price is unknown.
        microseconds: wall time, including waits. An integer, so that a sum does not depend on the
            order in which answers arrive.
        reasoning_tokens: tokens received that the model thought and did not show.
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
    reasoning_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Tokens sent and received."""
        return self.input_tokens + self.output_tokens


def spent_on(role: Role, events: Iterable[object], adapter: str) -> tuple[Spending, ...]:
    """Return the cost of the calls for one answer.

    Args:
        role: the purpose of the calls.
        events: the events of the session in which they were made.
        adapter: the identity of the adapter that made them. If it answered without reporting
            calls, one call of unknown price is counted.
    """
    calls = []
    usage = None
    for event in events:
        # Without a request it was given up, or got the answer to an equal one.
        if isinstance(event, ModelCalled) and (event.requests or not event.fault):
            calls.append(event)
        elif isinstance(event, PromptExecuted):
            usage = event.response.usage
    if not calls and usage is not None:
        calls = [ModelCalled(model=adapter, requests=1, usage=usage, cost=None, seconds=0.0)]
    return tuple(
        Spending(
            role=role,
            # The name comes from the provider's answer and is written for every answer of a run.
            model=call.model[:_MAX_NAME_CHARS],
            requests=call.requests,
            input_tokens=call.usage.input_tokens,
            output_tokens=call.usage.output_tokens,
            cached_tokens=call.usage.cached_tokens,
            cost=call.cost,
            microseconds=round(call.seconds * MICROSECONDS),
            reasoning_tokens=call.usage.reasoning_tokens,
        )
        for call in calls
    )


def spent_to_json(spent: Sequence[Spending]) -> Json:
    """Return calls as the journal records them."""
    rows: list[list[Json]] = msgspec.to_builtins(spent)
    # Without the last field where the model did not think, as in journals from before it was
    # counted.
    return [row if row[-1] else row[:-1] for row in rows]


def spent_from_json(plain: Json, key: str) -> tuple[Spending, ...]:
    """Return the calls that the journal records under ``key``.

    Raises:
        JournalCorruptError: ``plain`` is not what :func:`spent_to_json` wrote.
    """
    try:
        spent = msgspec.convert(plain, tuple[Spending, ...])
        # `convert` accepts other lengths, and a number where a text was written; a round trip
        # does not.
        if spent_to_json(spent) == plain:
            return spent
    except msgspec.ValidationError:
        pass
    raise JournalCorruptError(
        f"the journal's record `{key}` holds no calls where they should be; restore the journal"
    )


def spent_key(key: str, number: int) -> str:
    """Return the key of calls that were made for an answer but did not produce it."""
    return f"{key}/spent/{number}"


def of_spent_key(key: str) -> str:
    """Return the key of the answer that calls under ``key`` did not produce."""
    return key.partition("/spent/")[0]


def attempts_of(journal: Journal, key: str) -> list[tuple[Spending, ...]]:
    """Return the calls of each failed attempt at an answer."""
    attempts: list[tuple[Spending, ...]] = []
    # Whatever the question: a run that asks again for earlier faults may come here with another
    # one, and what was paid at this place counts all the same.
    while (record := journal.record(spent_key(key, len(attempts)))) is not None:
        attempts.append(spent_from_json(record.answer, record.key))
    return attempts


class AbandonedRolloutError(PromptgraftError):
    """A rollout failed after calls that must be paid for."""

    def __init__(self, cause: PromptgraftError, spent: tuple[Spending, ...]) -> None:
        super().__init__(cause, spent)
        self.cause = cause
        self.spent = spent

    def __str__(self) -> str:
        return str(self.cause)
