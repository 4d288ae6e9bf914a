"""How prompts improve: what all optimizers share, and the algorithms."""

from promptgraft.optimizers.base import (
    BasePromptOptimizer,
    OptimizationContext,
    PersistenceScope,
)
from promptgraft.optimizers.stoppers import (
    MaxCandidates,
    MaxProposals,
    NoImprovement,
    RequiredObjectives,
    RunState,
    StopFile,
    Stopper,
    TargetScore,
)
from promptgraft.optimizers.stopping import StopReason
from promptgraft.optimizers.target import RejectionReason

__all__ = [
    "BasePromptOptimizer",
    "MaxCandidates",
    "MaxProposals",
    "NoImprovement",
    "OptimizationContext",
    "PersistenceScope",
    "RejectionReason",
    "RequiredObjectives",
    "RunState",
    "StopFile",
    "StopReason",
    "Stopper",
    "TargetScore",
]
