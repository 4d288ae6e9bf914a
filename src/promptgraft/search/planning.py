"""Estimating a run before its first call: from rendered prompts, examples and settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from statistics import fmean
from typing import Any

import attrs

from promptgraft.adapters.base import (
    MeteredAdapter,
    ProviderAdapter,
    ThinkingAdapter,
    Usage,
    adapter_identity,
)
from promptgraft.evals.judges.panel import ATTEMPTS, JudgeMetric
from promptgraft.evals.judges.prompts import LONGEST_SHOWN, Refused
from promptgraft.evals.metrics.base import AllOf
from promptgraft.evals.types import Answer, Case, Metric
from promptgraft.overrides.resolution import resolve_override
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.search.algorithm import Questions
from promptgraft.search.config import RunConfig
from promptgraft.search.plan import RolePlan, RunPlan, Use
from promptgraft.search.stopping import MaxProposals
from promptgraft.targets.base import Target
from promptgraft.targets.estimating import Estimate, Sizes, chars_of_schema, sent_chars
from promptgraft.targets.formatting import default_example_formatter
from promptgraft.targets.judging import MetricFeedback
from promptgraft.targets.spending import Role

CHARS_PER_TOKEN = 4
"""Characters of English text that make a token, about."""

FEEDBACK_CHARS = 1_000
"""Longest feedback that is reckoned with: what a feedback function writes is not known before."""

_LEAST_ACCEPTED = 3
_FEW = 10
_FEEDBACK = 200
_MOST_CASES = 300
_GROWTH = 100
"""Characters that a prompt gains by its first change, on average; later ones add less."""
_CALL, _RESULT = 100, 300
"""Characters of a call of a tool, and of what it returns."""
_AROUND = 100
"""Characters of a reply around the new text."""


def plan_run(
    target: Target,
    config: RunConfig,
    *,
    task: ProviderAdapter | None,
    reflection: ProviderAdapter,
    questions: Questions,
) -> RunPlan:
    """Say what a run is expected to use, and what it can use."""
    limits, budget = config.limits, config.budget
    affordable = proposals = config.pays_for(budget)
    reflections = config.most_questions(budget)
    limit = limits.max_reflections
    if limit is not None:
        reflections = min(reflections, limit)
        proposals = proposals.limited(limit)
    for stopper in limits.stoppers:
        if isinstance(stopper, MaxProposals):
            proposals = proposals.limited(stopper.proposals)
    share = proposals.expected / affordable.expected if affordable.expected else 1.0
    fixed = config.baseline_size + config.reserved_size
    outlook = _Outlook(
        target=target,
        config=config,
        estimate=target.estimate(config.training_examples),
        questions=questions,
        rollouts=fixed + round(share * (budget - fixed)),
        reflections=reflections,
        proposals=proposals.expected,
    )
    return RunPlan(
        rollouts=budget,
        reflections=reflections,
        proposals=proposals,
        roles=(outlook.task(task), *outlook.judges(task), outlook.reflection(reflection, task)),
        max_cost=limits.max_cost,
        max_tokens=limits.max_tokens,
        warnings=(*_warnings(config), *_outdated(questions)),
        max_seconds=limits.timeout,
        expected_rollouts=outlook.rollouts,
    )


@attrs.frozen(kw_only=True)
class _Outlook:
    """What is known of a run before its first call.

    Attributes:
        estimate: how much a rollout of the baseline sends and receives.
        rollouts: those that are expected.
        reflections: those that can be used.
        proposals: those that are expected.
    """

    target: Target
    config: RunConfig
    estimate: Estimate
    questions: Questions
    rollouts: int
    reflections: int
    proposals: int

    @property
    def growth(self) -> float:
        """Characters that the whole prompt is expected to be longer by, on average over a run."""
        room = room_of(self.target, self.config)
        return min(room, _GROWTH * math.sqrt(max(1, self.proposals / 2)))

    def task(self, adapter: ProviderAdapter | None) -> RolePlan:
        """Return what rollouts use; at most with all that the parts can grow by."""
        found = self.estimate
        if adapter is None or found.chars is None or found.mean_chars is None:
            return RolePlan(role=Role.TASK, model=self.target.identity.model)
        turns = 1 + found.rounds
        longest = found.chars + room_of(self.target, self.config)
        expected = _use(
            adapter,
            calls=round(self.rollouts * turns),
            sent=found.mean_chars + self.growth + found.rounds / 2 * (_CALL + _RESULT),
            received=(found.answer_chars + found.rounds * _CALL) / turns,
        )
        return _row(
            Role.TASK,
            adapter,
            calls=math.ceil(self.config.budget * turns),
            chars=longest,
            expected=expected,
        )

    def judges(self, task: ProviderAdapter | None) -> Iterator[RolePlan]:
        """Yield what each judge is asked, as far as that is known beforehand."""
        feedback, examples = self.config.feedback_fn, self.config.training_examples
        if not isinstance(feedback, MetricFeedback):
            return
        cases = [one.label for one in examples if isinstance(one.label, Case)]
        cases.sort(key=lambda case: len(str(case.input)), reverse=True)
        # The longest case, and others of all lengths.
        sample = cases[:: math.ceil(len(cases) / _MOST_CASES)]
        answer = Answer(text="x" * round(self.estimate.answer_chars))
        asked: dict[str, list[tuple[ProviderAdapter, RenderedPrompt[Any]]]] = {}
        for case in sample:
            for judge, prompt in _questions(feedback.metrics, case, answer):
                asked.setdefault(adapter_identity(judge), []).append((judge, prompt.render()))
        for rows in asked.values():
            judge, sent = rows[0][0], [sent_chars(rendered) for _, rendered in rows]
            expected = _use(
                judge,
                calls=round(self.rollouts * len(rows) / len(sample)),
                sent=fmean(sent),
                received=fmean(chars_of_schema(one.output_schema or {}) for _, one in rows),
            )
            # With the longest answer, and in a second attempt with the refused reply.
            longest = max(sent) - len(answer.text) + _longest_chars(task) + _longest_chars(judge)
            calls = ATTEMPTS * self.config.budget * math.ceil(len(rows) / len(sample))
            yield _row(Role.JUDGE, judge, calls=calls, chars=longest, expected=expected)

    def reflection(self, adapter: ProviderAdapter, task: ProviderAdapter | None) -> RolePlan:
        """Return what questions use."""
        config, target, growth = self.config, self.target, self.growth
        longest = max(config.question_chars(target, self.questions, self._longest(task)))
        chars = config.question_chars(target, self.questions, self._typical)
        modules, baseline = target.modules, target.baseline()
        texts = fmean(0 if one.is_new else len(target.text(one, baseline)) for one in modules)
        expected = _use(
            adapter,
            calls=min(self.reflections, config.expected_questions(self.proposals, len(modules))),
            sent=fmean(chars) + growth,
            received=texts + growth / len(modules) + _AROUND,
        )
        return _row(
            Role.REFLECTION,
            adapter,
            calls=self.reflections,
            chars=longest + room_of(target, config),
            expected=expected,
        )

    @property
    def _typical(self) -> Sizes:
        config, found = self.config, self.estimate
        return Sizes(
            input=round(fmean(self._inputs)),
            answer=min(config.max_example_chars, round(found.answer_chars)),
            trace=round(found.rounds * (_CALL + _RESULT)),
            feedback=_FEEDBACK,
        )

    def _longest(self, task: ProviderAdapter | None) -> Sizes:
        config, answer = self.config, None if task is None else longest_answer(task)
        shown = config.max_example_chars
        traced = config.trace_formatter is not None or self.estimate.leaves_traces
        return Sizes(
            input=max(self._inputs),
            answer=shown if answer is None else min(shown, answer * CHARS_PER_TOKEN),
            trace=config.max_trace_chars if traced else 0,
            feedback=FEEDBACK_CHARS,
            # Longer than what is shown of a refused reply and of the reason, which are clipped.
            refused=max(_bounds(self.target)) + 10_000,
        )

    @property
    def _inputs(self) -> list[int]:
        """Characters of inputs as a reflector sees them; a user's formatter is not called."""
        shown = self.config.max_example_chars
        if self.config.example_formatter is not None:
            return [shown]
        examples = self.config.training_examples
        return [min(shown, len(default_example_formatter(one, None)[0])) for one in examples]


