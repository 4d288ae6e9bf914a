"""A run whose models answer over HTTP.

The answers are functions of the words that are asked, so that a run has one outcome, whatever
happens on the way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

import attrs

from promptgraft import (
    Cancellation,
    Data,
    EventBus,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    Limits,
    MarkdownSection,
    OptimizationContext,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RolloutFeedback,
    ScriptedAdapter,
    Strategy,
)
from promptgraft.adapters.anthropic import AnthropicAdapter
from promptgraft.adapters.base import ProviderAdapter
from promptgraft.adapters.calling.prices import ModelPrice, Prices
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.adapters.openai import OpenAIAdapter
from promptgraft.journal import Journal
from promptgraft.overrides.store import PromptOverridesStore
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import SessionProtocol

WORKERS = 16
TASK_MODEL = "task-1"
REFLECTION_MODEL = "reflection-1"
MODELS = (TASK_MODEL, REFLECTION_MODEL)
KEY = "storm-key-0123456789"
PRICES = Prices(
    {
        TASK_MODEL: ModelPrice(input="0.30", output="1.20", cached_input="0.03"),
        REFLECTION_MODEL: ModelPrice(input="3", output="15", cached_input="0.30"),
    }
)
PATIENCE = RetryPolicy(
    attempts=8, wait_initial=0.001, wait_max=0.002, max_retry_after=20.0, timeout=60.0
)

REFUSAL = "I would rather not."


class Verdict(Enum):
    """What the task says of a word."""

    KNOWN = "known"
    UNKNOWN = "unknown"


@attrs.frozen
class Question:
    """One question; the prompt must say its word."""

    word: str
    number: int = 0


TEMPLATE: PromptTemplate[Verdict] = PromptTemplate(
    ns="tests",
    key="storm",
    output_type=Verdict,
    sections=(
        MarkdownSection(title="Manner", key="manner", template="Think before you answer. " * 24),
        MarkdownSection(title="Rules", key="rules", template="Known words: apple"),
        MarkdownSection(
            title="Question", key="question", template="Word: $word", overridable=False
        ),
    ),
)


def judged(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Score 1 for a known word."""
    del session
    known = response.output is Verdict.KNOWN
    return RolloutFeedback(score=float(known), feedback="" if known else f"lacks {example.label}")


CONFIG = GepaConfig(
    rollout_budget=300,
    minibatch_size=16,
    pareto_set_size=20,
    target_section_paths=(("rules",),),
    training_examples=tuple(
        GepaExample(id=f"q{n}", params=(Question(word=word, number=n),), label=word)
        for n in range(52)
        for word in (f"word{n % 14}" if n else "secret",)
    ),
    feedback_fn=judged,
    data=Data(held_out=()),
    strategy=Strategy(preset="paper"),
    limits=Limits(max_failed_reflections=100, max_idle_steps=100),
)
BASELINE = CONFIG.pareto_set_size
"""Task calls before the first step."""
STEP = CONFIG.step_size
"""Task calls of a step whose proposal is accepted."""


def reply(model: str, said: str) -> str:
    """Return what a model says to a text."""
    return _reflected(said) if model == REFLECTION_MODEL else _solved(said)


def _solved(said: str) -> str:
    rules, _, question = said.partition("Word: ")
    word = re.findall(r"\w+", question)[0]
    return "known" if word in re.findall(r"\w+", rules) else "unknown"


def _reflected(said: str) -> str:
    found = re.search(r"Known words: ([\w ]*)", said)
    held = found[1].split() if found else []
    lacking = sorted(set(re.findall(r"lacks (word\d+)", said)))
    if REFUSAL in said:
        return _instruction(held)  # nothing new
    if len(lacking) % 4 == 3:
        return REFUSAL  # asked once more
    return _instruction([*held, *lacking[:1]])


def _instruction(words: Sequence[str]) -> str:
    return f"```instruction\nKnown words: {' '.join(words)}\n```"


def scripted(model: str) -> ScriptedAdapter:
    """Return the model without a network."""

    def said(rendered: RenderedPrompt[object]) -> str:
        return reply(model, rendered.text)

    return ScriptedAdapter(said, identity=model)


def adapter_of(
    sdk: str, model: str, base_url: str, policy: RetryPolicy = PATIENCE
) -> ProviderAdapter:
    """Return an adapter for a loopback server."""
    kind: Callable[..., ProviderAdapter] = AnthropicAdapter if sdk == "anthropic" else OpenAIAdapter
    return kind(model, api_key=KEY, base_url=base_url, policy=policy, timeout=30.0, prices=PRICES)


def run(
    task: ProviderAdapter,
    reflection: ProviderAdapter,
    config: GepaConfig = CONFIG,
    *,
    journal: Journal | None = None,
    store: PromptOverridesStore | None = None,
    bus: EventBus | None = None,
    cancellation: Cancellation | None = None,
) -> GepaResult:
    """Run or resume with 16 workers."""
    with ThreadPoolExecutor(WORKERS) as executor:
        context = OptimizationContext(
            task,
            reflection_adapter=reflection,
            overrides_store=store,
            event_bus=bus,
            executor=executor,
            journal=journal,
            cancellation=cancellation,
        )
        return GepaOptimizer(context, config).optimize(Prompt(TEMPLATE))


def found_by(result: GepaResult) -> GepaResult:
    """Return a result without what depends on who answered: identity and what it took."""
    return attrs.evolve(result, run_id="", ledger=())
