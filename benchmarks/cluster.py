"""What a dask cluster makes of rollouts that wait 50 ms, and what travels for each.

Two processes on this machine with four threads each. Needs `pip install "promptgraft[dask]"`.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import time
from typing import Any, TypeVar

import attrs

from promptgraft import (
    Deadline,
    GepaExample,
    MarkdownSection,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RolloutFeedback,
)
from promptgraft.adapters.base import answered
from promptgraft.overrides.store import OverrideAddress
from promptgraft.runtime import SessionProtocol
from promptgraft.runtime.dask import DaskExecutor
from promptgraft.targets.part_kinds import SectionModule
from promptgraft.targets.prompt_rollout import PromptRollout, Scoring
from promptgraft.targets.prompt_target import PromptTarget

OutputT = TypeVar("OutputT")

WORKERS, PROCESSES = 8, 2
SECONDS = 0.05
CHARS = 20_000
"""Of the prompt."""


@attrs.frozen
class Question:
    """What the prompt is bound to."""

    text: str


@attrs.frozen
class Waiting:
    """Answers after 50 ms."""

    identity: str = "waiting"

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT]:
        """Answer."""
        del deadline
        time.sleep(SECONDS)
        return answered(prompt.render(session), "yes", session=session)


def judge(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Return the score of everything."""
    del example, response, session
    return RolloutFeedback(score=1.0, feedback="fine")


def target() -> PromptTarget:
    """Return a prompt of 20,000 characters as algorithms see it."""
    rules = MarkdownSection(title="Rules", key="rules", template="Think. " * (CHARS // 7))
    question = MarkdownSection(title="Question", key="question", template="$text")
    prompt = Prompt[object](
        PromptTemplate(ns="benchmarks", key="cluster", sections=(rules, question))
    )
    address = OverrideAddress("benchmarks", "cluster", "latest")
    return PromptTarget(
        rollout=PromptRollout(
            prompts={"benchmarks/cluster": prompt},
            base={"benchmarks/cluster": address.empty()},
            adapter=Waiting(),
            scoring=Scoring(feedback_fn=judge, max_example_chars=6_000),
        ),
        modules=(SectionModule(("rules",)),),
        max_part_chars=2 * CHARS,
        max_task_examples=0,
        store=None,
    )


def seconds_of(executor: DaskExecutor, rollouts: int) -> float:
    """Return how long so many rollouts of the baseline take."""
    tried = target()
    candidate = tried.baseline()
    began = time.perf_counter()
    made = [
        executor.submit(
            tried.rollout, candidate, GepaExample(id=str(n), params=(Question(f"{n}?"),)), None
        )
        for n in range(rollouts)
    ]
    assert all(one.result().score == 1.0 for one in made)
    return time.perf_counter() - began


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=800)
    rollouts = parser.parse_args().rollouts
    distributed: Any = importlib.import_module("distributed")
    faster = {"distributed.worker.multiprocessing-method": "forkserver"}
    with (
        importlib.import_module("dask").config.set(faster),
        distributed.LocalCluster(
            n_workers=PROCESSES,
            threads_per_worker=WORKERS // PROCESSES,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        DaskExecutor(cluster.scheduler_address) as executor,
    ):
        seconds_of(executor, 4 * WORKERS)  # imports
        shares = [rollouts * SECONDS / WORKERS / seconds_of(executor, rollouts) for _ in range(5)]
        tried = target()
        example = GepaExample(id="1", params=(Question("1?"),))
        call = functools.partial(tried.rollout, tried.baseline(), example, None)
        task, large = executor._packed(call)  # noqa: SLF001 - what travels is not public
    once = sum(map(len, large.values()))
    with_each = sum(len(part) for part in task.parts)
    print(f"{rollouts:,} rollouts of 50 ms on {WORKERS} workers, a prompt of {CHARS:,} characters")
    print("share of ideal:", ", ".join(f"{share:.0%}" for share in sorted(shares)))
    print(f"bytes with each call: {with_each:,}; once to each worker: {once:,}")


if __name__ == "__main__":
    main()
