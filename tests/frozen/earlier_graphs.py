"""A graph whose gradient search an earlier version has recorded: ``journals/trace.jsonl``.

Both nodes are asked with the same input, and each has a task of its own beside its rules.
"""

from __future__ import annotations

import json
import re
from typing import Any

import attrs

from promptgraft import MarkdownSection, PromptTemplate, RenderedPrompt, ScriptedAdapter
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import GepaExample, RolloutFeedback
from promptgraft.algorithms.gradient import GradientConfig, GradientOptimizer
from promptgraft.graphs import Graph, Node, Run
from promptgraft.journal import Journal
from promptgraft.runtime import SessionProtocol
from promptgraft.search import OptimizationContext
from promptgraft.search.result import RunResult


@attrs.frozen
class Words:
    """What both prompts are bound to."""

    text: str


def node(name: str) -> Node:
    sections = [
        MarkdownSection(title="Task", key="task", template=f"Be {name}.", overridable=False),
        MarkdownSection(title="Rules", key="rules", template=f"{name} knows:"),
        MarkdownSection(title="Words", key="words", template="$text", overridable=False),
    ]
    return Node(name, PromptTemplate(ns="kept", key=name, sections=sections))


def flow(run: Run, text: str) -> str:
    """Answer with what each node lacks."""
    answers = [str(run.ask(name, Words(text))) for name in ("left", "right")]
    return " ".join(answers)


GRAPH = Graph(
    "kept/pair", flow=flow, nodes=[node("left"), node("right")], edges=[("left", "right")]
)


def judge(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Score an answer. The journal has a digest of this function: do not change it."""
    lacking = re.findall(r"lacks (\w+)", response.text)
    said = "; ".join(f"missing {word}" for word in lacking)
    return RolloutFeedback(score=1 - len(lacking) / 2, feedback=said or "fine")


def answer(asked: RenderedPrompt[object]) -> str:
    name, known = re.findall(r"(left|right) knows:(.*)", asked.text)[0]
    word = re.findall(r"[ab]\d", asked.text)[-2:][name == "right"]
    return f"has {word}" if word in known.split() else f"lacks {word}"


def reflect(asked: RenderedPrompt[object]) -> str:
    """Blame the node that lacks a word, or add the words to its rules."""
    words = list(dict.fromkeys(re.findall(r"missing ([ab]\d)", asked.text)))
    if asked.key == "blame-trace":
        said: dict[str, Any] = {
            "blame": [
                {
                    "text": f"T{'ab'.index(word[0]) + 1}",
                    "severity": "P1",
                    "problem": f"missing {word}",
                }
                for word in words
            ]
        }
    elif asked.key == "merge-problems":
        said = {"problems": [{"severity": "P1", "problem": f"missing {word}"} for word in words]}
    else:
        current = re.findall(r"(?:left|right) knows:.*", asked.text)[0]
        said = {"text": " ".join([current, *words]), "why": "it lacks words"}
    return f"```json\n{json.dumps(said)}\n```"


def run(journal: Journal, task: ScriptedAdapter, reflection: ScriptedAdapter) -> RunResult:
    examples = [
        GepaExample(id=f"q{n}", params=(f"{n}: a{n % 2} b{n % 3}",), label=f"{n}")
        for n in range(10)
    ]
    config = GradientConfig(
        rollout_budget=60,
        pareto_set_size=4,
        train_batch=3,
        max_rounds=2,
        attribution="trace",
        training_examples=examples,
        feedback_fn=judge,
        keep_anyway=True,
        seed=1,
    )
    context = OptimizationContext(task, reflection_adapter=reflection, journal=journal)
    return GradientOptimizer(context, config).optimize(GRAPH)


def adapters() -> tuple[ScriptedAdapter, ScriptedAdapter]:
    return ScriptedAdapter(answer, identity="words/1"), ScriptedAdapter(reflect, identity="blame/1")
