"""What a dask cluster makes of rollouts that only wait, and what travels for each.

Driver, scheduler and two workers with four threads each are processes of their own, all on this
machine. Needs `pip install "promptgraft[dask]"`.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
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
from promptgraft.bridges.dask import DaskExecutor
from promptgraft.overrides.store import OverrideAddress
from promptgraft.runtime import SessionProtocol
from promptgraft.targets.part_kinds import SectionModule
from promptgraft.targets.prompt_rollout import PromptRollout, Scoring
from promptgraft.targets.prompt_target import PromptTarget

OutputT = TypeVar("OutputT")

WORKERS, PROCESSES = 8, 2
TIMES = 5
CHARS = 20_000
"""Of the prompt."""


@attrs.frozen
class Question:
    """What the prompt is bound to."""

    text: str


@attrs.frozen
class Waiting:
    """Answers after some seconds."""

    seconds: float
    identity: str = "waiting"

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT]:
        """Answer."""
        del deadline
        time.sleep(self.seconds)
        return answered(prompt.render(session), "yes", session=session)


def judge(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Return the score of everything."""
    del example, response, session
    return RolloutFeedback(score=1.0, feedback="fine")


def target(seconds: float) -> PromptTarget:
    """Return a prompt of 20,000 characters, answered after ``seconds``, as algorithms see it."""
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
            adapter=Waiting(seconds),
            scoring=Scoring(feedback_fn=judge, max_example_chars=6_000),
        ),
        modules=(SectionModule(("rules",)),),
        max_part_chars=2 * CHARS,
        max_task_examples=0,
        store=None,
    )


def seconds_of(executor: DaskExecutor, tried: PromptTarget, rollouts: int) -> float:
    """Return how long so many rollouts of the baseline take."""
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


def processor_seconds(pids: list[int]) -> float:
    """Return what processes and their children have used."""
    psutil: Any = importlib.import_module("psutil")
    found = [psutil.Process(pid) for pid in pids]
    found += [child for one in found if one.pid != os.getpid() for child in one.children()]
    return sum(sum(one.cpu_times()[:2]) for one in found)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=800)
    parser.add_argument("--milliseconds", type=int, default=50)
    options = parser.parse_args()
    rollouts, seconds = options.rollouts, options.milliseconds / 1_000
    tried = target(seconds)
    distributed: Any = importlib.import_module("distributed")
    with distributed.SubprocessCluster(
        host="127.0.0.1",
        dashboard_address=None,
        n_workers=PROCESSES,
        threads_per_worker=WORKERS // PROCESSES,
    ) as cluster:
        with distributed.Client(cluster, set_as_default=False) as client:
            client.wait_for_workers(PROCESSES)
        kinds = {
            "driver": [os.getpid()],
            "scheduler": [cluster.scheduler.process.pid],
            "workers": [worker.process.pid for worker in cluster.workers.values()],
        }
        with DaskExecutor(cluster.scheduler_address) as executor:
            seconds_of(executor, tried, 4 * WORKERS)  # imports
            before = {kind: processor_seconds(pids) for kind, pids in kinds.items()}
            took = [seconds_of(executor, tried, rollouts) for _ in range(TIMES)]
            used = {kind: processor_seconds(pids) - before[kind] for kind, pids in kinds.items()}
            example = GepaExample(id="1", params=(Question("1?"),))
            call = functools.partial(tried.rollout, tried.baseline(), example, None)
            task, large = executor._packed(call)  # noqa: SLF001 - what travels is not public
    once = sum(map(len, large.values()))
    with_each = sum(len(part) for part in task.parts)
    ideal = rollouts * seconds / WORKERS
    print(
        f"{rollouts:,} rollouts of {options.milliseconds} ms on {WORKERS} workers, "
        f"a prompt of {CHARS:,} characters"
    )
    print("share of ideal:", ", ".join(f"{ideal / one:.0%}" for one in sorted(took, reverse=True)))
    each = (f"{kind} {1_000 * used[kind] / rollouts / TIMES:.1f}" for kind in used)
    print("milliseconds of a processor for each:", ", ".join(each))
    print(f"bytes with each call: {with_each:,}; once to each worker: {once:,}")


if __name__ == "__main__":
    main()
