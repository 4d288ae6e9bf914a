"""What a run can use, said before it uses anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import attrs

from promptgraft.adapters.base import MeteredAdapter, ProviderAdapter, Usage
from promptgraft.optimizers.gepa.budgets import Affordable, affordable
from promptgraft.optimizers.gepa.config import GepaConfig
from promptgraft.optimizers.gepa.prompts import reflection_params
from promptgraft.optimizers.ledger import Role
from promptgraft.optimizers.prompt_target import PromptTarget
from promptgraft.optimizers.types import MetaPrompt
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.template import Prompt

_CHARS_PER_TOKEN = 4
_SAMPLED_EXAMPLES = 20
_REFLECTIONS_PER_STEP = 2
_LEAST_ACCEPTED = 3


@attrs.frozen(kw_only=True)
class RolePlan:
    """What one role can use.

    Attributes:
        role: what the calls are for.
        model: the identity of what answers.
        calls: at most, without rounds of tools and retries.
        input_tokens: of one call, about: characters divided by 4.
        output_tokens: of one call, at most; None when the model's limit is not known.
        cost: US dollars for all calls, at most; None when the price or the limit is not known.
    """

    role: Role
    model: str
    calls: int
    input_tokens: int
    output_tokens: int | None
    cost: Decimal | None


@attrs.frozen(kw_only=True)
class RunPlan:
    """What the settings of a run let it use. An estimate: no call is made for it.

    Attributes:
        rollouts: at most.
        reflections: at most.
        proposals: how many the rollouts pay for.
        roles: what tasks and reflections can use; what a feedback function calls is not known.
        max_cost: US dollars at which the run is stopped; None for no such limit.
        max_tokens: tokens at which it is stopped; None for no such limit.
        warnings: what makes the plan a bad one, a line each.
    """

    rollouts: int
    reflections: int
    proposals: Affordable
    roles: tuple[RolePlan, ...]
    max_cost: Decimal | None
    max_tokens: int | None
    warnings: tuple[str, ...]

    @property
    def tokens(self) -> int | None:
        """Tokens of all calls, at most, or ``max_tokens``; None when that is not known."""
        whole = 0
        for role in self.roles:
            if role.output_tokens is None:
                return self.max_tokens
            whole += role.calls * (role.input_tokens + role.output_tokens)
        return whole if self.max_tokens is None else min(whole, self.max_tokens)

    @property
    def cost(self) -> Decimal | None:
        """US dollars of all calls, at most, or ``max_cost``; None when that is not known."""
        whole = Decimal(0)
        for role in self.roles:
            if role.cost is None:
                return self.max_cost
            whole += role.cost
        return whole if self.max_cost is None else min(whole, self.max_cost)

    @property
    def line(self) -> str:
        """The plan in one line."""
        fewest, most = self.proposals.if_accepted, self.proposals.if_refused
        tokens = "an unknown number of" if self.tokens is None else f"{self.tokens:,}"
        money = "of unknown price" if self.cost is None else f"{self.cost:.2f} US dollars"
        return (
            f"plan: at most {self.rollouts} rollouts, {self.reflections} reflections and "
            f"{tokens} tokens, {money}; {fewest} to {most} proposals"
        )


def plan_run(
    target: PromptTarget,
    config: GepaConfig,
    *,
    task: ProviderAdapter,
    reflection: ProviderAdapter,
    meta_prompts: Mapping[MetaPrompt, Prompt[object]],
) -> RunPlan:
    """Say what a run can use."""
    proposals = affordable(config.rollout_budget, config)
    reflections = _REFLECTIONS_PER_STEP * proposals.if_refused
    if config.max_reflections is not None:
        reflections = min(reflections, config.max_reflections)
    rendered = _rendered(target, config)
    shown = _mean([_bound_chars(prompt) for prompt in rendered])
    return RunPlan(
        rollouts=config.rollout_budget,
        reflections=reflections,
        proposals=proposals,
        roles=(
            _role(
                Role.TASK,
                task,
                calls=config.rollout_budget,
                chars=_mean([len(prompt.text) for prompt in rendered]),
            ),
            _role(
                Role.REFLECTION,
                reflection,
                calls=reflections,
                chars=_question_chars(target, meta_prompts) + config.batch_size * shown,
            ),
        ),
        max_cost=config.max_cost,
        max_tokens=config.max_tokens,
        warnings=_warnings(proposals, config),
    )


def _rendered(target: PromptTarget, config: GepaConfig) -> list[RenderedPrompt[object]]:
    examples = config.training_examples
    every = max(1, len(examples) // _SAMPLED_EXAMPLES)
    prompt = target.rollout.prompt_of(target.baseline())
    return [prompt.bind(*example.params).render() for example in examples[::every]]


def _bound_chars(rendered: RenderedPrompt[object]) -> int:
    return sum(
        len(segment.text)
        for section in rendered.sections
        for segment in section.segments
        if segment.placeholder is not None
    )


def _question_chars(target: PromptTarget, meta_prompts: Mapping[MetaPrompt, Prompt[object]]) -> int:
    """Return the length of a question about a part, without what it shows of rollouts."""
    baseline = target.baseline()
    questions = []
    for module in target.modules:
        description = target.describe(module, baseline)
        question = meta_prompts[description.meta_prompt].bind(reflection_params(description, ()))
        questions.append(len(question.render().text))
    return _mean(questions)


def _role(role: Role, adapter: ProviderAdapter, *, calls: int, chars: int) -> RolePlan:
    tokens = chars // _CHARS_PER_TOKEN
    longest = adapter.longest_answer if isinstance(adapter, MeteredAdapter) else None
    cost = None
    if isinstance(adapter, MeteredAdapter) and longest is not None:
        each = adapter.price_of(Usage(input_tokens=tokens, output_tokens=longest))
        cost = None if each is None else each * calls
    return RolePlan(
        role=role,
        model=adapter.identity,
        calls=calls,
        input_tokens=tokens,
        output_tokens=longest,
        cost=cost,
    )


def _warnings(proposals: Affordable, config: GepaConfig) -> tuple[str, ...]:
    if proposals.if_accepted >= _LEAST_ACCEPTED:
        return ()
    merges = min(config.merges, _LEAST_ACCEPTED) * config.pareto_set_size
    needed = config.pareto_set_size + _LEAST_ACCEPTED * config.step_size + merges
    warning = (
        f"rollout_budget: {config.rollout_budget} rollouts can accept at most "
        f"{proposals.if_accepted} of the proposals; raise it to {needed} for {_LEAST_ACCEPTED}, "
        "or lower pareto_set_size"
    )
    return (warning,)


def _mean(lengths: Sequence[int]) -> int:
    return sum(lengths) // len(lengths) if lengths else 0
