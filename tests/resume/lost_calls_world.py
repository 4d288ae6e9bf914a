"""An agent that can only be called, in a run that is killed while it is asked.

As a program, ``python lost_calls_world.py FOLDER KIND`` runs it with a journal in the folder. Once
the agent has been asked often enough it says so on standard output, and does not answer any more.
"""

from __future__ import annotations

import sys
import threading
from decimal import Decimal
from pathlib import Path

from promptgraft import (
    AgentCall,
    BlackBox,
    Case,
    Data,
    FileJournal,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    Limits,
    OptimizationContext,
    ScriptedAdapter,
)
from promptgraft.agents.call import AgentAnswer
from promptgraft.errors import TransientProviderError
from promptgraft.evals.metrics import load_metrics
from promptgraft.evals.types import Turn
from promptgraft.journal import Journal
from promptgraft.targets.judging import feedback_from

CALLS = 5
"""Calls of the agent before it does not answer any more."""
COST = Decimal("0.25")
MOST = Decimal("0.75")


class Script:
    """How the agent behaves; it has the same name whatever it does.

    Attributes:
        left: calls that it answers before it does not answer any more; None for all of them.
        is_down: whether its provider cannot be reached for any case but the rehearsal's.
    """

    left: int | None = None
    is_down = False


def agent(query: str, call: AgentCall) -> AgentAnswer:
    """Answer each query with itself, for a price, or behave as the script says."""
    if Script.is_down and call.example != "c0":
        raise TransientProviderError("503: down")
    if Script.left is not None:
        Script.left -= 1
        if Script.left < 0:
            print("hangs", flush=True)
            threading.Event().wait()
    return AgentAnswer(text=query, cost=COST)


def run(
    journal: Journal,
    *,
    turns: bool = False,
    bound: Decimal | None = None,
    max_cost: str | None = None,
) -> GepaResult:
    """Run or resume."""
    # Half of the answers are wrong, so that there is something to learn.
    cases = [
        Case(
            id=f"c{n}",
            input=f"yes {n}",
            expected="yes" if n % 2 else "never",
            turns=(Turn(user=f"Hello {n}"), Turn(user=f"yes {n}")) if turns else (),
        )
        for n in range(8)
    ]
    box = BlackBox({"rules": "Say yes."}, agent=agent, max_call_cost=bound)
    config = GepaConfig(
        rollout_budget=28,
        minibatch_size=2,
        pareto_set_size=4,
        training_examples=[GepaExample(id=case.id, params=(case,), label=case) for case in cases],
        feedback_fn=feedback_from(load_metrics(["contains"])),
        data=Data(held_out=()),
        limits=Limits(max_cost=max_cost),
    )
    context = OptimizationContext(
        reflection_adapter=ScriptedAdapter(lambda _: "```instruction\nSay it.\n```"),
        journal=journal,
        reuse_scores=True,
    )
    return GepaOptimizer(context, config).optimize(box)


def main() -> None:
    """Run until the agent does not answer."""
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    bound = MOST if "bound" in kind else None
    Script.left = CALLS
    with FileJournal(folder / "journal.jsonl") as journal:
        run(journal, turns="turns" in kind, bound=bound)


if __name__ == "__main__":
    main()
