"""What a graph itself costs: ``python benchmarks/graphs.py``.

A step is asking a node whose adapter does nothing. The replay is that of a run in which every
answer takes four steps, two of them side by side, and in which no candidate is accepted.
"""

from __future__ import annotations

import itertools
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from figures import Figure, shown
from promptgraft import (
    FileJournal,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    MarkdownSection,
    OptimizationContext,
    PromptTemplate,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.graphs import Graph, Node, Run
from promptgraft.ground.serde import canonical_json
from promptgraft.runtime import SessionProtocol
from promptgraft.search.answers import READER

TITLE = "Graphs"
STEPS = 50
ROLLOUTS = 2_000
_NAMES = ("route", "facts", "tone", "reply")
_ANSWER = PromptResponse[object](text="done")


class Nothing:
    """Answers at once, and renders nothing."""

    identity = "nothing"

    def evaluate(self, prompt: object, *, session: object, deadline: object = None) -> Any:
        """Return the same answer always."""
        del prompt, session, deadline
        return _ANSWER


def template(key: str) -> PromptTemplate[object]:
    """Return the prompt of a node."""
    sections = [
        MarkdownSection(title="Rules", key="rules", template=f"Do {key}."),
        MarkdownSection(title="Input", key="input", template="$text", overridable=False),
    ]
    return PromptTemplate(ns="bench/graph", key=key, sections=sections)


NODES = [Node(name, template(name)) for name in _NAMES]


def in_a_row(run: Run, text: str) -> str:
    """Ask one node again and again."""
    for _ in range(STEPS):
        run.ask("route", {"text": text})
    return text


def fanned_out(run: Run, text: str) -> str:
    """Take four steps, two of them side by side."""
    given = {"text": text}
    run.ask("route", given)
    run.together(lambda one: one.ask("facts", given), lambda one: one.ask("tone", given))
    return str(run.ask("reply", given))


def step_seconds() -> float:
    """Return the least time of a step among several tries."""
    graph = Graph("bench/graph", flow=in_a_row, nodes=NODES, max_steps=STEPS)
    tries = []
    for _ in range(100):
        started = time.perf_counter()
        graph.answer("hello", adapter=Nothing())
        tries.append((time.perf_counter() - started) / STEPS)
    return min(tries)


def judge(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Score an example always the same, so that nothing is better."""
    del response, session
    score = (int(example.id[1:]) % 7) / 7
    return RolloutFeedback(score=score, feedback="route, facts, tone, reply")


def run(journal: Path) -> tuple[int, float]:
    """Make or replay the run; return its rollouts and the seconds that it took."""
    numbers = itertools.count()
    config = GepaConfig(
        training_examples=[GepaExample(id=f"e{n}", params=(f"case {n}",)) for n in range(60)],
        pareto_set_size=50,
        minibatch_size=8,
        rollout_budget=ROLLOUTS,
        feedback_fn=judge,
        persist=False,
    )
    graph = Graph("bench/graph", flow=fanned_out, nodes=NODES)
    teacher = ScriptedAdapter(
        lambda _: f"```instruction\nDo it, {next(numbers)}.\n```", identity="teacher"
    )
    with FileJournal(journal) as kept:
        context = OptimizationContext(Nothing(), reflection_adapter=teacher, journal=kept)
        started = time.perf_counter()
        result = GepaOptimizer(context, config).optimize(graph)
        return result.total_rollouts, time.perf_counter() - started


def read_seconds(journal: Path) -> float:
    """Return the time that a replay takes to read a rollout out of its journal."""
    with FileJournal(journal) as kept:
        texts = [canonical_json(one.answer) for one in kept.records() if one.kind == "rollout"]
    started = time.perf_counter()
    for text in texts:
        READER.decode(text)
    return (time.perf_counter() - started) / len(texts)


def measure(folder: Path) -> list[Figure]:
    """Return the figures of this page."""
    journal = folder / "graphs.jsonl"
    made, took = run(journal)
    found, again = run(journal)
    if found != made:
        raise SystemExit(f"the run has {made} rollouts, its replay {found}")
    return [
        Figure("a step", step_seconds() * 1e6, "µs", 150),
        Figure("rollouts of four steps", made, "", None),
        Figure("a rollout, made", took / made * 1e6, "µs", None),
        Figure("a rollout, read again", read_seconds(journal) * 1e6, "µs", 100),
        Figure("the whole run replayed, a rollout", again / made * 1e6, "µs", None),
        Figure("journal, a rollout", journal.stat().st_size / made / 1e3, "kB", None),
    ]


def main() -> int:
    """Measure, print, and return the exit code."""
    print(f"Python {platform.python_version()}, {platform.machine()}; {TITLE}")
    with tempfile.TemporaryDirectory() as folder:
        return shown(measure(Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
