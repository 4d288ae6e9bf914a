"""The rows of a plan: what each role uses, for prompts, graphs and teachers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from statistics import fmean

import attrs

from promptgraft.adapters.base import (
    CachingAdapter,
    ForeseenAdapter,
    MeteredAdapter,
    ProviderAdapter,
    ThinkingAdapter,
    Usage,
    adapter_identity,
    is_in_batches,
)
from promptgraft.adapters.calling.gathering import BATCH_SHARE
from promptgraft.evals.spending import Role
from promptgraft.evals.types import Step
from promptgraft.graphs.flow import GraphPrompt, GraphRunner
from promptgraft.prompt.template import Prompt
from promptgraft.search.plan import RolePlan, SeenAnswers, SeenNode, SeenUse, Use
from promptgraft.search.teacher import Teaching
from promptgraft.targets.base import Target
from promptgraft.targets.estimating import (
    FREE_TEXT,
    Estimate,
    chars_of_schema,
    estimated,
    sent_chars,
)
from promptgraft.targets.formatting import show_value
from promptgraft.targets.prompt_target import PromptTarget
from promptgraft.targets.types import GepaExample

CHARS_PER_TOKEN = 4
"""Approximate characters per token of English text."""

CALL, RESULT = 100, 300
"""Assumed characters of a tool call, and of its result."""

CACHE_HITS = 0.8
"""The share of repeated beginnings of prompts that are expected to be read from a cache."""

ASSUMED = "assumed"
"""The basis of an estimate of thinking for a model that is not known."""


@attrs.frozen
class Thoughts:
    """Expected tokens of thinking per call, and the basis of the estimate in words."""

    tokens: int = 0
    source: str = ""


def seen_thoughts(
    role: Role, adapter: ProviderAdapter, seen: SeenAnswers | None
) -> Thoughts | None:
    """Return how much a model thought in a role, in an earlier run or a probe; None if unknown."""
    use = None if seen is None else seen.use_of(role, adapter_identity(adapter))
    if seen is None or use is None:
        return None
    if use.thinking:
        return Thoughts(round(use.thinking), seen.where)
    thoughts = thoughts_of(adapter)
    # What was seen holds the thoughts of a model that was only assumed to have them.
    if thoughts.source == ASSUMED:
        return Thoughts()
    tokens = min(thoughts.tokens, int(use.output_tokens))
    return Thoughts(tokens, seen.where) if tokens else Thoughts()


def thoughts_of(adapter: ProviderAdapter) -> Thoughts:
    """Return what is known of a model's thinking before its first call."""
    tokens = adapter.thinking if isinstance(adapter, ThinkingAdapter) else 0
    if not tokens:
        return Thoughts()
    is_assumed = isinstance(adapter, ForeseenAdapter) and adapter.is_thinking_assumed
    return Thoughts(tokens, ASSUMED if is_assumed else "usual for the model")


_NEVER = SeenNode(asked=0, input_tokens=0, output_tokens=0)


def prompt_row(
    role: Role,
    adapter: ProviderAdapter,
    found: Estimate,
    answers: tuple[float, float],
    *,
    grown: tuple[float, float] = (0, 0),
    seen: SeenAnswers | None = None,
) -> RolePlan:
    """Return the row for answers to a prompt.

    Args:
        role: the purpose of the calls.
        adapter: the adapter that answers.
        found: the estimate for the current prompt.
        answers: number of answers, at most and as expected.
        grown: growth of the prompt in characters, at most and as expected.
        seen: what an earlier run or a probe used; None without one.
    """
    turns = 1 + found.rounds
    most, expected = answers
    return row(
        role,
        adapter,
        calls=math.ceil(most * turns),
        chars=(found.chars or 0) + grown[0],
        expected_calls=round(expected * turns),
        # Each turn repeats the rounds before it: half of them, averaged over all turns.
        sent=(found.mean_chars or 0) + grown[1] + found.rounds / 2 * (CALL + RESULT),
        received=(found.answer_chars + found.rounds * CALL) / turns,
        prefix=found.prefix_chars,
        seen=seen,
        measured=(expected, grown[1]),
    )


