"""GEPA: reflective mutation and Pareto coverage (``specs/gepa.md``)."""

from promptgraft.optimizers.gepa.config import GepaConfig
from promptgraft.optimizers.gepa.events import (
    GepaMutationAccepted,
    GepaMutationProposed,
    GepaMutationRejected,
    GepaOptimizationCompleted,
    GepaOptimizationStarted,
    GepaRolloutCompleted,
)
from promptgraft.optimizers.gepa.optimizer import GepaOptimizer
from promptgraft.optimizers.gepa.types import GepaResult
from promptgraft.optimizers.types import (
    Candidate,
    ExampleFormatter,
    FeedbackFn,
    GepaExample,
    RolloutFeedback,
    RolloutRecord,
    TraceFormatter,
)

__all__ = [
    "Candidate",
    "ExampleFormatter",
    "FeedbackFn",
    "GepaConfig",
    "GepaExample",
    "GepaMutationAccepted",
    "GepaMutationProposed",
    "GepaMutationRejected",
    "GepaOptimizationCompleted",
    "GepaOptimizationStarted",
    "GepaOptimizer",
    "GepaResult",
    "GepaRolloutCompleted",
    "RolloutFeedback",
    "RolloutRecord",
    "TraceFormatter",
]
