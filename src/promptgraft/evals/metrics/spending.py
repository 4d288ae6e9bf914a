"""Metrics of what an answer took: money, tokens, time."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import attrs

from promptgraft.evals.metrics.base import BaseMetric
from promptgraft.evals.metrics.expressions import usage_of
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.strict.checks import number, one_of


@attrs.frozen(kw_only=True)
class _AmountMetric(BaseMetric):
    """1 up to the limit, then limit / amount; unscored when the amount is not known.

    Attributes:
        limit: what an answer may take.
    """

    unit: ClassVar[str]

    limit: float = attrs.field(validator=number(above=0))

    @abstractmethod
    def amount(self, answer: Answer) -> float | None:
        """Return what the answer took; None when that is not known."""

    def assess(self, case: Case, answer: Answer) -> Verdict:  # noqa: ARG002
        amount = self.amount(answer)
        if amount is None:
            return self.unscored(f"how many {self.unit} the answer took is not known")
        score = 1.0 if amount <= self.limit else self.limit / amount
        over = "" if amount <= self.limit else f": {amount - self.limit:.6g} over the limit"
        said = f"expected at most {self.limit:.6g} {self.unit}, found {amount:.6g}{over}"
        return self.verdict(score, said, amount=amount)


@attrs.frozen(kw_only=True)
class Cost(_AmountMetric):
    """What an answer cost, against a limit in US dollars."""

    kind: ClassVar[str] = "cost"
    unit: ClassVar[str] = "US dollars"

    def amount(self, answer: Answer) -> float | None:
        return usage_of(answer)["cost"]


@attrs.frozen(kw_only=True)
class Tokens(_AmountMetric):
    """The tokens of an answer, against a limit.

    Attributes:
        count: which tokens.
    """

    kind: ClassVar[str] = "tokens"
    unit: ClassVar[str] = "tokens"

    count: Literal["all", "input", "output"] = attrs.field(
        default="all", validator=one_of("all", "input", "output")
    )

    def amount(self, answer: Answer) -> float | None:
        usage = usage_of(answer)
        return usage["tokens" if self.count == "all" else f"{self.count}_tokens"]


@attrs.frozen(kw_only=True)
class Latency(_AmountMetric):
    """The wall time of an answer, against a limit in seconds."""

    kind: ClassVar[str] = "latency"
    unit: ClassVar[str] = "seconds"

    def amount(self, answer: Answer) -> float | None:
        return usage_of(answer)["seconds"]
