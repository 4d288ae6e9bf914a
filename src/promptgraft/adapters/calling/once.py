"""Requests that are sent once in the life of a process: equal ones get the answer of the first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal

import attrs

from promptgraft.adapters.base import ModelCalled
from promptgraft.adapters.calling.turns import Turn
from promptgraft.ground.serde import HexDigest
from promptgraft.runtime.session import SessionProtocol

SHARED = ", asked once"
"""What follows the name of a model in the ledger for calls that got an earlier answer."""
MOST_SHARED = 10_000
"""Answers that are remembered: with 4,000 characters each, about 40 MB of a long-lived process."""


@attrs.define(eq=False)
class _SharedTurn:
    """The answer to a request; whoever needs it first asks, and the others wait."""

    asking: threading.Lock = attrs.field(factory=threading.Lock)
    turn: Turn | None = None


class SharedTurns:
    """The latest answers of a model by request; safe to share between threads, empty in a copy."""

    def __init__(self) -> None:
        self._answers: dict[HexDigest, _SharedTurn] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[SharedTurns], tuple[()]]:
        return type(self), ()

    def turn(
        self, question: HexDigest, ask: Callable[[], Turn], *, model: str, session: SessionProtocol
    ) -> Turn:
        """Return the answer to a request, from ``ask`` if there is none yet.

        Args:
            question: identifies the request and the model.
            ask: makes the call; what it raises is raised, and the next one asks again.
            model: the name of the model.
            session: is told of a call without a request, at no cost, if the answer was there.
        """
        with self._lock:
            answer = self._answers.pop(question, None) or _SharedTurn()
            self._answers[question] = answer
            if len(self._answers) > MOST_SHARED:
                del self._answers[next(iter(self._answers))]  # needed longest ago
        with answer.asking:
            if answer.turn is None:
                answer.turn = ask()
                return answer.turn
        name = f"{model}{SHARED}"
        session.dispatch(ModelCalled(model=name, requests=0, cost=Decimal(0), seconds=0.0))
        return answer.turn