@attrs.frozen(kw_only=True)
class Nodes:
    """The prompts of a graph by node, and the flow that asks them."""

    flow: GraphRunner
    prompts: Mapping[str, Prompt[object]]

    def rows(
        self,
        role: Role,
        most: int,
        expected: int,
        *,
        inputs: float,
        growth: float = 0.0,
        seen: SeenAnswers | None = None,
    ) -> Iterator[RolePlan]:
        """Yield the rows for answers of the graph, one for each model.

        How often a flow calls a node is taken from an earlier run, or assumed to be once. The
        maximum is ``max_steps``; how much is then sent is not known.

        Args:
            role: the purpose of the calls.
            most: answers, at most.
            expected: answers, as expected.
            inputs: average characters of the input of a case.
            growth: expected growth of a prompt in characters.
            seen: use of nodes in an earlier run.
        """
        by_model: dict[str, list[tuple[ProviderAdapter, SeenNode]]] = defaultdict(list)
        for name, (address, adapter) in self.flow.nodes.items():
            node = _guessed(self.prompts[address], adapter, inputs + growth)
            if seen is not None and seen.nodes:
                # If tokens are not known, they are guessed, but not how often the node is called.
                usage = seen.nodes.get(name, _NEVER)
                node = usage if usage.input_tokens else attrs.evolve(node, asked=usage.asked)
            by_model[adapter_identity(adapter)].append((adapter, node))
        for model, nodes in by_model.items():
            adapter, calls_by_node = nodes[0][0], sum(node.asked for _, node in nodes)
            sent = sum(node.asked * node.input_tokens for _, node in nodes)
            received = sum(node.asked * node.output_tokens for _, node in nodes)
            calls, share = round(expected * calls_by_node), calls_by_node or 1
            yield RolePlan(
                role=role,
                model=model,
                calls=most * self.flow.max_steps,
                expected=_costing(
                    adapter, calls, math.ceil(sent / share), math.ceil(received / share)
                ),
            )


def nodes_of(target: Target) -> Nodes | None:
    """Return the nodes of a target that is a graph; None for any other target."""
    if isinstance(target, PromptTarget) and isinstance(flow := target.rollout.flow, GraphRunner):
        return Nodes(flow=flow, prompts=target.rollout.prompts_of(target.baseline()))
    return None


def _guessed(prompt: Prompt[object], adapter: ProviderAdapter, inputs: float) -> SeenNode:
    rendered = prompt.with_placeholders()
    schema = rendered.output_schema
    thinking = thoughts_of(adapter).tokens
    return SeenNode(
        asked=1.0,
        input_tokens=tokens_of(sent_chars(rendered) + inputs),
        output_tokens=tokens_of(chars_of_schema(schema) if schema else FREE_TEXT) + thinking,
    )


def seen_nodes(traces: Iterable[Iterable[Step]]) -> dict[str, SeenNode]:
    """Return the average calls per answer, and tokens per call, of each node of a graph."""
    count, calls_asked, calls = 0, Counter[str](), Counter[str]()
    sent, received = Counter[str](), Counter[str]()
    for steps in traces:
        count += 1
        for step in steps:
            for spending in step.spent:
                calls_asked[step.node] += spending.calls
                calls[step.node] += spending.calls
                sent[step.node] += spending.input_tokens
                received[step.node] += spending.output_tokens
    return {
        name: SeenNode(
            asked=calls_asked[name] / count,
            input_tokens=sent[name] / calls[name],
            output_tokens=received[name] / calls[name],
        )
        for name in calls_asked
    }


def teaching_rows(teaching: Teaching) -> Iterator[RolePlan]:
    """Yield the rows of a teacher, which answers each case that has no ``expected``."""
    teacher, lessons = teaching.teacher, [*teaching.lessons.values()]
    count = len(lessons)
    if not lessons:
        return
    if isinstance(teacher.prompt, GraphPrompt):
        graph = teacher.prompt.graph
        nodes = Nodes(flow=graph.flow_on(teacher.adapter), prompts=graph.by_address)
        inputs = fmean(len(show_value(lesson.case.input)) for lesson in lessons)
        yield from nodes.rows(Role.TEACHER, count, count, inputs=inputs)
        return
    rendered = [lesson.prompt.render() for lesson in lessons]
    examples = [GepaExample(lesson.case.id, (), label=lesson.case) for lesson in lessons]
    estimate = estimated(
        teacher.prompt.template, rendered, examples, is_answer=False, adapter=teacher.asked
    )
    yield prompt_row(Role.TEACHER, teacher.asked, estimate, (count, count))


