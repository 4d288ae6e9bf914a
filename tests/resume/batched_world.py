"""A small run whose model answers in batches; as a program, the run of a folder.

Usage: ``python batched_world.py``. Each line of standard input is a list as JSON: provider,
address, folder. It prints the id of the process that runs, and the exit code when it ends.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from promptgraft import (
    AnthropicAdapter,
    Cancellation,
    FileJournal,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    MarkdownSection,
    ModelPrice,
    OpenAIAdapter,
    OptimizationContext,
    Prices,
    Prompt,
    PromptResponse,
    PromptTemplate,
    ProviderAdapter,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.algorithms.gepa import Strategy
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import SessionProtocol
from promptgraft.search.settings import Data
from servers.behaviour import Answer, Asked
from servers.loopback import KEY, MODEL

ADAPTERS: Mapping[str, type[OpenAIAdapter] | type[AnthropicAdapter]] = {
    "openai": OpenAIAdapter,
    "anthropic": AnthropicAdapter,
}
EXAMPLES = tuple(
    GepaExample(id=f"q{n}", params=({"word": f"number {n} word{n % 5}"},), label=f"word{n % 5}")
    for n in range(24)
)


def brain(asked: Asked) -> Answer:
    """Say whether the word stands in the rules."""
    *rules, word = " ".join(asked.texts).split()
    return Answer(text="known" if word in rules else "unknown")


def _feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    del session
    known = response.text == "known"
    return RolloutFeedback(score=float(known), feedback="" if known else f"lacks {example.label}")


def _reflect(rendered: RenderedPrompt[object]) -> str:
    lacking = re.findall(r"lacks (\w+)", rendered.text)
    held = re.findall(r"knows (\w+)", rendered.text)
    rules = " ".join(f"knows {word}" for word in dict.fromkeys((*held, *lacking[:1])))
    return f"```instruction\nThe rules: {rules} .\n```"


def adapter_of(name: str, base_url: str, mode: str) -> ProviderAdapter:
    """Return the model of the run."""
    return ADAPTERS[name](
        MODEL,
        api_key=KEY,
        base_url=base_url,
        prices=Prices({MODEL: ModelPrice(input=1, output=10)}),
        mode=mode,
        batch_poll=0.01,
        max_output_tokens=50,
    )


def prompt() -> Prompt[object]:
    """Return what is improved."""
    sections = [
        MarkdownSection(title="Rules", key="rules", template="The rules: knows apple ."),
        MarkdownSection(title="Word", key="word", template="$word"),
    ]
    return Prompt(PromptTemplate[object](ns="tests", key="words", sections=sections))


def optimizer(
    adapter: ProviderAdapter,
    *,
    journal: FileJournal | None = None,
    executor: Executor | None = None,
    pause: Cancellation | None = None,
) -> GepaOptimizer:
    """Return what improves it."""
    config = GepaConfig(
        rollout_budget=70,
        minibatch_size=2,
        pareto_set_size=5,
        target_section_paths=(("rules",),),
        training_examples=EXAMPLES[:14],
        data=Data(held_out=EXAMPLES[14:]),
        feedback_fn=_feedback,
        strategy=Strategy(preset="paper", published_question=False),
    )
    context = OptimizationContext(
        adapter,
        reflection_adapter=ScriptedAdapter(_reflect),
        journal=journal,
        executor=executor,
        pause=pause,
    )
    return GepaOptimizer(context, config)


def run(
    name: str,
    base_url: str,
    folder: Path,
    *,
    mode: str = "batch",
    pause: Cancellation | None = None,
) -> GepaResult:
    """Run or resume the run that lives in ``folder``."""
    adapter = adapter_of(name, base_url, mode)
    with FileJournal(folder / "journal.jsonl") as journal, ThreadPoolExecutor(2) as executor:
        improver = optimizer(adapter, journal=journal, executor=executor, pause=pause)
        return improver.optimize(prompt())


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
