"""GEPA: reflective mutation and Pareto coverage (``specs/gepa.md``)."""

from promptgraft.optimizers.gepa.config import GepaConfig
from promptgraft.optimizers.gepa.config_fields import ToolExampleTarget
from promptgraft.optimizers.gepa.events import (
    GepaExampleGenerated,
    GepaMergeAccepted,
    GepaMergeAttempted,
    GepaMergeRejected,
    GepaMutationAccepted,
    GepaMutationProposed,
    GepaMutationRejected,
    GepaOptimizationCompleted,
    GepaOptimizationStarted,
    GepaRolloutCompleted,
)
from promptgraft.optimizers.gepa.optimizer import GepaOptimizer
from promptgraft.optimizers.gepa.types import GeneratedTaskExample, GepaResult
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
    "GeneratedTaskExample",
    "GepaConfig",
    "GepaExample",
    "GepaExampleGenerated",
    "GepaMergeAccepted",
    "GepaMergeAttempted",
    "GepaMergeRejected",
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
    "ToolExampleTarget",
    "TraceFormatter",
]
