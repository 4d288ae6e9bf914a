"""Judges: metrics that ask models."""

from promptgraft.evals.judges.final_response import CATEGORY_SCORES, LlmFinalResponse
from promptgraft.evals.judges.loading import JudgeOf, judge_kinds
from promptgraft.evals.judges.panel import JudgeMetric
from promptgraft.evals.judges.prompts import (
    FINAL_RESPONSE,
    JUDGES_NS,
    KNOWLEDGE_RECALL,
    RUBRIC_RESPONSE,
)
from promptgraft.evals.judges.rubrics import LlmRubricKnowledgeRecall, LlmRubricResponse, Rubric
from promptgraft.evals.judges.voting import Voting

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
