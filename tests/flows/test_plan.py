"""What a plan says of a graph: the nodes that answers ask, before a run and by the last one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cli.console import Console
from promptgraft import (
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    OptimizationContext,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.adapters.base import Usage
from promptgraft.evals.spending import Role
from promptgraft.graphs import Graph, Node, Run
from promptgraft.search import RunPlan
from promptgraft.search.plan import SeenAnswers, SeenUse
from teacher_world import prompt


class Priced(ScriptedAdapter):
    """A model at a cent a token."""

    def price_of(self, usage: Usage) -> Decimal:
        return Decimal("0.01") * (usage.input_tokens + usage.output_tokens)


def flow(run: Run, text: str) -> str:
    return str(run.ask("first", {"text": text}))


STRONG, WEAK = (Priced(lambda _: "x", identity=name) for name in ("strong", "weak"))
GRAPH = Graph(
    "toy/plan",
    flow=flow,
    nodes=[
        Node("first", prompt("first", "Do it."), adapter=STRONG),
        Node("second", prompt("second", "Do it again.")),
        Node("third", prompt("third", "Never asked.")),
    ],
    max_steps=10,
)


def plan(seen: Mapping[str, SeenUse] | None = None) -> RunPlan:
    config = GepaConfig(
        rollout_budget=50,
        pareto_set_size=4,
        minibatch_size=2,
        training_examples=[GepaExample(id=f"e{n}", params=(f"{n}" * 400,)) for n in range(8)],
        feedback_fn=lambda *_: RolloutFeedback(score=0.0, feedback=""),
    )
    optimizer = GepaOptimizer(OptimizationContext(WEAK), config)
    if seen is None:
        return optimizer.plan(GRAPH)
    return optimizer.plan(GRAPH, seen=SeenAnswers(where="as in run a", nodes=seen))


def test_before_the_first_run_each_node_is_expected_once() -> None:
    made = plan()
    strong, weak = [row for row in made.roles if row.role is Role.TASK]
    assert (strong.model, weak.model) == ("strong", "weak")
    rollouts = made.expected_rollouts
    assert (strong.expected.calls, weak.expected.calls) == (rollouts, 2 * rollouts)
    # A hundred tokens of the input, and the prompt around it.
    assert strong.expected.input_tokens is not None
    assert 100 < strong.expected.input_tokens < 200
    assert strong.calls == weak.calls == 50 * 10
    assert (strong.tokens, strong.cost, made.tokens) == (None, None, None)
    assert strong.expected.tokens is not None
    assert strong.expected.cost == Decimal("0.01") * strong.expected.tokens
    assert made.expected_cost is not None


def test_after_a_run_it_is_what_the_steps_of_that_took() -> None:
    made = plan(
        {
            "first": SeenUse(calls=1.0, input_tokens=70, output_tokens=9),
            "second": SeenUse(calls=0.5, input_tokens=40, output_tokens=3),
        }
    )
    strong, weak = [row.expected for row in made.roles if row.role is Role.TASK]
    assert (strong.calls, strong.input_tokens, strong.output_tokens) == (
        made.expected_rollouts,
        70,
        9,
    )
    assert (weak.calls, weak.input_tokens, weak.output_tokens) == (
        round(made.expected_rollouts / 2),
        40,
        3,
    )


def test_the_command_line_takes_the_steps_of_the_last_run(
    improved: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(improved)
    document: dict[str, Any] = json.loads(console("plan", "--json").out)
    [task] = [row for row in document["roles"] if row["role"] == "task"]
    # The first node and then one of the three others.
    assert task["expected"]["calls"] == 2 * document["expected"]["rollouts"]
    assert task["expected"]["tokens"] > 0
    assert task["calls"] == 64 * document["rollouts"]
    assert task["tokens"] is None
