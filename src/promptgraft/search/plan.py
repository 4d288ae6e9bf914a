"""What a run can use, estimated before its first call."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import attrs

from promptgraft.adapters.base import MeteredAdapter, ProviderAdapter, Usage
from promptgraft.notebook import Card, Shown, Table
from promptgraft.overrides.resolution import resolve_override
from promptgraft.search.algorithm import Questions
from promptgraft.search.budgets import Affordable
from promptgraft.search.config import RunConfig
from promptgraft.search.ledger import money
from promptgraft.search.stoppers import MaxProposals
from promptgraft.serde import Json
from promptgraft.targets.base import Target
from promptgraft.targets.spending import Role
from promptgraft.text import dollars

_LEAST_ACCEPTED = 3
_FEW = 10


@attrs.frozen(kw_only=True)
class RolePlan:
    """What one role can use.

    Attributes:
        role: what the calls are for.
        model: the identity of what answers.
        calls: at most, without rounds of tools and retries; None where a target makes them.
        input_tokens: of one call, at most, estimated; None when that is not known.
        output_tokens: of one call, at most; None when the model's limit is not known.
        cost: US dollars for all calls, at most; None when the price or the limit is not known.
    """

    role: Role
    model: str
    calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None

    @property
    def tokens(self) -> int | None:
        """Tokens of all calls, at most; None when the limit of an answer is not known."""
        if self.calls is None or self.input_tokens is None or self.output_tokens is None:
            return None
        return self.calls * (self.input_tokens + self.output_tokens)

    def as_json(self) -> dict[str, Json]:
        """Return the same for machines; money is a decimal number as text."""
        return {
            "role": self.role.value,
            "model": self.model,
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "tokens": self.tokens,
            "cost": money(self.cost),
        }


@attrs.frozen(kw_only=True)
class RunPlan(Shown):
    """What the settings of a run let it use. An estimate: no call is made for it.

    Attributes:
        rollouts: at most.
        reflections: at most, repairs of replies included.
        proposals: how many the rollouts, and ``max_reflections``, pay for.
        roles: what tasks and reflections can use; what a feedback function calls is not known.
        max_cost: US dollars at which the run is stopped; None for no such limit.
        max_tokens: tokens at which it is stopped; None for no such limit.
        warnings: what makes the plan a bad one, a line each.
        max_seconds: wall time after which it is stopped; None for no such limit.
    """

    rollouts: int
    reflections: int
    proposals: Affordable
    roles: tuple[RolePlan, ...]
    max_cost: Decimal | None
    max_tokens: int | None
    warnings: tuple[str, ...]
    max_seconds: float | None = None

    @property
    def tokens(self) -> int | None:
        """Tokens of all calls, at most, or ``max_tokens``; None when that is not known."""
        of_roles = [role.tokens for role in self.roles]
        known = [tokens for tokens in of_roles if tokens is not None]
        whole = sum(known) if len(known) == len(of_roles) else None
        if whole is None or self.max_tokens is None:
            return self.max_tokens if whole is None else whole
        return min(whole, self.max_tokens)

    @property
    def cost(self) -> Decimal | None:
        """US dollars of all calls, at most, or ``max_cost``; None when that is not known."""
        known = [role.cost for role in self.roles if role.cost is not None]
        whole = sum(known, Decimal(0)) if len(known) == len(self.roles) else None
        if whole is None or self.max_cost is None:
            return self.max_cost if whole is None else whole
        return min(whole, self.max_cost)

    @property
    def line(self) -> str:
        """The plan in one line."""
        fewest, most = self.proposals.if_accepted, self.proposals.if_refused
        tokens = "an unknown number of" if self.tokens is None else f"{self.tokens:,}"
        priced = "of unknown price" if self.cost is None else f"{self.cost:,.2f} US dollars"
        proposals = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        return (
            f"plan: at most {self.rollouts} rollouts, {self.reflections} reflections and "
            f"{tokens} tokens, {priced}; {proposals} proposals"
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
            "max_tokens": self.max_tokens,
            "max_cost": money(self.max_cost),
            "max_seconds": self.max_seconds,
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
                    head=("", "calls", "tokens", "money", "model"),
                    rows=(
                        (
                            role.role,
                            "unknown" if role.calls is None else f"{role.calls:,}",
                            "unknown" if role.tokens is None else f"{role.tokens:,}",
                            dollars(role.cost),
                            role.model,
                        )
                        for role in self.roles
                    ),
                ),
            ),
        )


def plan_run(
    target: Target,
    config: RunConfig,
    *,
    task: ProviderAdapter | None,
    reflection: ProviderAdapter,
    questions: Questions,
) -> RunPlan:
    """Say what a run can use."""
    limits, budget = config.limits, config.budget
    proposals, reflections = config.pays_for(budget), config.most_questions(budget)
    limit = limits.max_reflections
    if limit is not None:
        reflections = min(reflections, limit)
        proposals = proposals.limited(limit)
    for stopper in limits.stoppers:
        if isinstance(stopper, MaxProposals):
            proposals = proposals.limited(stopper.proposals)
    answer = None if task is None else longest_answer(task)
    question = config.longest_question(target, questions, answer=answer)
    return RunPlan(
        rollouts=budget,
        reflections=reflections,
        proposals=proposals,
        roles=(
            _task(target, config, task),
            _role(Role.REFLECTION, reflection, calls=reflections, chars=question),
        ),
        max_cost=limits.max_cost,
        max_tokens=limits.max_tokens,
        warnings=(*_warnings(config), *_outdated(questions)),
        max_seconds=limits.timeout,
    )


def _task(target: Target, config: RunConfig, adapter: ProviderAdapter | None) -> RolePlan:
    """Return what rollouts can use: with the longest input of now and all that parts can grow."""
    chars = target.estimate(config.training_examples).chars
    if adapter is None or chars is None:
        return RolePlan(role=Role.TASK, model=target.identity.model)
    longest = chars + room_of(target, config)
    return _role(Role.TASK, adapter, calls=config.budget, chars=longest)


def _role(role: Role, adapter: ProviderAdapter, *, calls: int, chars: int) -> RolePlan:
    tokens, answer = tokens_of(chars), longest_answer(adapter)
    cost = None
    if isinstance(adapter, MeteredAdapter) and answer is not None:
        each = adapter.price_of(Usage(input_tokens=tokens, output_tokens=answer))
        cost = None if each is None else each * calls
    return RolePlan(
        role=role,
        model=adapter.identity,
        calls=calls,
        input_tokens=tokens,
        output_tokens=answer,
        cost=cost,
    )


def _warnings(config: RunConfig) -> tuple[str, ...]:
    warnings = []
    budget = config.budget
    needed = config.rollouts_for(_LEAST_ACCEPTED)
    if budget < needed:
        most = config.pays_for(budget).if_accepted
        warnings.append(
            f"rollout_budget: {budget} rollouts pay for only {most} accepted "
            f"proposals; raise it to {needed} for {_LEAST_ACCEPTED}, or lower pareto_set_size or "
            "minibatch_size"
        )
    limit = config.limits.max_reflections
    if limit is not None and limit < _LEAST_ACCEPTED:
        warnings.append(
            f"limits.max_reflections: {limit} reflections give at most {limit} proposals; raise "
            f"it to {_LEAST_ACCEPTED} or more"
        )
    return (*_few_examples(config), *config.warnings, *warnings)


def _few_examples(config: RunConfig) -> Iterator[str]:
    sizes = {
        "training": len(config.training_examples) - config.pareto_set_size,
        "validation": config.pareto_set_size,
        "held-out": len(config.data.held_out),
    }
    if few := [f"{size} {name}" for name, size in sizes.items() if 0 < size < _FEW]:
        yield (
            f"there are only {', '.join(few)} examples; with fewer than {_FEW} in a set a gain "
            "may be luck"
        )


def _outdated(questions: Questions) -> Iterator[str]:
    """Yield a line for each meta-prompt with overrides that were made for another shipped text."""
    for prompt in questions.values():
        store, descriptor = prompt.overrides_store, prompt.descriptor
        found = store.resolve(descriptor) if store is not None else None
        skipped = resolve_override(descriptor, found).skipped
        if skipped:
            parts = ", ".join(f"{one.part} ({one.reason})" for one in skipped)
            yield (
                f"meta-prompt `{descriptor.key}`: {parts}: the override is not applied, because "
                "the shipped text is another one now; see `promptgraft meta diff`, then "
                f"`promptgraft meta reset {descriptor.key}`"
            )


CHARS_PER_TOKEN = 4
"""Characters of English text that make a token, about."""

FEEDBACK_CHARS = 1_000
"""Assumed length of feedback: what a feedback function writes is not known in advance."""


def tokens_of(chars: int) -> int:
    """Return how many tokens a text of so many characters has, about."""
    return -(-chars // CHARS_PER_TOKEN)


def longest_answer(adapter: ProviderAdapter) -> int | None:
    """Return the tokens of the longest answer; None when the adapter does not know."""
    return adapter.longest_answer if isinstance(adapter, MeteredAdapter) else None


def room_of(target: Target, config: RunConfig) -> int:
    """Return the characters by which the parts that may change can grow."""
    baseline = target.baseline()
    room = 0
    for module in target.modules:
        if module.is_new:
            room += config.max_task_examples_per_section * config.guards.max_part_chars
        else:
            room += max(0, config.guards.max_part_chars - len(target.text(module, baseline)))
    return room
