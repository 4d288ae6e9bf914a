"""How prompts improve: what all optimizers share, and the algorithms."""

from promptgraft.optimizers.base import (
    BasePromptOptimizer,
    OptimizationContext,
    PersistenceScope,
)
from promptgraft.optimizers.stopping import StopReason
from promptgraft.optimizers.target import RejectionReason

__all__ = [
    "BasePromptOptimizer",
    "OptimizationContext",
    "PersistenceScope",
    "RejectionReason",
    "StopReason",
]
