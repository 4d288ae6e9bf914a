"""Calls inside an answer of a run: their places, and the record that they are kept in.

An answer of a run, such as a rollout, may take several paid calls: steps of a graph, rounds of
tools, judges. Each has a place in the answer, which is the same in every replay.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextvars import ContextVar
from decimal import Decimal
from typing import Protocol

import attrs

from promptgraft.ground.serde import HexDigest, Json


@attrs.frozen(kw_only=True, cache_hash=True)
class Bound:
    """The most that one request can cost.

    Attributes:
        model: the name of the model.
        input_tokens: tokens that are sent.
        output_tokens: the longest answer, in tokens.
        cost: US dollars; None if the price is unknown.
    """

    model: str
    input_tokens: int
    output_tokens: int
    cost: Decimal | None


class KeptCalls(Protocol):
    """Keeps the calls of one answer; safe to share between threads."""

    @property
    def is_slow(self) -> bool:
        """Whether :meth:`sent` takes longer than switching to another thread."""
        ...

    @property
    def holds_any(self) -> bool:
        """Whether calls of an earlier attempt are left that were not used again."""
        ...

    def find(self, place: str, question: HexDigest) -> Json | None:
        """Return the kept answer to a question, and mark it as used; None if there is none."""
        ...

    def begin(self) -> None:
        """Write the calls that have ended, because another one follows."""
        ...

    def sent(self, place: str, question: HexDigest, bound: Bound) -> None:
        """Note durably that a request is about to be sent, as :meth:`begin` does."""
        ...

    def settle(self, place: str) -> None:
        """Note durably that the request of a place has failed, so that it is not taken for lost."""
        ...

    def keep(self, place: str, answer: Callable[[], tuple[HexDigest, Json] | None]) -> None:
        """Keep the answer of a call, unless the whole answer is recorded soon.

        ``answer`` returns the digest of the question and the answer as plain data; None if the
        answer cannot be kept. It is called in any thread, and not at all if nothing is kept.
        """
        ...


class Places:
    """The next places of calls in a session; safe to share between threads.

    Args:
        kept: keeps the calls.
        prefix: how the places begin: empty, or ending in a dot.
    """

    def __init__(self, kept_calls: KeptCalls, prefix: str = "") -> None:
        self.kept = kept_calls
        self.taken: int = 0
        self._prefix = prefix
        self._numbers = itertools.count(1)

    def next(self) -> str:
        """Return the place of the next call, such as ``2.1.1`` or ``judge.3``."""
        self.taken = number = next(self._numbers)
        return f"{self._prefix}{number}"

    def within(self, name: str) -> Places:
        """Return the places inside a step or another part of the answer."""
        return Places(self.kept, f"{self._prefix}{name}.")


class CallKeeper(Protocol):
    """Keeps the calls of a run."""

    def places(self, position: str) -> Places:
        """Return the places of a session that answers at a position of the run."""
        ...

    def made(self, position: str) -> None:
        """Note that the answer at a position is made, and no further call follows."""
        ...


AGENT = "agent"
"""The name before the number in the place of a call of an agent, such as ``agent.1``.

Calls of models that the agent makes, as far as they are visible, are within that place.
"""

answering: ContextVar[tuple[CallKeeper, str] | None] = ContextVar(
    "promptgraft_answering", default=None
)
"""What keeps the calls of the answer that this thread is making, and its position in the run."""
