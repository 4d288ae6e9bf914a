"""One answer with what was said of it, as a gate keeps it; plain data when it travels."""

from __future__ import annotations

import math

import attrs

from promptgraft.evals.aggregate import CaseOutcome
from promptgraft.evals.attempt import Attempt
from promptgraft.evals.pieces import ANSWER
from promptgraft.evals.types import Answer
from promptgraft.serde import Json, structure, unstructure
from promptgraft.strict.nodes import Node, Source


@attrs.frozen(kw_only=True)
class Answered:
    """One answer to one case.

    Attributes:
        outcome: what it comes to.
        answer: what the model said; None when there is no answer.
        seconds: how long the models took, judges included.
    """

    outcome: CaseOutcome
    answer: Answer | None
    seconds: float

    @classmethod
    def of(cls, attempt: Attempt) -> Answered:
        """Return what a gate keeps of an attempt."""
        calls = (*attempt.task_calls, *attempt.judge_calls)
        return cls(
            outcome=attempt.outcome,
            answer=attempt.answer,
            seconds=math.fsum(call.seconds for call in calls),
        )

    def to_json(self) -> dict[str, Json]:
        """Return it as plain data; :func:`answered_from` reads it."""
        return {
            "outcome": unstructure(self.outcome),
            "answer": None if self.answer is None else answer_json(self.answer),
            "seconds": self.seconds,
        }


def answer_json(answer: Answer) -> dict[str, Json]:
    """Return an answer as plain data, in the form in which files have recorded ones."""
    plain = unstructure(attrs.evolve(answer, cost=None))
    cost = None if answer.cost is None else str(answer.cost)
    return {**plain, "cost": cost} if isinstance(plain, dict) else {}


def answered_from(plain: Json, *, where: str) -> Answered:
    """Return what :meth:`Answered.to_json` made plain.

    Raises:
        DataFormatError: naming ``where`` and what does not fit.
    """
    found = plain if isinstance(plain, dict) else {}
    outcome = structure(found.get("outcome"), CaseOutcome, where=f"{where}: outcome")
    seconds = structure(found.get("seconds"), float, where=f"{where}: seconds")
    source = Source.of(found.get("answer"), where)
    node = Node(source.document.value, ("answer",), source)
    answer = None if node.value is None else ANSWER.read(node)
    source.raise_all()
    return Answered(outcome=outcome, answer=answer, seconds=seconds)