def row(
    role: Role,
    adapter: ProviderAdapter,
    *,
    calls: int,
    chars: float,
    expected_calls: int,
    sent: float,
    received: float,
    prefix: int = 0,
    seen: SeenAnswers | None = None,
    measured: tuple[float, float] = (0, 0),
) -> RolePlan:
    """Return the row for calls: at most, with ``chars`` and the longest answer; as expected.

    Args:
        role: the purpose of the calls.
        adapter: the adapter that answers.
        calls: calls, at most.
        chars: characters of the longest call.
        expected_calls: calls, as expected.
        sent: expected characters sent per call.
        received: expected characters received per call, without thinking.
        prefix: characters at the beginning of a call that are the same for all of a candidate.
        seen: what an earlier run or a probe used; None without one.
        measured: for a role that a probe measures: the expected rollouts, and the characters by
            which the prompt grows.
    """
    longest = longest_answer(adapter)
    thoughts = seen_thoughts(role, adapter, seen) or thoughts_of(adapter)
    answer = tokens_of(received) + thoughts.tokens
    most = _costing(adapter, calls, tokens_of(chars), longest)
    expected = _costing(
        adapter,
        expected_calls,
        tokens_of(sent),
        answer if longest is None else min(answer, longest),
        cached=_cached(adapter, tokens_of(prefix)),
    )
    if seen is not None and seen.is_probe and (rollouts := measured[0]):
        use = seen.use_of(role, adapter_identity(adapter))
        if use is not None:
            expected = _measured(adapter, use, rollouts, growth=measured[1])
    return RolePlan(
        role=role,
        model=adapter_identity(adapter),
        expected=expected,
        thinking=thoughts.tokens,
        thinking_from=thoughts.source,
        **attrs.asdict(most),
    )


def _cached(adapter: ProviderAdapter, prefix: int) -> int:
    """Return the tokens of a prefix that calls are expected to read from a cache, on average."""
    least = adapter.cached_from if isinstance(adapter, CachingAdapter) else 0
    return round(prefix * CACHE_HITS) if least and prefix >= least else 0


def _measured(adapter: ProviderAdapter, use: SeenUse, rollouts: float, *, growth: float = 0) -> Use:
    """Return the use of a role that a probe has measured; ``growth`` is in characters."""
    return _costing(
        adapter,
        round(rollouts * use.calls),
        math.ceil(use.input_tokens) + tokens_of(growth),
        math.ceil(use.output_tokens),
        cached=round(use.cached_tokens),
    )


def used_by_agent(use: SeenUse, rollouts: float) -> Use:
    """Return the expected use of an agent that said what it used in an earlier run or a probe."""
    calls = round(rollouts * use.calls)
    return Use(
        calls=calls,
        input_tokens=math.ceil(use.input_tokens),
        output_tokens=math.ceil(use.output_tokens),
        cost=None if use.cost is None else use.cost * calls,
    )


def in_batches(
    row: RolePlan, adapter: ProviderAdapter, most: Fraction, expected: Fraction
) -> RolePlan:
    """Return a row at batch prices if ``adapter`` answers in provider batches.

    ``most`` and ``expected`` are the shares of calls in batches: at least, and as expected.
    """
    if not is_in_batches(adapter):
        return row
    use = attrs.evolve(row.expected, cost=_reduced(row.expected.cost, expected))
    return attrs.evolve(row, cost=_reduced(row.cost, most), expected=use)


def _reduced(cost: Decimal | None, share: Fraction) -> Decimal | None:
    if cost is None:
        return None
    # In two steps, because Decimal and Fraction cannot be multiplied.
    saved = cost * (1 - BATCH_SHARE) * share.numerator / share.denominator
    return cost - saved


def _costing(
    adapter: ProviderAdapter, calls: int, sent: int, received: int | None, *, cached: int = 0
) -> Use:
    cost: Decimal | None = None
    if isinstance(adapter, MeteredAdapter) and received is not None:
        tokens = Usage(input_tokens=sent, output_tokens=received, cached_tokens=cached)
        each = adapter.price_of(tokens)
        cost = None if each is None else each * calls
    return Use(calls=calls, input_tokens=sent, output_tokens=received, cost=cost)


def tokens_of(chars: float) -> int:
    """Return the approximate tokens of this many characters."""
    return math.ceil(chars / CHARS_PER_TOKEN)


def longest_answer(adapter: ProviderAdapter) -> int | None:
    """Return the tokens of the longest answer; None if not known."""
    return adapter.longest_answer if isinstance(adapter, MeteredAdapter) else None
