"""The engine: what a search asks, what finds the answers, and what every algorithm shares.

A run passes ``preflight.py``, ``assemble.py`` and ``run_phases.py``, in this order. A search asks
(``asks.py``) and the engine answers (``driver.py``): from the journal (``answers.py``), or else
with a call (``batches.py``, ``calls.py``).
"""

from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from promptgraft.search.algorithm import BaseSearch, Kit
    from promptgraft.search.asks import (
        AnyEnded,
        Ask,
        Asking,
        Branch,
        Checkpoint,
        GiveUp,
        Join,
        Outlook,
        Question,
        Records,
        Release,
        Reply,
        Rollouts,
        Standing,
        Start,
        Together,
    )
    from promptgraft.search.config import RunConfig
    from promptgraft.search.context import BasePromptOptimizer, OptimizationContext
    from promptgraft.search.job import OptimizationJob, Optimizer
    from promptgraft.search.pipeline import Pipeline, Step, Stepping
    from promptgraft.search.plan import RolePlan, RunPlan
    from promptgraft.search.reflection import question_digest, question_on, reflection_params
    from promptgraft.search.result import RunResult
    from promptgraft.search.settings import (
        Data,
        Guards,
        Limits,
        Objectives,
        PersistenceScope,
        Settings,
        Targets,
    )
    from promptgraft.search.stopping import (
        MaxCandidates,
        MaxProposals,
        NoImprovement,
        Plateau,
        RequiredObjectives,
        RunState,
        RunStoppedError,
        StopFile,
        Stopper,
        StopReason,
        TargetScore,
    )
    from promptgraft.search.teacher import Teacher
    from promptgraft.search.verdict import HeldOut, RunVerdict
    from promptgraft.targets.base import InvalidProposalError, RejectionReason
    from promptgraft.targets.part_questions import PART_QUESTIONS, meta_prompt
    from promptgraft.targets.replies import new_text

__all__ = [
    "PART_QUESTIONS",
    "AnyEnded",
    "Ask",
    "Asking",
    "BasePromptOptimizer",
    "BaseSearch",
    "Branch",
    "Checkpoint",
    "Data",
    "GiveUp",
    "Guards",
    "HeldOut",
    "InvalidProposalError",
    "Join",
    "Kit",
    "Limits",
    "MaxCandidates",
    "MaxProposals",
    "NoImprovement",
    "Objectives",
    "OptimizationContext",
    "OptimizationJob",
    "Optimizer",
    "Outlook",
    "PersistenceScope",
    "Pipeline",
    "Plateau",
    "Question",
    "Records",
    "RejectionReason",
    "Release",
    "Reply",
    "RequiredObjectives",
    "RolePlan",
    "Rollouts",
    "RunConfig",
    "RunPlan",
    "RunResult",
    "RunState",
    "RunStoppedError",
    "RunVerdict",
    "Settings",
    "Standing",
    "Start",
    "Step",
    "Stepping",
    "StopFile",
    "StopReason",
    "Stopper",
    "TargetScore",
    "Targets",
    "Teacher",
    "Together",
    "meta_prompt",
    "new_text",
    "question_digest",
    "question_on",
    "reflection_params",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
