"""Estimating a run before its first call: from rendered prompts, examples and settings.

The calls of each role are described as data (:class:`PlannedCalls`), which one function prices.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from statistics import fmean
from typing import Any

import attrs

from promptgraft.adapters import abilities
from promptgraft.adapters.base import ProviderAdapter, Usage, adapter_identity
from promptgraft.adapters.calling.gathering import BATCH_SHARE
from promptgraft.evals.metrics.base import LONGEST_SHOWN, MOST_ATTEMPTS, judges_of, questions_of
from promptgraft.evals.metrics.judging import turn_cases
from promptgraft.evals.spending import Role
from promptgraft.evals.types import Answer, Case, Conversation
from promptgraft.ground.content import Image, files_in
from promptgraft.ground.text import dollars
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.search.advice import advice
from promptgraft.search.plan import RolePlan, RunPlan, SeenAnswers, SeenUse, Use
from promptgraft.search.preflight import CheckedRun
from promptgraft.search.reflection import ShownImages
from promptgraft.search.stopping import MaxProposals
from promptgraft.targets import estimating
from promptgraft.targets.base import Target
from promptgraft.targets.formatting import default_example_formatter, show_value
from promptgraft.targets.judging import metrics_of
from promptgraft.targets.prompt_rollout import Flow, NodeFlow
from promptgraft.targets.prompt_target import PromptTarget
from promptgraft.targets.prompts import StandIn
from promptgraft.targets.texts import PlayingAdapter
from promptgraft.targets.types import GepaExample

FEEDBACK_CHARS = 1_000
"""Assumed length of the longest feedback, which is not known in advance."""

_CALL, _RESULT = 100, 300
"""Assumed characters of a tool call, and of its result."""
_CACHE_HITS = 0.8
"""The share of repeated beginnings of prompts that are expected to be read from a cache."""
_FEEDBACK = 200  # assumed characters of a usual feedback
_MOST_CASES = 300  # whose questions are rendered for an estimate
_GROWTH = 100
"""Characters that a prompt gains by its first change, on average; later ones add less."""
_STEPS = 1_500
"""Characters of the steps of a rollout."""
_AROUND = 100
"""Characters of a reply around the new text."""


@attrs.frozen(kw_only=True)
class PlannedCalls:
    """Calls of a model in one role, before they are priced.

    Attributes:
        role: the purpose of the calls.
        adapter: the adapter that answers.
        most: calls, at most.
        longest: characters of the longest call.
        expected: calls, as expected.
        sent: expected characters sent per call.
        received: expected characters received per call, without thinking.
        prefix: characters at the beginning of a call that are the same for all of a candidate.
        answers: the expected answers that they belong to, for a role that a probe measures.
        growth: characters by which a call grows after the probe.
        in_batches: shares of the calls that may be answered in batches: at least, and as expected.
    """

    role: Role
    adapter: ProviderAdapter
    most: int
    longest: float
    expected: int
    sent: float
    received: float
    prefix: int = 0
    answers: float = 0.0
    growth: float = 0.0
    in_batches: tuple[Fraction, Fraction] | None = None

    def priced(self, seen: SeenAnswers | None) -> RolePlan:
        """Return the row of a plan, corrected by what an earlier run or a probe used."""
        adapter, identity = self.adapter, adapter_identity(self.adapter)
        limit = abilities.longest_answer(adapter)
        thinking, thinking_from = _thinking(self.role, adapter, seen)
        most = _use(adapter, self.most, _tokens(self.longest), limit)
        use = seen.use_of(self.role, identity) if seen is not None and seen.is_probe else None
        if use is not None and self.answers:
            expected = _use(
                adapter,
                round(self.answers * use.calls),
                math.ceil(use.input_tokens) + _tokens(self.growth),
                math.ceil(use.output_tokens),
                cached=round(use.cached_tokens),
            )
        else:
            answer, prefix = _tokens(self.received) + thinking, _tokens(self.prefix)
            least = abilities.cached_from(adapter)
            expected = _use(
                adapter,
                self.expected,
                _tokens(self.sent),
                answer if limit is None else min(answer, limit),
                cached=round(prefix * _CACHE_HITS) if least and prefix >= least else 0,
            )
        if self.in_batches is not None and abilities.is_in_batches(adapter):
            most, expected = map(_at_batch_price, (most, expected), self.in_batches)
        return RolePlan(
            role=self.role,
            model=identity,
            expected=expected,
            thinking=thinking,
            thinking_from=thinking_from,
            **attrs.asdict(most),
        )


def _use(
    adapter: ProviderAdapter, calls: int, sent: int, received: int | None, *, cached: int = 0
) -> Use:
    """Return the use of calls, with ``sent``, ``received`` and ``cached`` tokens each."""
    each: Decimal | None = None
    if isinstance(adapter, abilities.MeteredAdapter) and received is not None:
        tokens = Usage(input_tokens=sent, output_tokens=received, cached_tokens=cached)
        each = adapter.price_of(tokens)
    cost = None if each is None else each * calls
    return Use(calls=calls, input_tokens=sent, output_tokens=received, cost=cost)


def _at_batch_price(use: Use, share: Fraction) -> Use:
    """Return the use if this share of it is answered in batches of the provider."""
    if use.cost is None:
        return use
    # In two steps, because Decimal and Fraction cannot be multiplied.
    saved = use.cost * (1 - BATCH_SHARE) * share.numerator / share.denominator
    return attrs.evolve(use, cost=use.cost - saved)


def _thinking(
    role: Role, adapter: ProviderAdapter, seen: SeenAnswers | None = None
) -> tuple[int, str]:
    """Return the expected tokens of thinking per call, and the basis of the estimate in words."""
    tokens, is_assumed = abilities.thinking_of(adapter), abilities.is_thinking_assumed(adapter)
    use = None if seen is None else seen.use_of(role, adapter_identity(adapter))
    if seen is None or use is None:
        source = "assumed" if is_assumed else "usual for the model"
        return tokens, source if tokens else ""
    if use.thinking:
        return round(use.thinking), seen.where
    # The output tokens that were seen include the thoughts, if they were only assumed.
    tokens = 0 if is_assumed else min(tokens, int(use.output_tokens))
    return tokens, seen.where if tokens else ""


def _tokens(chars: float) -> int:
    return math.ceil(chars / abilities.CHARS_PER_TOKEN)


def plan_run(checked: CheckedRun, seen: SeenAnswers | None = None) -> RunPlan:
    """Return what a run is expected to use, and what it can use.

    ``seen`` are the answers of an earlier run, or of a probe.
    """
    config, target, task = checked.config, checked.target, checked.context.adapter
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
        run=checked,
        seen=seen,
        estimate=estimate,
        rollouts=fixed + round(share * (budget - fixed)),
        reflections=reflections,
        proposals=proposals.expected,
    )
    roles = tuple(outlook.roles())
    return RunPlan(
        rollouts=budget,
        reflections=reflections,
        proposals=proposals,
        roles=roles,
        max_cost=limits.max_cost,
        max_tokens=limits.max_tokens,
        warnings=tuple(outlook.warnings(roles)),
        max_seconds=limits.timeout,
        first_call=task.first_call if isinstance(task, PlayingAdapter) else "",
        expected_rollouts=outlook.rollouts,
        answer_tokens=_tokens(estimate.answer_chars) if estimate.answer_from else None,
        answer_from=estimate.answer_from,
    )


def _as_seen(
    estimate: estimating.Estimate, task: ProviderAdapter | None, seen: SeenAnswers | None
) -> estimating.Estimate:
    """Return an estimate with answers as long as those of the same model in an earlier run."""
    if seen is None or task is None:
        return estimate
    use = seen.use_of(Role.TASK, adapter_identity(task))
    if use is None:
        return estimate
    thinking, _ = _thinking(Role.TASK, task, seen)
    # The inverse of `_answers`, which spreads answer and calls of tools over all turns.
    chars = (use.output_tokens - thinking) * abilities.CHARS_PER_TOKEN * (1 + estimate.rounds)
    answer_chars = max(0, chars - estimate.rounds * _CALL)
    return attrs.evolve(estimate, answer_chars=answer_chars, answer_from=seen.where)


@attrs.frozen(kw_only=True)
class _Outlook:
    """What is known about a run before its first call.

    ``rollouts`` and ``proposals`` are expected numbers, ``reflections`` is the maximum;
    ``estimate`` is for a rollout of the baseline.
    """

    run: CheckedRun
    seen: SeenAnswers | None
    estimate: estimating.Estimate
    rollouts: int
    reflections: int
    proposals: int

    def models(self) -> Iterator[ProviderAdapter]:
        """Yield all models of the run."""
        run, context = self.run, self.run.context
        if (flow := _node_flow(run.target)) is not None:
            yield from (adapter for _, adapter in flow.nodes.values())
        elif context.adapter is not None:
            yield context.adapter
        yield from judges_of(metrics_of(run.config.feedback_fn))
        yield context.proposing_adapter
        if run.teaching is not None:
            yield from run.teaching.teacher.models

    def warnings(self, roles: Iterable[RolePlan]) -> Iterator[str]:
        """Yield the problems of a plan with these rows, a line each."""
        run, task, limits = self.run, self.run.context.adapter, self.run.config.limits
        yield from advice(run.config, run.target, self.models(), run.questions)
        images = files_in([example.params for example in run.config.training_examples])
        is_shown = run.config.data.shown_images and any(isinstance(file, Image) for file in images)
        if is_shown and not abilities.sees_images(run.context.proposing_adapter):
            yield (
                "the reflection model is not known to see images, so it is told only their names; "
                "set `vision: true` for it if it sees"
            )
        wear = run.wear_of(run.config.held_out)
        if wear is not None and wear.is_worn:
            yield wear.line
        if limits.max_tokens is not None:
            models = (task, run.context.proposing_adapter)
            uncounted = (getattr(model, "missing_tokens", "") for model in models)
            yield from dict.fromkeys(filter(None, uncounted))
        if isinstance(task, PlayingAdapter) and limits.max_cost is not None and task.unknown_cost:
            yield task.unknown_cost
        costs = [role.expected.cost for role in roles]
        known_costs = [cost for cost in costs if cost is not None]
        total, limit = sum(known_costs, Decimal()), limits.max_cost
        # Rollouts are reserved for the test, which comes last, but no money.
        if limit is not None and len(known_costs) == len(costs) and total > limit:
            yield (
                f"limits.max_cost: {dollars(limit)} is less than the {dollars(total)} "
                "that the run is expected to cost, so it may end before its winner is tested; "
                "raise it, or lower rollout_budget"
            )

    def roles(self) -> Iterator[RolePlan]:
        """Yield the rows of all roles."""
        yield from self._teacher()
        yield from self._tasks()
        yield from (calls.priced(self.seen) for calls in self._judges())
        yield from (calls.priced(self.seen) for calls in self._questions())

    def _teacher(self) -> Iterator[RolePlan]:
        """Yield the rows of a teacher, which answers each case that has no ``expected``."""
        teaching = self.run.teaching
        if teaching is None or not teaching.questions:
            return
        teacher, questions = teaching.teacher, teaching.questions.values()
        count = len(questions)
        graph = teacher.prompt.graph if isinstance(teacher.prompt, StandIn) else None
        if graph is not None and (flow := _node_flow(graph.flow_on(teacher.adapter))) is not None:
            inputs = fmean(len(show_value(question.case.input)) for question in questions)
            nodes = _node_uses(flow, graph.by_address, inputs=inputs)
            yield from _node_rows(Role.TEACHER, flow, nodes, most=count, expected=count)
            return
        rendered = [question.prompt.render() for question in questions]
        examples = [
            GepaExample(question.case.id, (), label=question.case) for question in questions
        ]
        estimate = estimating.estimated(
            teacher.prompt.template,
            [estimating.text_chars(prompt, teacher.asked) for prompt in rendered],
            examples,
            longest=max(rendered, key=lambda prompt: estimating.text_chars(prompt, teacher.asked)),
            is_answer=False,
            adapter=teacher.asked,
        )
        calls = _answers(Role.TEACHER, teacher.asked, estimate, most=count, expected=count)
        yield calls.priced(None)

    def _tasks(self) -> Iterator[RolePlan]:
        """Yield the rows of rollouts; at most with the maximum growth of all modules."""
        target, config, task = self.run.target, self.run.config, self.run.context.adapter
        runs = config.objectives.num_runs
        most, expected = config.budget * runs, self.rollouts * runs
        if isinstance(task, PlayingAdapter):
            yield self._agent(task, most, expected)
        elif isinstance(target, PromptTarget) and (flow := _node_flow(target)) is not None:
            examples = config.training_examples
            inputs = fmean(len(default_example_formatter(example, None)[0]) for example in examples)
            prompts = target.rollout.prompts_of(target.baseline())
            nodes = _node_uses(
                flow,
                prompts,
                inputs=inputs + self.growth,
                turns=fmean(map(_turns_of, examples)),
                seen=None if self.seen is None else self.seen.nodes,
            )
            yield from _node_rows(Role.TASK, flow, nodes, most=most, expected=expected)
        elif task is None or self.estimate.mean_chars is None:
            yield RolePlan(role=Role.TASK, model=target.identity.model)
        else:
            calls = _answers(Role.TASK, task, self.estimate, most=most, expected=expected)
            grown = attrs.evolve(
                calls,
                longest=calls.longest + self.room,
                sent=calls.sent + self.growth,
                answers=expected,
                growth=self.growth,
                in_batches=self.in_batches,
            )
            yield grown.priced(self.seen)

    def _agent(self, adapter: PlayingAdapter, most: int, expected: int) -> RolePlan:
        """Return the row of an agent, whose cost is not known in advance."""
        turns = [adapter.most_turns(case) for case in self.run.config.cases] or [1]
        use = Use(calls=round(expected * fmean(turns)))
        # Its own name is what its calls are counted under.
        seen_use = None if self.seen is None else self.seen.use_of(Role.TASK, adapter.agent_name)
        if seen_use is not None:
            use = seen_use.of_answers(expected)
        return RolePlan(
            role=Role.TASK, model=adapter_identity(adapter), calls=most * max(turns), expected=use
        )

    def _judges(self) -> Iterator[PlannedCalls]:
        """Yield the calls of judges, as far as their questions are known in advance."""
        config, task = self.run.config, self.run.context.adapter
        metrics = metrics_of(config.feedback_fn)
        if not metrics:
            return
        cases = sorted(config.cases, key=lambda case: len(str(case.input)), reverse=True)
        # A sample that includes the longest case, and others of all lengths.
        sample = cases[:: math.ceil(len(cases) / _MOST_CASES)]
        judged: Iterable[Case] = sample
        examples = config.training_examples
        # Conversations are judged turn by turn.
        if isinstance(task, PlayingAdapter) or any(_turns_of(example) > 1 for example in examples):
            judged = [turn for case in sample for turn in [*turn_cases(case)] or [case]]
        answer = Answer(text="x" * round(self.estimate.answer_chars))
        questions = defaultdict[str, list[tuple[ProviderAdapter, RenderedPrompt[Any]]]](list)
        for case in judged:
            for judge, prompt in questions_of(metrics, case, answer):
                questions[adapter_identity(judge)].append((judge, prompt.render()))
        runs = config.objectives.num_runs
        for prompts in questions.values():
            judge = prompts[0][0]
            sent = [estimating.sent_chars(rendered, judge) for judge, rendered in prompts]
            most = config.budget * math.ceil(len(prompts) / len(sample)) * runs
            # At most with the longest answer, and in a second attempt with the refused reply.
            replies = sum(_longest_chars(adapter, LONGEST_SHOWN) for adapter in (task, judge))
            yield PlannedCalls(
                role=Role.JUDGE,
                adapter=judge,
                most=MOST_ATTEMPTS * most,
                longest=max(sent) - len(answer.text) + replies,
                expected=round(self.rollouts * len(prompts) / len(sample) * runs),
                sent=fmean(sent),
                received=fmean(
                    estimating.chars_of_schema(prompt.output_schema or {}) for _, prompt in prompts
                ),
                answers=self.rollouts * runs,
                in_batches=self.in_batches,
            )

    def _questions(self) -> Iterator[PlannedCalls]:
        """Yield the calls of the reflection model, by role."""
        config, target, questions = self.run.config, self.run.target, self.run.questions
        modules, baseline = target.modules, target.baseline()
        texts = fmean(
            0 if module.is_new else len(target.text(module, baseline)) for module in modules
        )
        typical, longest = self._sizes()
        expected = config.expected_questions(self.proposals, len(modules))
        for role, share in config.question_shares.items():
            yield PlannedCalls(
                role=role,
                adapter=self.run.context.proposing_adapter,
                most=math.ceil(self.reflections * share),
                longest=max(config.question_chars(target, questions, longest)) + self.room,
                expected=round(min(self.reflections, expected) * share),
                sent=fmean(config.question_chars(target, questions, typical)) + self.growth,
                received=texts + self.growth / len(modules) + _AROUND,
            )

    def _sizes(self) -> tuple[estimating.Sizes, estimating.Sizes]:
        """Return how much questions show of rollouts: as expected, and at most."""
        config, context, estimate = self.run.config, self.run.context, self.estimate
        max_chars, reflection = config.max_example_chars, context.proposing_adapter
        # As the reflection model sees them; a user's formatter is not called before the run.
        inputs = [max_chars]
        if config.example_formatter is None:
            examples = config.training_examples
            images = ShownImages.of(examples, config.data, reflection)
            inputs = [
                min(max_chars, len(default_example_formatter(example, None)[0]))
                + (estimating.file_chars(reflection, images.of_example(example)) if images else 0)
                for example in examples
            ]
        typical = estimating.Sizes(
            input=round(fmean(inputs)),
            answer=min(max_chars, round(estimate.answer_chars)),
            trace=round(estimate.rounds * (_CALL + _RESULT)) + (_STEPS if estimate.steps else 0),
            feedback=_FEEDBACK,
        )
        traced = config.trace_formatter is not None or estimate.leaves_traces
        longest = estimating.Sizes(
            input=max(inputs),
            answer=_longest_chars(context.adapter, max_chars),
            trace=(config.max_trace_chars if traced else 0)
            + (estimating.STEPS_CHARS if estimate.steps else 0),
            feedback=FEEDBACK_CHARS,
            # Longer than what is shown of a refused reply and of the reason, which are clipped.
            refused=max(self._bounds) + 10_000,
        )
        return typical, longest

    @cached_property
    def _bounds(self) -> list[int]:
        """Maximum length of each module."""
        target, baseline = self.run.target, self.run.target.baseline()
        return [target.describe(module, baseline).max_chars for module in target.modules]

    @cached_property
    def room(self) -> int:
        """Characters by which the modules can grow in total."""
        target, baseline = self.run.target, self.run.target.baseline()
        most_added = self.run.config.max_task_examples_per_section
        return sum(
            most_added * longest
            if module.is_new
            else max(0, longest - len(target.text(module, baseline)))
            for module, longest in zip(target.modules, self._bounds, strict=True)
        )

    @property
    def growth(self) -> float:
        """Expected growth of the whole prompt in characters, averaged over a run."""
        return min(self.room, _GROWTH * math.sqrt(max(1, self.proposals / 2)))

    @property
    def in_batches(self) -> tuple[Fraction, Fraction]:
        """Shares of the rollouts that evaluate whole sets: at least, and as expected."""
        config = self.run.config
        fixed = config.baseline_size + config.reserved_size
        # Every second proposal is accepted, as in `Affordable.expected`.
        entries = self.proposals // 2 * config.pareto_set_size
        expected = min(self.rollouts, fixed + entries)
        return Fraction(fixed, config.budget), Fraction(expected, self.rollouts)


def _answers(
    role: Role,
    adapter: ProviderAdapter,
    estimate: estimating.Estimate,
    *,
    most: float,
    expected: float,
) -> PlannedCalls:
    """Return the calls for this many answers to a prompt."""
    rounds, turns = estimate.rounds, 1 + estimate.rounds
    return PlannedCalls(
        role=role,
        adapter=adapter,
        most=math.ceil(most * turns),
        longest=estimate.chars or 0,
        expected=round(expected * turns),
        # Each turn repeats the rounds before it: half of them, averaged over all turns.
        sent=(estimate.mean_chars or 0) + rounds / 2 * (_CALL + _RESULT),
        received=(estimate.answer_chars + rounds * _CALL) / turns,
        prefix=estimate.prefix_chars,
    )


def _turns_of(example: GepaExample) -> int:
    """Return how many messages of an example are answered one after the other."""
    match example.params:
        case (Conversation() as conversation,):
            return len(conversation.messages)
    return 1


def _node_flow(source: Target | Flow) -> NodeFlow | None:
    """Return the flow of a graph; None for anything else."""
    flow: object = source.rollout.flow if isinstance(source, PromptTarget) else source
    return flow if isinstance(flow, NodeFlow) else None


def _node_uses(
    flow: NodeFlow,
    prompts: Mapping[str, Prompt[object]],
    *,
    inputs: float,
    turns: float = 1,
    seen: Mapping[str, SeenUse] | None = None,
) -> dict[str, SeenUse]:
    """Return the use of each node per answer: as in an earlier run, or one call for each turn.

    If tokens are not known, they are guessed from ``inputs``, the average characters of an input,
    but not how often the node is called.
    """
    uses = {}
    for name, (address, adapter) in flow.nodes.items():
        rendered = prompts[address].with_placeholders()
        schema = rendered.output_schema
        thinking, _ = _thinking(Role.TASK, adapter)
        answer = estimating.chars_of_schema(schema) if schema else estimating.FREE_TEXT
        received = _tokens(answer) + thinking
        sent = _tokens(estimating.sent_chars(rendered) + inputs)
        use = seen.get(name, SeenUse(calls=0)) if seen else SeenUse(calls=turns)
        if not use.input_tokens:
            use = attrs.evolve(use, input_tokens=sent, output_tokens=received)
        uses[name] = use
    return uses


def _node_rows(
    role: Role, flow: NodeFlow, nodes: Mapping[str, SeenUse], *, most: int, expected: int
) -> Iterator[RolePlan]:
    """Yield the rows for answers of a graph, one for each model.

    The maximum is ``max_steps`` calls an answer; how much is then sent is not known.
    """
    names_by_model = defaultdict[str, list[str]](list)
    for name, (_, adapter) in flow.nodes.items():
        names_by_model[adapter_identity(adapter)].append(name)
    for model, names in names_by_model.items():
        uses = [nodes[name] for name in names]
        calls = sum(use.calls for use in uses)
        sent = sum(use.calls * use.input_tokens for use in uses)
        received = sum(use.calls * use.output_tokens for use in uses)
        adapter, share = flow.nodes[names[0]][1], calls or 1
        yield RolePlan(
            role=role,
            model=model,
            calls=most * flow.max_steps,
            expected=_use(
                adapter,
                round(expected * calls),
                math.ceil(sent / share),
                math.ceil(received / share),
            ),
        )


def _longest_chars(adapter: ProviderAdapter | None, most: int) -> int:
    """Return the characters of the longest answer, at most ``most``."""
    tokens = None if adapter is None else abilities.longest_answer(adapter)
    return most if tokens is None else min(most, tokens * abilities.CHARS_PER_TOKEN)
