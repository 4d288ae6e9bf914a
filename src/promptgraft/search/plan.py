"""The plan of a run: what it is expected to use, and what its settings let it use."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TypeVar

import attrs

from promptgraft.evals.spending import Role
from promptgraft.ground.notebook import Card, Shown, Table
from promptgraft.ground.serde import Json
from promptgraft.ground.text import counted, dollars, model_in_words, number_or_unknown, short_count
from promptgraft.runtime.session import ZERO
from promptgraft.search.events import RunPlanned
from promptgraft.search.ledger import Ledger, money
from promptgraft.search.settings import Affordable


@attrs.frozen(kw_only=True)
class Use:
    """Calls, with their tokens and cost.

    Attributes:
        calls: number of calls; None, here and below, if it is not known.
        input_tokens: tokens sent per call.
        output_tokens: tokens received per call.
        cost: US dollars for all calls.
    """

    calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None

    @property
    def tokens(self) -> int | None:
        """Tokens of all calls; None if something is not known."""
        if self.calls is None or self.input_tokens is None or self.output_tokens is None:
            return None
        return self.calls * (self.input_tokens + self.output_tokens)

    def as_json(self) -> dict[str, Json]:
        """Return it as JSON; money is a decimal number as text."""
        return {
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "tokens": self.tokens,
            "cost": money(self.cost),
        }


@attrs.frozen(kw_only=True)
class SeenUse:
    """Average use of a model in one role, or of a node of a graph, in an earlier run or a probe.

    Attributes:
        role: the purpose of the calls.
        model: the model, as its provider names it; empty for a node.
        calls: calls per answer.
        input_tokens: tokens sent per call, including cached ones; 0 if not known.
        output_tokens: tokens received per call, including thoughts.
        cached_tokens: tokens per call that the provider read from its cache.
        thinking: tokens per call that the model thought; 0 if the provider does not count them.
        cost: US dollars per call; None if a price is not known.
    """

    role: Role = Role.TASK
    model: str = ""
    calls: float
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    cached_tokens: float = 0.0
    thinking: float = 0.0
    cost: Decimal | None = None

    def of_answers(self, answers: float) -> Use:
        """Return the use of this many answers."""
        calls = round(answers * self.calls)
        return Use(
            calls=calls,
            input_tokens=math.ceil(self.input_tokens),
            output_tokens=math.ceil(self.output_tokens),
            cost=None if self.cost is None else self.cost * calls,
        )


@attrs.frozen(kw_only=True)
class SeenAnswers:
    """What answers used in an earlier run or a probe.

    Attributes:
        where: the run, as the plan names it.
        uses: the use of each model in each role whose tokens are known.
        nodes: use of the nodes of a graph, by name; empty for other subjects.
        is_probe: whether it is a probe of the same prompt: what was sent is then known too.
    """

    where: str
    uses: tuple[SeenUse, ...] = ()
    nodes: Mapping[str, SeenUse] = attrs.field(factory=dict)
    is_probe: bool = False

    def use_of(self, role: Role, identity: str) -> SeenUse | None:
        """Return what an adapter used in a role; None if that is not known."""
        # The model is one of the words of an identity, such as `openai/1 MODEL effort='low'`; an
        # answer may name the dated model behind it.
        words = identity.split()
        for use in self.uses:
            dated = any(re.fullmatch(rf"{re.escape(word)}-[\d-]+", use.model) for word in words)
            if use.role is role and (use.model in words or dated):
                return use
        return None


@attrs.frozen(kw_only=True)
class RolePlan(Use):
    """What one role can use at most, without rounds of tools and retries.

    Attributes:
        role: the purpose of the calls.
        model: the identity of the adapter that answers.
        expected: what the role is expected to use, including rounds of tools.
        thinking: the part of the expected output tokens of a call that the model thinks.
        thinking_from: the basis of that estimate, in words; empty where nothing is expected.
    """

    role: Role
    model: str
    expected: Use = Use()
    thinking: int = 0
    thinking_from: str = ""

    @property
    def is_unpriced(self) -> bool:
        """Whether the tokens are known, but not their price."""
        return self.expected.tokens is not None and self.expected.cost is None

    def as_json(self) -> dict[str, Json]:
        return {
            "role": self.role.value,
            "model": self.model,
            **super().as_json(),
            "expected": {
                **self.expected.as_json(),
                "thinking": self.thinking,
                "thinking_from": self.thinking_from,
            },
        }


@attrs.frozen(kw_only=True)
class RunPlan(Shown):
    """What a run is expected to use, and what its settings let it use. Made without any call.

    Attributes:
        rollouts: rollouts, at most.
        reflections: reflections, at most, including repairs of replies.
        proposals: how many proposals the rollouts, and ``max_reflections``, pay for.
        roles: use of the teacher, tasks, judges and questions; other calls of a feedback function
            are not known.
        expected_rollouts: expected rollouts; fewer only if proposals are limited.
        answer_tokens: expected tokens of an answer, without thinking; None if not known.
        answer_from: the basis of that estimate, in words; empty if not known.
        max_cost: US dollars at which the run is stopped; None for no limit.
        max_tokens: tokens at which it is stopped; None for no limit.
        warnings: problems of the plan, a line each.
        max_seconds: wall time after which it is stopped; None for no limit.
        first_call: calls before the baseline, in words; empty for none.
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
        """Tokens of all calls, at most, or ``max_tokens``; None if not known."""
        return _least(_sum([role.tokens for role in self.roles], 0), self.max_tokens)

    @property
    def cost(self) -> Decimal | None:
        """US dollars of all calls, at most, or ``max_cost``; None if not known."""
        return _least(_sum([role.cost for role in self.roles], Decimal(0)), self.max_cost)

    @property
    def expected_tokens(self) -> int | None:
        """Expected tokens of all calls; None if not known."""
        whole = _sum([role.expected.tokens for role in self.roles], 0)
        return None if whole is None else _least(whole, self.max_tokens)

    @property
    def expected_cost(self) -> Decimal | None:
        """Expected US dollars of all calls; None if not known."""
        return self.forecast(Ledger(self.rollouts))

    def forecast(self, ledger: Ledger) -> Decimal | None:
        """Return the expected cost of the whole run in US dollars, given what it has used so far.

        Remaining calls cost the average of similar calls so far, or as planned if there were none.
        None if a price is not known.
        """
        whole, spent = self.expected_rollouts, ledger.known_cost
        if spent is None:
            return None
        remaining = Decimal(max(0, whole - ledger.rollouts))
        roles = {row.role for row in self.roles} | {role for role, _ in ledger.sums}
        rest = _sum(
            [self._rest(role, ledger, remaining / whole) for role in roles if remaining], ZERO
        )
        if rest is None:
            return None
        return _least(round(spent + rest, 6) if spent + rest else ZERO, self.max_cost)

    def _rest(self, role: Role, ledger: Ledger, share: Decimal) -> Decimal | None:
        """Return the expected cost of the remaining share of the run."""
        rows = [row.expected for row in self.roles if row.role is role]
        calls, cost = ledger.spent_on(role)
        # All of its questions are asked before the first rollout.
        if calls and role is Role.TEACHER:
            return ZERO
        if calls and role is not Role.REFLECTION:
            return cost / max(1, ledger.rollouts) * self.expected_rollouts * share
        # By planned calls: rollouts so far include those of the baseline, which asks nothing.
        planned = _sum([row.calls for row in rows], 0)
        whole = _sum([row.cost for row in rows], ZERO)
        if calls:
            whole = None if planned is None else cost / calls * planned
        return None if whole is None else whole * share

    @property
    def line(self) -> str:
        """The plan in one line."""
        calls = f"about {counted(self.expected_rollouts, 'test call')}"
        reflections = _sum(
            [row.expected.calls for row in self.roles if row.role is Role.REFLECTION], 0
        )
        asked = f" and {counted(reflections, 'reflection call')}" if reflections else ""
        amount = _amount(self.expected_tokens, self.expected_cost)
        limit = "" if self.max_cost is None else f", stops at {dollars(self.max_cost)}"
        return f"plan: {calls}{asked}, {amount or 'tokens and price unknown'}{limit}"

    @property
    def event(self) -> RunPlanned:
        """The event that a run publishes when it begins."""
        return RunPlanned(
            budget=self.rollouts,
            line=self.line,
            warnings=self.warnings,
            expected_cost=self.expected_cost,
            max_cost=self.max_cost,
            max_tokens=self.max_tokens,
            max_seconds=self.max_seconds,
            proposals=self.proposals.if_refused,
        )

    def as_json(self) -> dict[str, Json]:
        """Return the plan as JSON; money is a decimal number as text."""
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
    counts = map(number_or_unknown, (use.calls, use.tokens))
    return role.role, *counts, dollars(use.cost), model_in_words(role.model)


N = TypeVar("N", int, Decimal)


def _sum(values: Sequence[N | None], start: N) -> N | None:
    """Return the sum; None if a value is not known."""
    numbers = [value for value in values if value is not None]
    return sum(numbers, start) if len(numbers) == len(values) else None


def _least(value: N | None, limit: N | None) -> N | None:
    """Return the smaller of a value and a limit, either of which may be unknown."""
    numbers = [number for number in (value, limit) if number is not None]
    return min(numbers) if numbers else None


def _amount(tokens: int | None, cost: Decimal | None) -> str:
    """Return both in words; empty when neither is known."""
    if tokens is None and cost is None:
        return ""
    length = "unknown tokens" if tokens is None else f"{short_count(tokens)} tokens"
    price = "price unknown" if cost is None else dollars(cost) if cost else "free"
    return f"{length}, {price}"
