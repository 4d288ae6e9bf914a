"""A graph with a tool and a judge, whose models answer over HTTP; every call is counted.

As a program, ``python calls_world.py FOLDER BASE_URL`` runs or resumes it in the folder, in a
forked process for each line of standard input. It prints the id of the process, what comes of the
run as JSON, and a line when the process has ended.
"""

from __future__ import annotations

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs

from promptgraft import (
    Cancellation,
    Case,
    Data,
    FileJournal,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    Limits,
    MarkdownSection,
    OptimizationContext,
    PromptTemplate,
    Strategy,
)
from promptgraft.adapters.base import ProviderAdapter
from promptgraft.adapters.calling.prices import ModelPrice, Prices
from promptgraft.adapters.openai import OpenAIAdapter
from promptgraft.evals.judges.kinds import LlmFinalResponse
from promptgraft.evals.spending import Role
from promptgraft.graphs import Graph, Node, Run
from promptgraft.journal import Journal
from promptgraft.prompt import Tool
from promptgraft.runtime import EventBus
from promptgraft.targets.judging import feedback_from
from servers.behaviour import Answer, Asked, Call

WORKERS = 4
TASK, JUDGE, WRITER = "task-1", "judge-1", "writer-1"
MODELS = (TASK, JUDGE, WRITER)
KEY = "calls-key-0123456789"
PRICES = Prices({model: ModelPrice(input="1", output="2") for model in MODELS})
CASES = 24
NODES = ("sort", "look", "write")


@attrs.frozen
class Text:
    """What a node is asked."""

    text: str


@attrs.frozen
class Word:
    """The parameter of the tool."""

    word: str


WORD = "known"


def look_up(given: Word) -> str:
    """Return what is known of a word."""
    return f"{given.word} is {WORD}"


_TOOL = Tool(
    name="look_up",
    description="Look a word up.",
    params_type=Word,
    result_type=str,
    handler=look_up,
)


def node(key: str) -> Node:
    """Return a node whose rules may change."""
    rules = MarkdownSection(
        title="Rules",
        key="rules",
        template=f"This is {key}.",
        tools=(_TOOL,) if key == "look" else (),
    )
    asked = MarkdownSection(title="Text", key="text", template="Text: $text", overridable=False)
    return Node(key, PromptTemplate[Any](ns="tests/calls", key=key, sections=(rules, asked)))


def answer(run: Run, text: str) -> str:
    """Sort, look up, write."""
    kind = run.ask("sort", Text(text))
    found = run.ask("look", Text(f"{kind} {text}"))
    return str(run.ask("write", Text(f"{found} {text}")))


GRAPH = Graph("tests/calls", flow=answer, nodes=[node(key) for key in NODES])


def brain(asked: Asked) -> Answer:
    """Answer as each of the models does; only by what is asked."""
    said = "\n".join(asked.texts)
    if asked.model == WRITER:
        return Answer(text=f"```instruction\nThis is number {len(said)}.\n```")
    if asked.model == JUDGE:
        # Half of the answers are wrong, so that there is something to learn.
        right = re.search(r"case (\d+)", said)
        category = "correct" if right and int(right[1]) % 2 else "wrong"
        return Answer(text=json.dumps({"reason": "so it is", "category": category}))
    if asked.tools and not asked.results:
        return Answer(calls=(Call("look_up", json.dumps({"word": f"w{len(said)}"})),))
    heard = said.rpartition("Text: ")[2].split()
    return Answer(text=" ".join([*asked.results, *heard][:40]))


def adapter(model: str, base_url: str) -> ProviderAdapter:
    """Return one of the models."""
    return OpenAIAdapter(
        model, api_key=KEY, base_url=base_url, prices=PRICES, max_output_tokens=100, timeout=30.0
    )


def config(base_url: str) -> GepaConfig:
    """Return the settings of a run with one step."""
    cases = [Case(id=f"c{n}", input=f"case {n}", expected=f"case {n}") for n in range(CASES)]
    judge = LlmFinalResponse(name="judged", judges=[adapter(JUDGE, base_url)])
    return GepaConfig(
        rollout_budget=CASES + 12,
        minibatch_size=6,
        pareto_set_size=CASES // 2,
        training_examples=[GepaExample(id=c.id, params=(c.input,), label=c) for c in cases],
        feedback_fn=feedback_from([judge]),
        data=Data(held_out=()),
        strategy=Strategy(preset="paper"),
        limits=Limits(max_idle_steps=100),
    )


def run(
    base_url: str,
    journal: Journal | None,
    *,
    cancellation: Cancellation | None = None,
    max_cost: Decimal | None = None,
    event_bus: EventBus | None = None,
) -> GepaResult:
    """Run or resume."""
    settings = config(base_url)
    limits = attrs.evolve(settings.limits, max_cost=max_cost)
    with ThreadPoolExecutor(WORKERS) as executor:
        context = OptimizationContext(
            adapter(TASK, base_url),
            reflection_adapter=adapter(WRITER, base_url),
            executor=executor,
            journal=journal,
            cancellation=cancellation,
            event_bus=event_bus,
        )
        return GepaOptimizer(context, attrs.evolve(settings, limits=limits)).optimize(GRAPH)


def requests_of(result: GepaResult, *, answered: bool = True) -> int:
    """Return the requests of a ledger that were answered, or that were not."""
    return sum(
        entry.calls + entry.retries
        for entry in result.ledger
        if (entry.role is not Role.UNANSWERED) == answered
    )


def told(result: GepaResult) -> dict[str, object]:
    """Return what a test wants to know of a result."""
    lost = [entry.cost for entry in result.ledger if entry.role is Role.UNANSWERED]
    return {
        "answered": requests_of(result),
        "lost": requests_of(result, answered=False),
        "lost_cost": str(sum(lost, Decimal(0))),
        "found": repr(attrs.evolve(result, ledger=())),
    }


def main() -> None:
    """Run or resume, and print what came of it."""
    folder, base_url = Path(sys.argv[1]), sys.argv[2]
    with FileJournal(folder / "journal.jsonl") as journal:
        print(json.dumps(told(run(base_url, journal))))


if __name__ == "__main__":
    main()
