"""Drop-in replacements for ``AgentOptimizer`` and what belongs to it in another optimizer.

A program for that optimizer runs unchanged but for its import. The output folder holds the files
that it expects, and a run directory of promptgraft.
"""

from promptgraft.ground.lazy import lazy_exports

TYPE_CHECKING = False  # type checkers know the name; the import of `typing` takes its time
if TYPE_CHECKING:
    from promptgraft.bridges.agent_optimizer.evaluator import AgentEvaluator
    from promptgraft.bridges.agent_optimizer.optimizer import (
        OPTIMIZER_REGISTRY,
        AgentOptimizer,
        BaseOptimizer,
    )
    from promptgraft.bridges.agent_optimizer.result import OptimizeResult, RoundRecord
    from promptgraft.bridges.agent_optimizer.target import TargetPrompt

__all__ = [
    "OPTIMIZER_REGISTRY",
    "AgentEvaluator",
    "AgentOptimizer",
    "BaseOptimizer",
    "OptimizeResult",
    "RoundRecord",
    "TargetPrompt",
]

# `promptgraft import` reads the configuration only.

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
