"""What earlier runs of a job tell its plan: calls, tokens and money of their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from promptgraft.evals.spending import Role
from promptgraft.evals.types import Step
from promptgraft.runs import RunSummary, State, list_runs, transcripts
from promptgraft.search import OptimizationJob
from promptgraft.search.plan import SeenAnswers, SeenUse
from promptgraft.targets.prompts import PromptSet

_MOST_LOOKED_AT = 500
"""The most rollouts of an earlier run that a plan counts steps in."""
_MOST_RUNS = 3
"""The most earlier runs whose answers a plan reads."""


def seen_in(runs: Path, job: OptimizationJob) -> SeenAnswers | None:
    """Return what answers used in the newest of the last completed runs of a job that tells."""
    ended = (run for run in list_runs(runs) if run.state is State.ENDED and run.prompt == job.name)
    # Runs on the embedded model tell nothing, however many there are.
    for run in islice(ended, _MOST_RUNS):
        if usage_seen := seen_answers(run, job, f"as in run {run.id}"):
            return usage_seen
    return None


def seen_answers(
    run: RunSummary, job: OptimizationJob, where: str, *, is_probe: bool = False
) -> SeenAnswers | None:
    """Return what the answers of a run used; None if it has none whose tokens are known.

    Args:
        run: the run, which has ended.
        job: what it was made of.
        where: the run, in words.
        is_probe: whether it is a probe of the present prompt.
    """
    if (ended := run.ended) is None:
        return None
    nodes: dict[str, SeenUse] = {}
    # Only answers of graphs have steps.
    if isinstance(job.subject, PromptSet):
        rollouts = islice(transcripts(run.folder), _MOST_LOOKED_AT)
        traces = [transcript.record.steps for transcript in rollouts]
        nodes = _nodes_seen(traces) if any(traces) else {}
    uses = tuple(
        SeenUse(
            role=row.role,
            model=row.model,
            calls=row.calls / max(1, ended.rollouts),
            input_tokens=row.usage.input_tokens / row.calls,
            output_tokens=row.usage.output_tokens / row.calls,
            # The first call of a probe finds nothing in the cache, unlike most calls of a run.
            cached_tokens=row.usage.cached_tokens / max(1, row.calls - is_probe),
            thinking=row.usage.reasoning_tokens / row.calls,
            cost=None if row.unpriced_calls else row.cost / row.calls,
        )
        for row in ended.ledger
        if row.usage.output_tokens
    )
    if not (nodes or any(use.role is Role.TASK for use in uses)):
        return None
    return SeenAnswers(where=where, uses=uses, nodes=nodes, is_probe=is_probe)


def _nodes_seen(traces: Iterable[Iterable[Step]]) -> dict[str, SeenUse]:
    """Return the average calls per answer, and tokens per call, of each node of a graph."""
    answers, calls = 0, Counter[str]()
    sent, received = Counter[str](), Counter[str]()
    for steps in traces:
        answers += 1
        for step in steps:
            for spending in step.spent:
                calls[step.node] += spending.calls
                sent[step.node] += spending.input_tokens
                received[step.node] += spending.output_tokens
    return {
        name: SeenUse(
            calls=calls[name] / answers,
            input_tokens=sent[name] / calls[name],
            output_tokens=received[name] / calls[name],
        )
        for name in calls
    }