def _questions(
    metrics: Iterable[Metric], case: Case, answer: Answer
) -> Iterator[tuple[ProviderAdapter, Prompt[Any]]]:
    """Yield what judges are asked of an answer, each time with the judge."""
    for metric in metrics:
        if isinstance(metric, AllOf):
            yield from _questions(metric.metrics, case, answer)
        elif isinstance(metric, JudgeMetric) and (asked := metric.question(case, answer)):
            first = asked.bind(Refused())
            yield from ((judge, first) for judge in metric.judges for _ in range(metric.samples))


def _row(
    role: Role, adapter: ProviderAdapter, *, calls: int, chars: float, expected: Use
) -> RolePlan:
    """Return what calls use at most, each with so many characters and the longest answer."""
    most = _costing(adapter, calls, tokens_of(chars), longest_answer(adapter))
    return RolePlan(
        role=role, model=adapter_identity(adapter), expected=expected, **attrs.asdict(most)
    )


def _use(adapter: ProviderAdapter, *, calls: int, sent: float, received: float) -> Use:
    """Return what calls are expected to use, by the characters of one."""
    thinking = adapter.thinking if isinstance(adapter, ThinkingAdapter) else 0
    answer, longest = tokens_of(received) + thinking, longest_answer(adapter)
    answer = answer if longest is None else min(answer, longest)
    return _costing(adapter, calls, tokens_of(sent), answer)


def _costing(adapter: ProviderAdapter, calls: int, sent: int, received: int | None) -> Use:
    cost: Decimal | None = None
    if isinstance(adapter, MeteredAdapter) and received is not None:
        each = adapter.price_of(Usage(input_tokens=sent, output_tokens=received))
        cost = None if each is None else each * calls
    return Use(calls=calls, input_tokens=sent, output_tokens=received, cost=cost)


def tokens_of(chars: float) -> int:
    """Return how many tokens a text of so many characters has, about."""
    return math.ceil(chars / CHARS_PER_TOKEN)


def longest_answer(adapter: ProviderAdapter) -> int | None:
    """Return the tokens of the longest answer; None when the adapter does not know."""
    return adapter.longest_answer if isinstance(adapter, MeteredAdapter) else None


def _longest_chars(adapter: ProviderAdapter | None) -> int:
    """Return the characters of the longest answer that a judge is shown."""
    answer = None if adapter is None else longest_answer(adapter)
    return LONGEST_SHOWN if answer is None else min(LONGEST_SHOWN, answer * CHARS_PER_TOKEN)


def room_of(target: Target, config: RunConfig) -> int:
    """Return the characters by which the parts that may change can grow."""
    baseline = target.baseline()
    room = 0
    for module, longest in zip(target.modules, _bounds(target), strict=True):
        if module.is_new:
            room += config.max_task_examples_per_section * longest
        else:
            room += max(0, longest - len(target.text(module, baseline)))
    return room


def _bounds(target: Target) -> list[int]:
    """Return how long each part may get."""
    baseline = target.baseline()
    return [target.describe(module, baseline).max_chars for module in target.modules]


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
