"""Judges: metrics that ask models."""

from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from promptgraft.evals.judges.kinds import (
        CATEGORY_SCORES,
        FINAL_RESPONSE,
        JUDGES_NS,
        KNOWLEDGE_RECALL,
        RUBRIC_RESPONSE,
        JudgeOf,
        LlmFinalResponse,
        LlmRubricKnowledgeRecall,
        LlmRubricResponse,
        Rubric,
    )
    from promptgraft.evals.judges.panel import JudgeMetric, Voting
    from promptgraft.evals.judges.registry import judge_kinds

__all__ = [
    "CATEGORY_SCORES",
    "FINAL_RESPONSE",
    "JUDGES_NS",
    "KNOWLEDGE_RECALL",
    "RUBRIC_RESPONSE",
    "JudgeMetric",
    "JudgeOf",
    "LlmFinalResponse",
    "LlmRubricKnowledgeRecall",
    "LlmRubricResponse",
    "Rubric",
    "Voting",
    "judge_kinds",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
