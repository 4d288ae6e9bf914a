"""Makes two runs on the graph of a recipe at the same time, in one process: ``FILE NAME NAME``.

The cases of a run, and the texts that are tried in it, have its name in them.
"""

from __future__ import annotations

import itertools
import runpy
import sys
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from promptgraft import (
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    MinGain,
    OptimizationContext,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.graphs import Graph


def improve(graph: Graph, executor: Executor, name: str) -> None:
    texts = (f"```instruction\nSay {name} {number}.\n```" for number in itertools.count())
    config = GepaConfig(
        training_examples=[GepaExample(id=f"{n}", params=(f"{name}! {n}",)) for n in range(8)],
        pareto_set_size=4,
        minibatch_size=2,
        rollout_budget=24,
        feedback_fn=lambda *_: RolloutFeedback(score=0.5, feedback="so so"),
        acceptance=MinGain(0.0),
        persist=False,
    )
    context = OptimizationContext(
        reflection_adapter=ScriptedAdapter(lambda _: next(texts)), executor=executor
    )
    result = GepaOptimizer(context, config).optimize(graph)
    assert result.accepted_mutations > 1


def main(recipe: str, names: list[str]) -> None:
    graph = runpy.run_path(recipe)["GRAPH"]
    with ThreadPoolExecutor(4) as executor, ThreadPoolExecutor(2) as runs:
        list(runs.map(partial(improve, graph, executor), names))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
