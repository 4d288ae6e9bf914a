"""The kinds of judges that metric files can name."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from promptgraft.evals.types import Metric, MetricKind
from promptgraft.ground.strict.nodes import Node

if TYPE_CHECKING:
    from promptgraft.evals.judges.kinds import JudgeOf

_NAMES = (
    "llm_final_response",
    "llm_rubric_response",
    "llm_rubric_critic",
    "llm_rubric_knowledge_recall",
)


def judge_kinds(judge_of: JudgeOf) -> tuple[MetricKind, ...]:
    """Return the kinds of judges for a registry: ``METRICS.plus(*judge_kinds(judge_of))``.

    ``judge_of`` makes the adapter of a judge from its model in a file. ``llm_rubric_critic`` is
    the same as ``llm_rubric_response``.
    """
    return tuple(
        MetricKind(name=name, build=functools.partial(_judge, name, judge_of), takes_criterion=True)
        for name in _NAMES
    )


def _judge(name: str, judge_of: JudgeOf, node: Node) -> Metric | None:
    # Judges and their prompts are slow to import, and most metric files name none.
    from promptgraft.evals.judges.kinds import read_judge

    return read_judge(name, judge_of, node)
