"""What a run is expected to use, and what its settings let it use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TypeVar

import attrs

from promptgraft.evals.spending import Role
from promptgraft.notebook import Card, Shown, Table
from promptgraft.runtime.session import ZERO
from promptgraft.search.ledger import Ledger, money
from promptgraft.search.notices import RunPlanned
from promptgraft.search.settings import Affordable
from promptgraft.serde import Json
from promptgraft.text import dollars, short_count


@attrs.frozen(kw_only=True)
class Use:
    """Calls, and what they take.

    Attributes:
        calls: how many; None, here and below, when that is not known.
        input_tokens: of one call.
        output_tokens: of one call.
        cost: US dollars for all calls.
    """

    calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None

    @property
    def tokens(self) -> int | None:
        """Tokens of all calls; None when something is not known."""
        if self.calls is None or self.input_tokens is None or self.output_tokens is None:
            return None
        return self.calls * (self.input_tokens + self.output_tokens)

    def as_json(self) -> dict[str, Json]:
        """Return the same for machines; money is a decimal number as text."""
        return {
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "tokens": self.tokens,
            "cost": money(self.cost),
        }


@attrs.frozen(kw_only=True)
class SeenNode:
    """What an answer of an earlier run asked of a node of a graph, on average.

    Attributes:
        asked: calls of models in an answer.
        input_tokens: of a call; 0, here and below, when that is not known.
        output_tokens: of a call.
    """

    asked: float
    input_tokens: float
    output_tokens: float


@attrs.frozen(kw_only=True)
class SeenAnswers:
    """How long answers were, on average, in an earlier run.

    Attributes:
        model: the model, in its provider's word; empty where no tokens are known.
        tokens: output tokens of a call.
        where: the run, as the plan says it.
        nodes: what answers asked of the nodes of a graph, by name; empty for others.
    """

    model: str
    tokens: float
    where: str
    nodes: Mapping[str, SeenNode] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class RolePlan(Use):
    """What one role can use at most, without rounds of tools and retries.

    Attributes:
        role: what the calls are for.
        model: the identity of what answers.
        expected: what it is expected to use, rounds of tools included.
    """

    role: Role
    model: str
    expected: Use = Use()

    def as_json(self) -> dict[str, Json]:
        who: dict[str, Json] = {"role": self.role.value, "model": self.model}
        return {**who, **super().as_json(), "expected": self.expected.as_json()}


@attrs.frozen(kw_only=True)
class RunPlan(Shown):
    """What a run is expected to use, and what its settings let it use. No call is made for it.

    Attributes:
        rollouts: at most.
        reflections: at most, repairs of replies included.
        proposals: how many the rollouts, and ``max_reflections``, pay for.
        roles: what the teacher, tasks, judges and questions use; what else a feedback function
            calls is not known.
        expected_rollouts: how many are expected; fewer only where proposals are limited.
        answer_tokens: expected tokens of an answer, without thinking; None when that is not known.
        answer_from: where that is taken from, in words; empty when it is not known.
        max_cost: US dollars at which the run is stopped; None for no such limit.
        max_tokens: tokens at which it is stopped; None for no such limit.
        warnings: what makes the plan a bad one, a line each.
        max_seconds: wall time after which it is stopped; None for no such limit.
        first_call: what is called before the baseline, in words; empty for nothing.
    """

    rollouts: int
    reflections: int
    proposals: Affordable
    roles: tuple[RolePlan, ...]
    max_cost: Decimal | None
    max_tokens: int | None
    warnings: tuple[str, ...]
    max_seconds: float | None = None
    expected_rollouts: int
    answer_tokens: int | None
    answer_from: str
    first_call: str = ""

    @property
    def tokens(self) -> int | None:
        """Tokens of all calls, at most, or ``max_tokens``; None when that is not known."""
        return _least(_sum([role.tokens for role in self.roles], 0), self.max_tokens)

    @property
    def cost(self) -> Decimal | None:
        """US dollars of all calls, at most, or ``max_cost``; None when that is not known."""
        return _least(_sum([role.cost for role in self.roles], Decimal(0)), self.max_cost)

    @property
    def expected_tokens(self) -> int | None:
        """Expected tokens of all calls; None when that is not known."""
        whole = _sum([role.expected.tokens for role in self.roles], 0)
        return None if whole is None else _least(whole, self.max_tokens)

    @property
    def expected_cost(self) -> Decimal | None:
        """Expected US dollars of all calls; None when that is not known."""
        return self.forecast(Ledger(self.rollouts))

    def forecast(self, ledger: Ledger) -> Decimal | None:
        """Return the US dollars that the run is expected to use in all, by what it has used.

        What is left costs what the like has cost so far, or as planned where there was nothing of
        the kind. None when a price is not known.
        """
        whole, spent = self.expected_rollouts, ledger.known_cost
        if spent is None:
            return None
        left = Decimal(max(0, whole - ledger.rollouts))
        roles = {row.role for row in self.roles} | {role for role, _ in ledger.sums}
        rest = _sum([self._rest(role, ledger, left / whole) for role in roles if left], ZERO)
        if rest is None:
            return None
        return _least(round(spent + rest, 6) if spent + rest else ZERO, self.max_cost)

    def _rest(self, role: Role, ledger: Ledger, share: Decimal) -> Decimal | None:
        """Return what the share of the run that is left is expected to cost."""
        rows = [row.expected for row in self.roles if row.role is role]
        calls, cost = ledger.spent_on(role)
        if calls and role is Role.TEACHER:
            return ZERO
        if calls and role is not Role.REFLECTION:
            return cost / max(1, ledger.rollouts) * self.expected_rollouts * share
        planned = _sum([row.calls for row in rows], 0)
        whole = _sum([row.cost for row in rows], ZERO)
        if calls:
            whole = None if planned is None else cost / calls * planned
        return None if whole is None else whole * share

    @property
    def line(self) -> str:
        """The plan in one line."""
        fewest, most = self.proposals.if_accepted, self.proposals.if_refused
        proposals = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        expected = _amount(self.expected_tokens, self.expected_cost)
        bound = _amount(self.tokens, self.cost)
        calls = f"{self.rollouts} rollouts" + (", " if bound else " and ")
        return (
            f"plan: {f'about {expected}' if expected else 'tokens and price unknown'}; at most "
            f"{calls}{self.reflections} reflections{f' and {bound}' if bound else ''}; "
            f"{proposals} proposals"
        )

    @property
    def event(self) -> RunPlanned:
        """What is told of the plan when a run begins."""
        return RunPlanned(
            budget=self.rollouts,
            line=self.line,
            warnings=self.warnings,
            expected_cost=self.expected_cost,
            max_cost=self.max_cost,
            max_tokens=self.max_tokens,
            max_seconds=self.max_seconds,
        )

    def as_json(self) -> dict[str, Json]:
        """Return the plan for machines; money is a decimal number as text."""
        return {
            "rollouts": self.rollouts,
            "reflections": self.reflections,
            "proposals": {
                "if_accepted": self.proposals.if_accepted,
                "if_refused": self.proposals.if_refused,
            },
            "tokens": self.tokens,
            "cost": money(self.cost),
            "expected": {
                "rollouts": self.expected_rollouts,
                "answer_tokens": self.answer_tokens,
                "answer_from": self.answer_from,
                "tokens": self.expected_tokens,
                "cost": money(self.expected_cost),
            },
            "max_tokens": self.max_tokens,
            "max_cost": money(self.max_cost),
            "max_seconds": self.max_seconds,
            "first_call": self.first_call,
            "roles": [role.as_json() for role in self.roles],
            "warnings": list(self.warnings),
        }

    def _card(self) -> Card:
        return Card(
            title="plan",
            lead=self.line.removeprefix("plan: "),
            fields=tuple(("warning", warning) for warning in self.warnings),
            blocks=(
                Table(
                    head=("expected", "calls", "tokens", "money", "model"),
                    rows=(_card_row(role, role.expected) for role in self.roles),
                ),
                Table(
                    head=("at most", "calls", "tokens", "money", "model"),
                    rows=(_card_row(role, role) for role in self.roles),
                ),
            ),
        )


def _card_row(role: RolePlan, use: Use) -> tuple[str, ...]:
    counts = ("unknown" if one is None else f"{one:,}" for one in (use.calls, use.tokens))
    return role.role, *counts, dollars(use.cost), role.model


N = TypeVar("N", int, Decimal)


def _sum(values: Sequence[N | None], start: N) -> N | None:
    """Return the sum; None when a value is not known."""
    known = [value for value in values if value is not None]
    return sum(known, start) if len(known) == len(values) else None


def _least(value: N | None, limit: N | None) -> N | None:
    """Return a value within a limit, each of which may be unknown."""
    known = [one for one in (value, limit) if one is not None]
    return min(known) if known else None


def _amount(tokens: int | None, cost: Decimal | None) -> str:
    """Return both in words; empty when neither is known."""
    if tokens is None and cost is None:
        return ""
    counted = "an unknown number of" if tokens is None else short_count(tokens)
    return f"{counted} tokens {'of unknown price' if cost is None else f'for {dollars(cost)}'}"
