"""How prompts improve: what all optimizers share, and the algorithms."""

from promptgraft.search.context import (
    BasePromptOptimizer,
    OptimizationContext,
    PersistenceScope,
)
from promptgraft.search.stoppers import (
    MaxCandidates,
    MaxProposals,
    NoImprovement,
    RequiredObjectives,
    RunState,
    StopFile,
    Stopper,
    TargetScore,
)
from promptgraft.search.stopping import StopReason
from promptgraft.targets.base import RejectionReason

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
