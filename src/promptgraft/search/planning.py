"""Estimating a run before its first call: from rendered prompts, examples and settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cached_property
from statistics import fmean
from typing import Any

import attrs

from promptgraft.adapters.base import (
    ForeseenAdapter,
    ProviderAdapter,
    adapter_identity,
)
from promptgraft.agents.adapter import MOST_CALLS, AgentAdapter
from promptgraft.evals.causes import compares_expected, contradictions
from promptgraft.evals.judges.panel import ATTEMPTS, JudgeMetric, judges_of, shown_to
from promptgraft.evals.judges.prompts import LONGEST_SHOWN, Refused
from promptgraft.evals.metrics.base import AllOf
from promptgraft.evals.metrics.judging import turn_cases
from promptgraft.evals.spending import Role
from promptgraft.evals.statistics import least_cases
from promptgraft.evals.types import Answer, Case, Metric
from promptgraft.ground.clock import SystemClock
from promptgraft.ground.text import counted
from promptgraft.overrides.resolution import resolve_override
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.search.algorithm import Questions
from promptgraft.search.config import RunConfig
from promptgraft.search.fresh import LEVEL
from promptgraft.search.plan import RolePlan, RunPlan, SeenAnswers, Use
from promptgraft.search.planned_rows import (
    CALL,
    CHARS_PER_TOKEN,
    RESULT,
    in_batches,
    longest_answer,
    nodes_of,
    prompt_row,
    row,
    seen_thoughts,
    teaching_rows,
    tokens_of,
    used_by_agent,
)
from promptgraft.search.shown_images import ShownImages
from promptgraft.search.stopping import MaxProposals
from promptgraft.search.teacher import Teaching
from promptgraft.targets.base import Target
from promptgraft.targets.estimating import (
    STEPS_CHARS,
    Estimate,
    Sizes,
    chars_of_schema,
    file_chars,
    sent_chars,
)
from promptgraft.targets.formatting import default_example_formatter
from promptgraft.targets.judging import metrics_of

FEEDBACK_CHARS = 1_000
"""Assumed length of the longest feedback, which is not known in advance."""

_LEAST_ACCEPTED = 3
_FEW = 10
_FEEDBACK = 200
_MOST_CASES = 300
_GROWTH = 100
"""Characters that a prompt gains by its first change, on average; later ones add less."""
_STEPS = 1_500
"""Characters of the steps of a rollout."""
_AROUND = 100
"""Characters of a reply around the new text."""


def plan_run(
    target: Target,
    config: RunConfig,
    *,
    task: ProviderAdapter | None,
    reflection: ProviderAdapter,
    questions: Questions,
    seen: SeenAnswers | None = None,
    teaching: Teaching | None = None,
) -> RunPlan:
    """Return what a run is expected to use, and what it can use."""
    limits, budget = config.limits, config.budget
    affordable = proposals = config.pays_for(budget)
    estimate = _as_seen(target.estimate(config.training_examples), task, seen)
    reflections = config.most_questions(
        budget, modules=len(target.modules), steps=max(1, estimate.steps)
    )
    limit = limits.max_reflections
    if limit is not None:
        reflections = min(reflections, limit)
        proposals = proposals.limited(limit)
    for stopper in limits.stoppers:
        if isinstance(stopper, MaxProposals):
            proposals = proposals.limited(stopper.proposals)
    # A limit on proposals leaves the rollouts of those that are not made unused.
    share = proposals.expected / affordable.expected if affordable.expected else 1.0
    fixed = config.baseline_size + config.reserved_size
    outlook = _Outlook(
        target=target,
        config=config,
        estimate=estimate,
        questions=questions,
        rollouts=fixed + round(share * (budget - fixed)),
        reflections=reflections,
        proposals=proposals.expected,
        seen=seen,
    )
    taught = () if teaching is None else teaching_rows(teaching)
    return RunPlan(
        rollouts=budget,
        reflections=reflections,
        proposals=proposals,
        roles=(
            *taught,
            *outlook.task(task),
            *outlook.judges(task),
            *outlook.questions_to(reflection, task),
        ),
        max_cost=limits.max_cost,
        max_tokens=limits.max_tokens,
        warnings=(
            *_ends(outlook.asked(task, reflection, teaching)),
            *_warnings(config),
            *_outdated(questions),
        ),
        max_seconds=limits.timeout,
        first_call=_planned_call(task),
        expected_rollouts=outlook.rollouts,
        answer_tokens=tokens_of(estimate.answer_chars) if estimate.answer_from else None,
        answer_from=estimate.answer_from,
    )


def _planned_call(adapter: ProviderAdapter | None) -> str:
    """Return a description of the calls before a run; empty if there are none."""
    if not isinstance(adapter, AgentAdapter):
        return ""
    return (
        f"agent `{adapter.agent.name}` is asked the first turn of one case before the run, of "
        f"{MOST_CALLS} if it fails"
    )


def _as_seen(
    estimate: Estimate, task: ProviderAdapter | None, seen: SeenAnswers | None
) -> Estimate:
    """Return an estimate with answers as long as those of the same model in an earlier run."""
    if seen is None or task is None:
        return estimate
    thoughts = seen_thoughts(Role.TASK, task, seen)
    use = seen.use_of(Role.TASK, adapter_identity(task))
    if thoughts is None or use is None:
        return estimate
    # The inverse of `prompt_row`, which spreads answer and calls of tools over all turns, and of
    # `row`, which adds thinking.
    chars = (use.output_tokens - thoughts.tokens) * CHARS_PER_TOKEN * (1 + estimate.rounds)
    answer_chars = max(0, chars - estimate.rounds * CALL)
    return attrs.evolve(estimate, answer_chars=answer_chars, answer_from=seen.where)


@attrs.frozen(kw_only=True)
class _Outlook:
    """What is known about a run before its first call.

    ``rollouts`` and ``proposals`` are expected numbers, ``reflections`` is the maximum;
    ``estimate`` is for a rollout of the baseline.
    """

    target: Target
    config: RunConfig
    estimate: Estimate
    questions: Questions
    rollouts: int
    reflections: int
    proposals: int
    seen: SeenAnswers | None

    @cached_property
    def room(self) -> int:
        """Characters by which the modules can grow in total."""
        baseline = self.target.baseline()
        room = 0
        for module, longest in zip(self.target.modules, self._bounds, strict=True):
            if module.is_new:
                room += self.config.max_task_examples_per_section * longest
            else:
                room += max(0, longest - len(self.target.text(module, baseline)))
        return room

    @cached_property
    def _bounds(self) -> list[int]:
        """Maximum length of each module."""
        target, baseline = self.target, self.target.baseline()
        return [target.describe(module, baseline).max_chars for module in target.modules]

    def asked(
        self,
        task: ProviderAdapter | None,
        reflection: ProviderAdapter,
        teaching: Teaching | None,
    ) -> Iterator[ProviderAdapter]:
        """Yield all models of the run."""
        if (nodes := nodes_of(self.target)) is not None:
            yield from (adapter for _, adapter in nodes.flow.nodes.values())
        elif task is not None:
            yield task
        yield from judges_of(metrics_of(self.config.feedback_fn))
        yield reflection
        if teaching is not None:
            yield from teaching.teacher.models

    @property
    def runs(self) -> int:
        """Answers per rollout."""
        return self.config.objectives.num_runs

    @property
    def growth(self) -> float:
        """Expected growth of the whole prompt in characters, averaged over a run."""
        return min(self.room, _GROWTH * math.sqrt(max(1, self.proposals / 2)))

    def task(self, adapter: ProviderAdapter | None) -> Iterator[RolePlan]:
        """Yield the rows of rollouts; at most with the maximum growth of all modules."""
        most, expected = self.config.budget * self.runs, self.rollouts * self.runs
        if isinstance(adapter, AgentAdapter):
            yield self._agent(adapter)
        elif (nodes := nodes_of(self.target)) is not None:
            examples = self.config.training_examples
            inputs = fmean(len(default_example_formatter(example, None)[0]) for example in examples)
            yield from nodes.rows(
                Role.TASK, most, expected, inputs=inputs, growth=self.growth, seen=self.seen
            )
        elif adapter is None or self.estimate.mean_chars is None:
            yield RolePlan(role=Role.TASK, model=self.target.identity.model)
        else:
            grown = self.room, self.growth
            row_of_task = prompt_row(
                Role.TASK,
                adapter,
                self.estimate,
                (most, expected),
                grown=grown,
                seen=self.seen,
            )
            yield in_batches(row_of_task, adapter, *self.in_batches)

    @property
    def in_batches(self) -> tuple[Fraction, Fraction]:
        """Shares of the rollouts that evaluate whole sets: at least, and as expected."""
        config = self.config
        fixed = config.baseline_size + config.reserved_size
        # Every second proposal is accepted, as in `Affordable.expected`.
        entries = self.proposals // 2 * config.pareto_set_size
        expected = min(self.rollouts, fixed + entries)
        return Fraction(fixed, config.budget), Fraction(expected, self.rollouts)

    def _agent(self, adapter: AgentAdapter) -> RolePlan:
        """Return the row of an agent, whose cost is not known in advance."""
        turns = [adapter.most_turns(case) for case in self.config.cases] or [1]
        expected = Use(calls=round(self.rollouts * fmean(turns) * self.runs))
        # Its own name is what its calls are counted under.
        use = None if self.seen is None else self.seen.use_of(Role.TASK, adapter.agent.name)
        if use is not None:
            expected = used_by_agent(use, self.rollouts * self.runs)
        return RolePlan(
            role=Role.TASK,
            model=adapter.identity,
            calls=self.config.budget * max(turns) * self.runs,
            expected=expected,
        )

    def judges(self, task: ProviderAdapter | None) -> Iterator[RolePlan]:
        """Yield the rows of judges, as far as their questions are known in advance."""
        metrics = metrics_of(self.config.feedback_fn)
        if not metrics:
            return
        cases = sorted(self.config.cases, key=lambda case: len(str(case.input)), reverse=True)
        # A sample that includes the longest case, and others of all lengths.
        sample = cases[:: math.ceil(len(cases) / _MOST_CASES)]
        takes_cases = isinstance(task, AgentAdapter)  # which plays, and is judged by, turns
        answer = Answer(text="x" * round(self.estimate.answer_chars))
        asked_judges: dict[str, list[tuple[ProviderAdapter, RenderedPrompt[Any]]]] = {}
        turns = [list(turn_cases(case)) if takes_cases else [] for case in sample]
        judged = [
            turn
            for case, case_turns in zip(sample, turns, strict=True)
            for turn in case_turns or [case]
        ]
        for case in judged:
            for judge, prompt in _questions(metrics, case, answer):
                asked_judges.setdefault(adapter_identity(judge), []).append(
                    (judge, prompt.render())
                )
        for rows in asked_judges.values():
            judge, sent = rows[0][0], [sent_chars(rendered, judge) for judge, rendered in rows]
            # At most with the longest answer, and in a second attempt with the refused reply.
            replies = _longest_chars(task, LONGEST_SHOWN) + _longest_chars(judge, LONGEST_SHOWN)
            row_of_judge = row(
                Role.JUDGE,
                judge,
                calls=ATTEMPTS
                * self.config.budget
                * math.ceil(len(rows) / len(sample))
                * self.runs,
                chars=max(sent) - len(answer.text) + replies,
                expected_calls=round(self.rollouts * len(rows) / len(sample) * self.runs),
                sent=fmean(sent),
                received=fmean(chars_of_schema(prompt.output_schema or {}) for _, prompt in rows),
                seen=self.seen,
                measured=(self.rollouts * self.runs, 0),
            )
            yield in_batches(row_of_judge, judge, *self.in_batches)

    def questions_to(
        self, adapter: ProviderAdapter, task: ProviderAdapter | None
    ) -> Iterator[RolePlan]:
        """Yield the rows of questions, by role."""
        config, target, estimate = self.config, self.target, self.estimate
        max_chars = config.max_example_chars
        modules, baseline = target.modules, target.baseline()
        texts = fmean(
            0 if module.is_new else len(target.text(module, baseline)) for module in modules
        )
        # As the reflection model sees them; a user's formatter is not called before the run.
        inputs = [max_chars]
        if config.example_formatter is None:
            examples = config.training_examples
            images = ShownImages.of(examples, config.data, adapter)
            inputs = [
                min(max_chars, len(default_example_formatter(example, None)[0]))
                + (file_chars(adapter, images.of_example(example)) if images else 0)
                for example in examples
            ]
        typical = Sizes(
            input=round(fmean(inputs)),
            answer=min(max_chars, round(estimate.answer_chars)),
            trace=round(estimate.rounds * (CALL + RESULT)) + (_STEPS if estimate.steps else 0),
            feedback=_FEEDBACK,
        )
        traced = config.trace_formatter is not None or estimate.leaves_traces
        longest = Sizes(
            input=max(inputs),
            answer=_longest_chars(task, max_chars),
            trace=(config.max_trace_chars if traced else 0)
            + (STEPS_CHARS if estimate.steps else 0),
            feedback=FEEDBACK_CHARS,
            # Longer than what is shown of a refused reply and of the reason, which are clipped.
            refused=max(self._bounds) + 10_000,
        )
        expected = config.expected_questions(self.proposals, len(modules))
        for role, share in config.question_shares.items():
            yield row(
                role,
                adapter,
                calls=math.ceil(self.reflections * share),
                chars=max(config.question_chars(target, self.questions, longest)) + self.room,
                expected_calls=round(min(self.reflections, expected) * share),
                sent=fmean(config.question_chars(target, self.questions, typical)) + self.growth,
                received=texts + self.growth / len(modules) + _AROUND,
                seen=self.seen,
            )


def _questions(
    metrics: Iterable[Metric], case: Case, answer: Answer
) -> Iterator[tuple[ProviderAdapter, Prompt[Any]]]:
    """Yield the questions of judges about an answer, with the judge."""
    for metric in metrics:
        if isinstance(metric, AllOf):
            yield from _questions(metric.metrics, case, answer)
        elif isinstance(metric, JudgeMetric):
            first = metric.question(case, answer).bind(Refused())
            for judge in metric.judges:
                question = shown_to(judge, first, case)
                yield from ((judge, question) for _ in range(metric.samples))


def _longest_chars(adapter: ProviderAdapter | None, shown: int) -> int:
    """Return the characters of the longest answer, at most ``shown``."""
    tokens = None if adapter is None else longest_answer(adapter)
    return shown if tokens is None else min(shown, tokens * CHARS_PER_TOKEN)


def _warnings(config: RunConfig) -> Iterator[str]:
    sizes = {"training": len(config.split[1]), "validation": config.pareto_set_size}
    if few := [f"{size} {name}" for name, size in sizes.items() if 0 < size < _FEW]:
        yield (
            f"there are only {', '.join(few)} cases; use {_FEW} or more in each set, better 50, "
            "to tell a gain from luck"
        )
    count, least = len(config.held_out), least_cases(LEVEL)
    if config.data.held_out is None and not count:
        yield (
            "there are no test cases: the run cannot prove that its winner is better; add cases, "
            "or name some in data.held_out"
        )
    elif 0 < count < least:
        yield f"{counted(count, 'test case')} cannot prove a gain; use {least} or more, better 50"
    elif least <= count < _FEW:
        yield (
            f"{count} test cases can prove a gain of {least / count:.2f} or more; use more for "
            "smaller ones"
        )
    yield from config.warnings
    if compares_expected(metrics_of(config.feedback_fn)):
        yield from filter(None, [contradictions(config.cases)])
    budget, needed = config.budget, config.rollouts_for(_LEAST_ACCEPTED)
    if budget < needed:
        yield (
            f"rollout_budget: {counted(budget, 'test call')} are enough for only "
            f"{counted(config.pays_for(budget).if_accepted, 'kept rewrite')}; raise it to {needed} "
            f"for {_LEAST_ACCEPTED}, or lower pareto_set_size or minibatch_size"
        )
    limit = config.limits.max_reflections
    if limit is not None and limit < _LEAST_ACCEPTED:
        yield (
            f"limits.max_reflections: at most {counted(limit, 'rewrite')} can be tried; raise it "
            f"to {_LEAST_ACCEPTED} or more"
        )


def _ends(asked: Iterable[ProviderAdapter]) -> Iterator[str]:
    """Yield a line for each model that has ended or will soon."""
    today = SystemClock().now().date()
    ends = (adapter.end for adapter in asked if isinstance(adapter, ForeseenAdapter))
    yield from dict.fromkeys(
        end.line(today) for end in ends if end is not None and end.is_near(today)
    )


def _outdated(questions: Questions) -> Iterator[str]:
    """Yield a line for each meta-prompt whose overrides were made for an older shipped text."""
    for prompt in questions.values():
        store, descriptor = prompt.overrides_store, prompt.descriptor
        resolution = store.resolve(descriptor) if store is not None else None
        skipped = resolve_override(descriptor, resolution).skipped
        if skipped:
            parts = ", ".join(f"{part.part} ({part.reason})" for part in skipped)
            yield (
                f"meta-prompt `{descriptor.key}`: {parts}: the override is not applied, because "
                "the shipped text is another one now; see `promptgraft meta diff`, then "
                f"`promptgraft meta reset {descriptor.key}`"
            )
