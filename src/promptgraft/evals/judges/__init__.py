"""Judges: metrics that ask models."""

from promptgraft.evals.judges.kinds import (
    CATEGORY_SCORES,
    JudgeOf,
    LlmFinalResponse,
    LlmRubricKnowledgeRecall,
    LlmRubricResponse,
    Rubric,
    judge_kinds,
)
from promptgraft.evals.judges.panel import JudgeMetric, Voting
from promptgraft.evals.judges.prompts import (
    FINAL_RESPONSE,
    JUDGES_NS,
    KNOWLEDGE_RECALL,
    RUBRIC_RESPONSE,
)

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
