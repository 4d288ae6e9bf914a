"""GEPA: reflective mutation and Pareto coverage (``specs/gepa.md``)."""

from promptgraft.optimizers.gepa.acceptance import AcceptancePolicy, MinGain, Paired, Strict
from promptgraft.optimizers.gepa.config import GepaConfig
from promptgraft.optimizers.gepa.config_fields import ToolExampleTarget
from promptgraft.optimizers.gepa.confirming import Confirmation
from promptgraft.optimizers.gepa.events import (
    GepaCandidateAdded,
    GepaCandidateScored,
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
    GepaStopFileRemoved,
    GepaWorking,
)
from promptgraft.optimizers.gepa.frontier import FrontierType
from promptgraft.optimizers.gepa.held_out import HeldOut
from promptgraft.optimizers.gepa.job import OptimizationJob
from promptgraft.optimizers.gepa.optimizer import GepaOptimizer
from promptgraft.optimizers.gepa.plan import RolePlan, RunPlan
from promptgraft.optimizers.gepa.policies import (
    FrontierPruning,
    Full,
    MinibatchChoice,
    ModuleChoice,
    Preset,
    Racing,
)
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
    "AcceptancePolicy",
    "Candidate",
    "Confirmation",
    "ExampleFormatter",
    "FeedbackFn",
    "FrontierPruning",
    "FrontierType",
    "Full",
    "GeneratedTaskExample",
    "GepaCandidateAdded",
    "GepaCandidateScored",
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
    "GepaStopFileRemoved",
    "GepaWorking",
    "HeldOut",
    "MinGain",
    "MinibatchChoice",
    "ModuleChoice",
    "OptimizationJob",
    "Paired",
    "Preset",
    "Racing",
    "RolePlan",
    "RolloutFeedback",
    "RolloutRecord",
    "RunPlan",
    "Strict",
    "ToolExampleTarget",
    "TraceFormatter",
]
